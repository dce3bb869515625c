package top

import (
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// memory is what the screen keeps of readings before the present one.
type memory struct {
	before  []trend.Minute // of the last day, from before this screen began
	pasts   map[gpu.UUID]*past
	curves  map[string][]float64 // share of its memory by row, of the last readings
	workers map[string][]observe.Worker
	rates   map[worked]float64 // processors by process
	counted map[worked]time.Duration
	readAt  time.Time
	works   map[string]work // by lease
	whole   observe.Computer
	busy    float64 // processors of the computer; -1 not known yet
}

// worked names one process for ever.
type worked struct {
	pid   int
	start uint64
}

// curveLength is how many readings of the memory of a job are kept.
const curveLength = 60

// take takes a reading in.
func (m *model) take(seen observe.Seen) {
	fresh := seen.At.After(m.seen.At)
	m.seen = seen
	if !fresh {
		return
	}
	if seen.At.Sub(m.saidAt) >= stays {
		m.said = ""
	}
	s := &m.seen.Report
	m.answer, m.starts = glance.Of(s), glance.Starts(s)
	for i := range s.Devices {
		d := &s.Devices[i]
		load := -1.0
		if d.Utilization != nil {
			load = *d.Utilization
		}
		p := m.past(d.UUID)
		p.add(sample{s.Taken, load})
		for _, spot := range append([]status.Device{*d}, d.MIG...) {
			p.meetAll(spot.Leases, s.Taken)
		}
		p.forget(s.Taken.Add(-spans()[len(spans())-1]))
	}
	s.Each(func(d *status.Device) {
		for i := range d.Leases {
			m.meetUser(d.Leases[i].User)
		}
	})
	m.noteCurves(m.lister().running())
}

// remember takes leases in that have ended.
func (m *memory) remember(ended []trend.Ended, now time.Time) {
	longest := spans()[len(spans())-1]
	for i := range ended {
		e := &ended[i]
		if now.Sub(e.Until) > longest {
			continue
		}
		for _, d := range e.Devices {
			m.past(d.UUID).meet(stay{e.Lease, e.User, e.Command, e.Since, e.Until})
		}
	}
}

func (m *memory) past(id gpu.UUID) *past {
	if m.pasts == nil {
		m.pasts = map[gpu.UUID]*past{}
	}
	if m.pasts[id] == nil {
		m.pasts[id] = &past{}
	}
	return m.pasts[id]
}

// meetAll notes the leases that are on the device.
func (p *past) meetAll(leases []status.Lease, now time.Time) {
	for i := range leases {
		l := &leases[i]
		if l.Parent == "" && l.Since != nil {
			p.meet(stay{l.ID, l.User, l.Command, *l.Since, now})
		}
	}
}

// noteCurves adds the memory of each row to its curve, and forgets the curves of those that are gone.
func (m *memory) noteCurves(rows []row) {
	curves := map[string][]float64{}
	for i := range rows {
		r := &rows[i]
		share := -1.0
		if r.memory != nil && r.room != nil && *r.room > 0 {
			share = float64(*r.memory) / float64(*r.room)
		}
		list := append(m.curves[r.id], share)
		curves[r.id] = list[max(0, len(list)-curveLength):]
	}
	m.curves = curves
}

// rate is how many processors a process keeps busy; -1 not known yet.
func (m *memory) rate(w observe.Worker) float64 {
	rate, known := m.rates[worked{w.PID, w.Start}]
	if !known {
		return -1
	}
	return rate
}

// count takes a reading of processes in: what a processor did is the difference to the one before.
func (m *memory) count(workers map[string][]observe.Worker, whole observe.Computer, at time.Time) {
	if !at.After(m.readAt) {
		return
	}
	passed := at.Sub(m.readAt)
	counted, rates, works := map[worked]time.Duration{}, map[worked]float64{}, map[string]work{}
	for id, list := range workers {
		sum := work{processors: -1}
		for _, w := range list {
			key := worked{w.PID, w.Start}
			counted[key] = w.CPU
			sum.memory += w.Memory
			before, known := m.counted[key]
			if !known || m.readAt.IsZero() {
				continue
			}
			rates[key] = max(0, float64(w.CPU-before)/float64(passed))
			sum.processors = max(0, sum.processors) + rates[key]
		}
		works[id] = sum
	}
	m.busy = -1
	if m.whole.Worked > 0 && !m.readAt.IsZero() {
		m.busy = max(0, float64(whole.Worked-m.whole.Worked)/float64(passed))
	}
	m.whole = whole
	m.workers, m.counted, m.rates, m.works, m.readAt = workers, counted, rates, works, at
}

// short is a size in few columns: "20.5G".
func short(b gpu.Bytes) string {
	switch {
	case b == 0:
		return "0"
	case b >= 1000*gpu.GiB:
		return sprint("%.1fT", b, 1<<40)
	case b >= 100*gpu.GiB:
		return sprint("%.0fG", b, 1<<30)
	case b >= gpu.GiB:
		return sprint("%.1fG", b, 1<<30)
	case b >= gpu.MiB:
		return sprint("%.0fM", b, 1<<20)
	}
	return sprint("%.0fK", b, 1<<10)
}
