// Package sim replays a trace of jobs on an invented machine: what would each have waited, and how much of the machine
// would have been in use? A Policy says in which order jobs start. That of gpuard itself is not repeated here: it is
// asked of package queue, and package pick chooses the devices of every policy.
//
//	result, err := sim.Replay(jobs, sim.Setup{Machine: machine, Policy: sim.Policies()[0]}, nil)
//
// The same jobs and setup always give the same result. It must not read a file, a clock or the real machine.
package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// Job is a job of a trace. Jobs are in the order of their arrival.
type Job struct {
	Arrival int64 // ns since 1970
	// The time from its start to its end.
	Lasts time.Duration
	// What was known of that when it came; 0 nothing.
	Estimate time.Duration
	GPUs     int16 // at least 1
	// Thousandths of the memory of one GPU; 0: whole GPUs.
	Share int16
	User  uint32 // number of its user
}

// Setup is what the jobs are replayed on.
type Setup struct {
	Machine gpu.Machine // idle and healthy
	Policy  Policy
	Place   job.Place
}

// Large is the number of GPUs from which a job counts as a large one.
const Large = 8

// Replay runs all jobs. Those that the machine can never serve are left out and counted. step, where there is one, is
// told now and then how many jobs have started; it returns false to end the replay.
func Replay(jobs []Job, s Setup, step func(started int) bool) (Result, error) {
	r := newReplay(jobs, s)
	for at, more := r.nextEvent(); more; at, more = r.nextEvent() {
		if err := r.playEvent(at); err != nil {
			return Result{}, err
		}
		r.events++
		if step != nil && r.events%64 == 0 && !step(r.starts) {
			return Result{}, ErrStopped
		}
	}
	if n := r.line.waitingCount(); n > 0 {
		return Result{}, fmt.Errorf("cannot replay: %d jobs are never started by the policy %s", n, s.Policy.Name)
	}

	return r.buildResult(), nil
}

// ErrStopped is the error of a replay that step has ended.
var ErrStopped = errors.New("the replay was ended")

// replay is a machine at one moment of its life.
type replay struct {
	Setup
	jobs []Job
	line waitingLine
	// Arrival of the first job.
	begin int64
	now   int64
	// Jobs that have come.
	come    int
	starts  int
	events  int
	devices []device
	// The place of a device in devices.
	places map[gpu.UUID]int
	// A heap, the first end first.
	running []runningJob
	held    []job.Lease
	// The memory of which Job.Share has thousandths.
	share gpu.Bytes
	in    pick.Context
	tally
}

// device is what a device could give now.
type device struct {
	id gpu.UUID
	// Shares of an unused device.
	can gpu.Bytes
	// Shares that it could still give.
	left   gpu.Bytes
	leases int
	// Exclusive ones among them.
	whole int

	// Pick gives it so: not what is far weaker than the others.
	givenWhole, givenShared bool
}

// runningJob is a job that runs.
type runningJob struct {
	end     int64
	job     int
	started int64
	lease   job.Lease
}

// waitingLine is what waits.
type waitingLine interface {
	// It has come.
	addJob(job int)
	// What may start now; it is started then.
	nextTurn() (startableJob, bool)
	// A job has ended.
	noteEnd(runningJob)
	// When to ask again although nothing happens.
	wakeTime() int64
	// How many wait.
	waitingCount() int
}

// startableJob is a job that may start, and what pick must know for it.
type startableJob struct {
	job  int
	kept map[gpu.UUID]job.Ticket
	// Estimate, for plans.
	time time.Duration
}

func newReplay(jobs []Job, s Setup) *replay {
	r := &replay{Setup: s, jobs: jobs, places: map[gpu.UUID]int{}, in: pick.Context{Tolerate: pick.DefaultTolerance()}}
	whole, shared := pick.CapableDevices(job.Spec{GPUs: 1}, s.Machine, r.in), pick.CapableDevices(job.Spec{GPUs: 1, Share: 1}, s.Machine, r.in)
	for i := range s.Machine.Devices {
		d := &s.Machine.Devices[i]
		one := device{id: d.UUID, can: *pick.ShareableMemory(d), givenWhole: slices.Contains(whole, d.UUID), givenShared: slices.Contains(shared, d.UUID)}
		one.left = one.can
		r.share = max(r.share, one.can)
		r.places[d.UUID] = len(r.devices)
		r.devices = append(r.devices, one)
	}

	if len(jobs) > 0 {
		r.begin = jobs[0].Arrival
		r.now = r.begin
	}

	if s.Policy.own {
		r.line = newOwnLine(r)
	} else {
		r.line = newPlainLine(r)
	}

	return r
}

// nextEvent is the moment of the next event.
func (r *replay) nextEvent() (at int64, more bool) {
	at = r.line.wakeTime()
	if r.come < len(r.jobs) {
		at, more = min(at, r.jobs[r.come].Arrival), true
	}
	if len(r.running) > 0 {
		at, more = min(at, r.running[0].end), true
	}

	return at, more
}

// playEvent is a moment at which jobs come, end, or may start.
func (r *replay) playEvent(at int64) error {
	r.endJobsUntil(at)
	for r.come < len(r.jobs) && r.jobs[r.come].Arrival <= at {
		r.admitJob(r.come)
		r.come++
	}
	return r.startAll()
}

// endJobsUntil ends what has ended by then.
func (r *replay) endJobsUntil(at int64) {
	r.accountUse(time.Duration(at - r.now))
	r.now = at

	for len(r.running) > 0 && r.running[0].end <= at {
		one := heapPop(&r.running)
		r.applyLease(one.lease, -1)
		i := slices.IndexFunc(r.held, func(l job.Lease) bool { return l.ID == one.lease.ID })
		r.held[i] = r.held[len(r.held)-1]
		r.held = r.held[:len(r.held)-1]
		r.line.noteEnd(one)
	}
}

func (r *replay) admitJob(i int) {
	j := &r.jobs[i]
	able := 0
	for k := range r.devices {
		if d := &r.devices[k]; d.canServe(r.quotaOf(j)) && d.can >= r.quotaOf(j) {
			able++
		}
	}

	if able < int(j.GPUs) {
		r.tooLarge++
		return
	}

	r.line.addJob(i)
}

// startAll starts all that may start now.
func (r *replay) startAll() error {
	for {
		t, ok := r.line.nextTurn()
		if !ok {
			return nil
		}

		j := &r.jobs[t.job]
		r.in.Kept, r.in.Waiting = t.kept, r.line.waitingCount() > 0
		plan, refusal := pick.Place(job.Spec{GPUs: int(j.GPUs), Share: r.quotaOf(j), Place: r.Place}, r.Machine, r.held, r.in)
		if refusal != nil {
			return fmt.Errorf("cannot replay: job %d was to start: %w", t.job+1, refusal)
		}

		l := job.Lease{ID: strconv.Itoa(t.job), UID: uidOf(j), Devices: plan.UUIDs(), Share: plan.Share, SinceBoot: r.sinceBoot(), Time: t.time}
		r.applyLease(l, 1)
		r.held = append(r.held, l)
		r.running = append(r.running, runningJob{r.now + int64(max(j.Lasts, 0)), t.job, r.now, l})
		heapUp(r.running)
		r.starts++
		r.recordStart(r.now, j)
	}
}

// applyLease gives devices to a lease, or takes them back.
func (r *replay) applyLease(l job.Lease, by int) {
	for _, id := range l.Devices {
		d := &r.devices[r.places[id]]
		d.leases += by
		if l.Share > 0 {
			d.left -= gpu.Bytes(by) * l.Share
		} else {
			d.whole += by
		}
	}
}

// canGive reports whether the device could be given to a job of this quota now.
func (d *device) canGive(quota gpu.Bytes) bool {
	if quota > 0 {
		return d.givenShared && d.whole == 0 && d.left >= quota
	}
	return d.givenWhole && d.leases == 0
}

// canServe reports whether the device is ever given to a job of this quota, or whole where that is 0.
func (d *device) canServe(quota gpu.Bytes) bool {
	if quota > 0 {
		return d.givenShared
	}
	return d.givenWhole
}

// quotaOf is the share of a job in bytes.
func (r *replay) quotaOf(j *Job) gpu.Bytes { return r.share * gpu.Bytes(j.Share) / 1000 }

// sinceBoot is the time since boot of the invented machine, which came up an hour before the first job.
func (r *replay) sinceBoot() int64 { return r.now - r.begin + int64(time.Hour) }

func uidOf(j *Job) uint32 { return 1000 + j.User }

// heapUp moves the last run to its place in the heap, the first end first; heapPop takes out the first.
func heapUp(h []runningJob) {
	for i := len(h) - 1; i > 0; {
		above := (i - 1) / 2
		if !h[i].endsBefore(h[above]) {
			return
		}
		h[i], h[above] = h[above], h[i]
		i = above
	}
}

func heapPop(h *[]runningJob) runningJob {
	list := *h
	first := list[0]
	list[0] = list[len(list)-1]
	list = list[:len(list)-1]
	for i := 0; ; {
		least := i
		for below := 2*i + 1; below <= 2*i+2 && below < len(list); below++ {
			if list[below].endsBefore(list[least]) {
				least = below
			}
		}

		if least == i {
			break
		}

		list[i], list[least] = list[least], list[i]
		i = least
	}

	*h = list

	return first
}

func (r runningJob) endsBefore(b runningJob) bool {
	return r.end < b.end || r.end == b.end && r.job < b.job
}
