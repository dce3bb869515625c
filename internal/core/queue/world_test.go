package queue

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// TestMain: what these tests make is small and soon over, and to collect it took a third of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// world is a machine with users, jobs and foreign processes, in memory. Time advances from event to event; after each
// one, tickets start until none is next.
type world struct {
	t         *testing.T
	seed      uint64
	r         *rand.Rand
	now       int64 // ns since the world began
	machine   gpu.Machine
	tasks     []*task
	waiting   []*task
	running   []*task
	strangers []*stranger
	turn      Turn
	events    agenda
	checks    []func(w *world, s start)
	starts    int
	lapses    map[string]int64   // by ticket: the event at the end of its reservation
	promised  map[string]promise // by ticket, as inTime has seen them
	changed   bool               // since the last settle, something that may let a ticket start
}

// task is one job from its arrival to its end.
type task struct {
	ticket   job.Ticket
	spec     job.Spec
	lasts    time.Duration
	uses     float64 // part of its promise, or of its devices, that it uses in the second half of its time
	half     bool
	lease    job.Lease
	stopped  bool  // its waiter does not act
	deadline int64 // until which the bound says that it starts; 0 before the bound applies
}

// stranger is a process without a lease.
type stranger struct {
	pid  int
	on   int
	uses gpu.Bytes
}

// start is one start as the checks see it: the question, the job, and its devices.
type start struct {
	q    Input
	task *task
	on   []gpu.UUID
}

const (
	birth = int64(1_800_000_000) * int64(time.Second) // wall clock of the world's first moment
	boot  = 3 * int64(time.Hour)                      // CLOCK_BOOTTIME then
)

type event struct {
	at    int64
	order int // of creation, so that equal times have an order
	do    func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(a[i].at, a[j].at), cmp.Compare(a[i].order, a[j].order)) < 0
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)   { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newWorld(t *testing.T, seed uint64, sizes ...gpu.Bytes) *world {
	w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 4)), lapses: map[string]int64{}, promised: map[string]promise{}}
	for i, size := range sizes {
		w.machine.Devices = append(w.machine.Devices, gpu.Device{Index: i, UUID: gpu.UUID(fmt.Sprintf("GPU-%02d", i)), Vendor: gpu.NVIDIA,
			Name: "NVIDIA A100", PCI: fmt.Sprintf("0000:%02x:00.0", i), MemoryTotal: new(size * gpu.GiB)})
	}
	return w
}

func (w *world) in(d time.Duration, do func()) {
	heap.Push(&w.events, event{w.now + int64(d), len(w.tasks)*8 + w.events.Len(), do})
}

// upTo is a random time below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d))) }

func (w *world) run() {
	for len(w.events) > 0 && !w.t.Failed() {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.changed = true
		e.do()
		if w.changed {
			w.settle()
		}
	}
}

// settle lets all waiters act that are not stopped.
func (w *world) settle() {
	for !w.t.Failed() {
		w.measure()
		q := w.question()
		for _, task := range w.waiting {
			if _, passed := w.turn.Passed[task.ticket.Key()]; passed && !task.stopped {
				w.turn, _, _ = w.turn.DecideNext(q, task.ticket.Key(), q.Tickets, PassOverAfter)
			}
		}
		var next job.Ticket
		var ok bool
		if w.turn, next, ok = w.turn.DecideNext(q, "", q.Tickets, PassOverAfter); !ok {
			w.lapse()
			return
		}
		i := slices.IndexFunc(w.waiting, func(t *task) bool { return t.ticket.ID == next.ID })
		if w.waiting[i].stopped {
			if since, waits := w.turn.Next[next.Key()]; waits {
				w.in(time.Duration(since+int64(PassOverAfter)-q.Boot), func() {})
			}
			return
		}
		w.start(w.turn.ApplyTo(q), w.waiting[i])
	}
}

// lapse lets all waiters act again when a reservation has lapsed.
func (w *world) lapse() {
	for id, r := range w.turn.Reserved {
		if w.lapses[id] != r.Until {
			w.lapses[id] = r.Until
			w.in(time.Duration(r.Until-boot-w.now+1), func() {})
		}
	}
}

// question is the state that a waiter sees now.
func (w *world) question() Input {
	q := w.bareQuestion()
	q.Rooms = pick.RoomByDevice(w.machine, q.Held, w.context(0))
	pick.ForecastRooms(q.Rooms, w.machine, q.Held, w.context(0), pick.Ends{Now: q.Boot})
	return q
}

// bareQuestion is the question without the machine. Arrivals are of the wall clock.
func (w *world) bareQuestion() Input {
	q := Input{Now: birth + w.now, Boot: boot + w.now}
	for _, task := range w.waiting {
		q.Tickets = append(q.Tickets, task.ticket)
	}
	for _, task := range w.running {
		q.Held = append(q.Held, task.lease)
	}
	return q
}

func (w *world) context(uid uint32) pick.Context {
	in := pick.Context{UID: uid, Waiting: true, Tolerate: pick.DefaultTolerance(), Trees: map[string][]int{}}
	for _, task := range w.running {
		in.Trees[task.lease.ID] = []int{task.lease.PID}
	}
	return in
}

// measure sets the machine's readings for this moment.
func (w *world) measure() {
	w.machine.Processes = nil
	used := make([]gpu.Bytes, len(w.machine.Devices))
	on := func(i, pid int, uid uint32, size gpu.Bytes) {
		used[i] += size
		w.machine.Processes = append(w.machine.Processes, gpu.Process{PID: pid, GPU: w.machine.Devices[i].UUID, Memory: new(size), UID: new(uid), Kind: gpu.ComputeProcess})
	}
	for _, s := range w.strangers {
		on(s.on, s.pid, 4000, s.uses)
	}
	for _, task := range w.running {
		for i, d := range w.machine.Devices {
			if task.half && task.lease.Holds(d.UUID) {
				size := *d.MemoryTotal * 9 / 10
				if task.lease.Share > 0 {
					size = task.lease.Share
				}
				on(i, task.lease.PID, task.lease.UID, gpu.Bytes(float64(size)*task.uses))
			}
		}
	}
	for i := range w.machine.Devices {
		w.machine.Devices[i].MemoryUsed = new(used[i])
		if used[i] > *w.machine.Devices[i].MemoryTotal {
			w.t.Errorf("%s of %s are used on device %d", used[i], w.machine.Devices[i].MemoryTotal, i)
		}
	}
}

// arrive makes a ticket of the spec; nil when the machine can never serve it.
func (w *world) arrive(uid uint32, spec job.Spec, lasts time.Duration, uses float64) *task {
	devices := pick.CapableDevices(spec, w.machine, w.context(uid))
	if len(devices) < pick.DeviceCount(spec) {
		return nil
	}
	task := &task{spec: spec, lasts: lasts, uses: uses}
	task.ticket = job.Ticket{ID: fmt.Sprintf("t%05d", len(w.tasks)), UID: uid, Arrival: birth + w.now, Devices: devices, Count: pick.DeviceCount(spec),
		Memory: spec.Memory, Share: spec.Share, Timeout: spec.Timeout}
	w.tasks = append(w.tasks, task)
	w.waiting = append(w.waiting, task)
	return task
}

// start claims devices as the waiter that is next does.
func (w *world) start(q Input, started *task) {
	in := w.context(started.ticket.UID)
	in.Kept = KeptDevices(q, started.ticket.ID, started.ticket.UID)
	plan, refusal := pick.Place(started.spec, w.machine, q.Held, in)
	if refusal != nil {
		w.t.Errorf("%+v is next, but %v: %+v", started.ticket, refusal, refusal.Reasons)
		return
	}
	s := start{q: q, task: started}
	for _, g := range plan.Devices {
		s.on = append(s.on, g.UUID)
	}
	for _, check := range w.checks {
		check(w, s)
	}
	w.starts++
	started.lease = job.Lease{ID: "l" + started.ticket.ID, UID: started.ticket.UID, Devices: s.on, Share: started.spec.Share, PID: 10_000 + w.starts, Since: time.Unix(0, birth+w.now), SinceBoot: q.Boot}
	if started.spec.Timeout > 0 {
		started.lease.Until = q.Boot + int64(started.spec.Timeout)
		started.lasts = min(started.lasts, started.spec.Timeout)
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(t *task) bool { return t == started })
	w.running = append(w.running, started)
	w.in(started.lasts/2, func() { started.half, w.changed = true, false })
	w.in(started.lasts, func() { w.running = slices.DeleteFunc(w.running, func(t *task) bool { return t == started }) })
}

// visit starts a foreign process that uses part of the memory that is not promised.
func (w *world) visit(pid int, stays time.Duration) {
	i := w.r.IntN(len(w.machine.Devices))
	d := w.machine.Devices[i]
	free := *d.MemoryTotal
	for _, task := range w.running {
		if task.lease.Holds(d.UUID) {
			if task.lease.Share == 0 {
				return // what an exclusive lease uses has no bound
			}
			free -= task.lease.Share
		}
	}
	for _, s := range w.strangers {
		if s.on == i {
			free -= s.uses
		}
	}
	if free <= 0 {
		return
	}
	s := &stranger{pid: pid, on: i, uses: gpu.Bytes(w.r.Int64N(int64(free)))}
	w.strangers = append(w.strangers, s)
	w.in(stays, func() { w.strangers = slices.DeleteFunc(w.strangers, func(o *stranger) bool { return o == s }) })
}
