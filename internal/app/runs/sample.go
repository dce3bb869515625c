package runs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	core "gpuard/internal/core/runs"
)

// sampleEvery is how often it is measured what the jobs of a queue use of their devices.
const sampleEvery = 10 * time.Second

// use is what was measured of a run: at most so much memory of one device, and the sum of loads.
type use struct {
	peak    gpu.Bytes
	load    float64
	samples int
}

// sample measures what runs, again and again. One reading of the machine serves all.
func (r *runner) sample(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(r.host.Times.Sample, sampleEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		plans := map[int]job.Plan{}
		moved := r.leasesLeft()
		for pid, seat := range r.live {
			if len(seat.Plan.Devices) > 0 && !moved[seat.Lease] {
				plans[pid] = seat.Plan
			}
		}
		r.mu.Unlock()
		if len(plans) == 0 {
			continue
		}
		m, _, err := r.host.ReadFast(ctx, gpu.Query{What: gpu.Load | gpu.Processes})
		if err != nil {
			continue
		}
		for pid, plan := range plans {
			var tree []int // looking through all processes takes its time, so not under the lock
			if plan.Share > 0 || slices.ContainsFunc(plan.Devices, func(d job.Given) bool { return d.Profile != "" }) {
				tree = r.host.Proc.Tree(pid)
			}
			r.mu.Lock()
			if u := r.uses[pid]; u != nil {
				u.add(m, plan, tree)
			}
			r.mu.Unlock()
		}
	}
}

// leasesLeft are the leases that keepers have given up for others. The lock is held.
func (r *runner) leasesLeft() map[string]bool {
	now := map[string]bool{}
	for _, run := range r.state.In(core.Running) {
		now[r.state.Runs[run].Born().Lease] = true
	}
	gone := map[string]bool{}
	for _, seat := range r.live {
		gone[seat.Lease] = !now[seat.Lease]
	}
	return gone
}

// add adds a reading. Who has a device alone has all that is used of it; of a share, a slice or the main memory only what its processes use.
func (u *use) add(m gpu.Machine, plan job.Plan, tree []int) {
	own := map[int]bool{}
	for _, pid := range tree {
		own[pid] = true
	}
	load, loads := 0.0, 0
	for _, given := range plan.Devices {
		d, slice, ok := m.Find(given.UUID)
		if !ok {
			continue
		}
		if plan.Share == 0 && slice == nil {
			if d.Utilization != nil {
				load, loads = load+*d.Utilization, loads+1
			}
			if d.MemoryUsed != nil {
				u.peak = max(u.peak, *d.MemoryUsed)
				continue
			}
		}
		var sum gpu.Bytes
		for _, p := range m.On(given.UUID) {
			if own[p.PID] && p.Memory != nil {
				sum += *p.Memory
			}
		}
		u.peak = max(u.peak, sum)
	}
	if loads > 0 {
		u.load += load / float64(loads)
		u.samples++
	}
}

// measured writes what was measured into the event of the run's end. The lock is held.
func (r *runner) measured(pid int, e *core.Event) {
	u := r.uses[pid]
	delete(r.uses, pid)
	if u == nil {
		return
	}
	e.Peak = u.peak
	if u.samples > 0 {
		mean := u.load / float64(u.samples)
		e.Load = &mean
	}
}
