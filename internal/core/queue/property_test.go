package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/gate"
)

// The checks repeat the promises of the package comment in other words and with other code.

// worlds is how many of each kind there are, with seeds from 1 on, and how many jobs come in each.
func worlds() (seeds uint64, jobs int) {
	return uint64(gate.SoakCount(100, 4)), gate.SoakCount(5000, 250)
}

// longest time that a job runs in these worlds.
const longest = 3 * time.Hour

// tally counts events, so that a world without contention does not pass as a proof.
type tally struct {
	starts, impatient, ahead, together, passed, inTimes int
	longest                                             time.Duration // that a job runs
}

// before is the order of the package comment.
func before(q Input, a, b job.Ticket) bool {
	holds := func(uid uint32) int {
		on := map[gpu.UUID]bool{}
		for _, l := range q.Held {
			for _, id := range l.Devices {
				if l.UID == uid {
					on[id] = true
				}
			}
		}
		return len(on)
	}
	if q.Passed[a.Key()] != q.Passed[b.Key()] {
		return q.Passed[b.Key()]
	}
	const halfADay = int64(12 * time.Hour)
	oldA, oldB := q.Now-a.Arrival > halfADay, q.Now-b.Arrival > halfADay
	switch {
	case oldA != oldB:
		return oldA
	case !oldA && holds(a.UID) != holds(b.UID):
		return holds(a.UID) < holds(b.UID)
	}
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.UID, b.UID), cmp.Compare(a.ID, b.ID)) < 0
}

// competing lists the sixteen earliest tickets of each user.
func competing(q Input) []job.Ticket {
	var in []job.Ticket
	for _, t := range q.Tickets {
		earlier := 0
		for i := range q.Tickets {
			if o := &q.Tickets[i]; o.UID == t.UID && (o.Arrival < t.Arrival || o.Arrival == t.Arrival && o.ID < t.ID) {
				earlier++
			}
		}
		if earlier < 16 {
			in = append(in, t)
		}
	}
	return in
}

// safe: a device never has shares and an exclusive lease, and never more promised and used without a lease than it has.
func safe(w *world, s start) {
	for _, id := range s.on {
		d, _, _ := w.machine.FindDevice(id)
		var foreign, promised gpu.Bytes
		for _, p := range w.machine.ProcessesOn(id) {
			if *p.UID == 4000 {
				foreign += *p.Memory
			}
		}
		for _, l := range s.q.Held {
			if !l.Holds(id) {
				continue
			}
			promised += l.Share
			if (l.Share > 0) != (s.task.spec.Share > 0) || l.Share == 0 {
				w.t.Errorf("%+v starts on %s together with %+v", s.task.ticket, id, l)
			}
		}
		left := *d.MemoryTotal - max(512*gpu.MiB, *d.MemoryTotal/20) - foreign - promised - s.task.spec.Share
		if s.task.spec.Share > 0 && left < 0 || s.task.spec.Share == 0 && foreign > 256*gpu.MiB || *d.MemoryTotal-foreign < s.task.spec.Memory {
			w.t.Errorf("%+v starts on %s, where %s are promised and strangers use %s of %s", s.task.ticket, id, promised, foreign, d.MemoryTotal)
		}
	}
}

// fair: no ticket starts before an earlier one that asks for no more and could have had the same devices.
func fair(w *world, s start) {
	x := s.task.ticket
	for _, t := range competing(s.q) {
		modest := t.Count <= x.Count && (t.Share > 0) == (x.Share > 0) && t.Share <= x.Share && t.Memory <= x.Memory &&
			(x.Timeout == 0 || t.Timeout > 0 && t.Timeout <= x.Timeout)
		could := !slices.ContainsFunc(s.on, func(id gpu.UUID) bool { return !slices.Contains(t.Devices, id) })
		if t.ID != x.ID && modest && could && before(s.q, t, x) {
			w.t.Errorf("%+v starts at %d before %+v", x, s.q.Now, t)
		}
	}
}

func has(r pick.Room, t job.Ticket) bool {
	if t.Share > 0 {
		return r.Share != nil && *r.Share >= t.Share
	}
	return r.Whole && (t.Memory == 0 || *r.Free >= t.Memory)
}

// kept: a start breaks no reservation of a ticket ahead of it. The lease ends before a certain one lapses, or leaves
// room for both shares; a guessed one gets no lease that takes its room. What tickets ahead of the reserved one take, and
// until when, is no matter of the later ticket.
func (n *tally) kept(w *world, s start) {
	x := s.task.ticket
	rooms := pick.RoomByDevice(w.machine, append(slices.Clone(s.q.Held), job.Lease{ID: "x", UID: x.UID, Devices: s.on, Share: x.Share, PID: 1}), w.context(0))
	for _, t := range competing(s.q) {
		r, reserved := s.q.Reserved[t.Key()]
		if !reserved || t.ID == x.ID || !before(s.q, t, x) {
			continue
		}
		for _, id := range r.Devices {
			if !slices.Contains(s.on, id) || t.Share > 0 && has(rooms[id], t) {
				continue
			}
			n.ahead++
			if !r.Certain || x.Timeout == 0 || s.q.Boot+int64(x.Timeout) > r.Until {
				w.t.Errorf("%+v starts on %v at %d: %+v, which is before it, has reserved %+v", x, s.on, s.q.Boot, t, r)
				return
			}
		}
		n.together++
	}
}

// inTime: where nothing happens that the leases do not say, a ticket with a certain reservation starts before that lapses,
// unless one ahead of it took one of the devices.
func (n *tally) inTime(w *world, s start) {
	x := s.task.ticket
	for _, t := range competing(s.q) {
		r, reserved := s.q.Reserved[t.Key()]
		taken := slices.ContainsFunc(r.Devices, func(id gpu.UUID) bool { return slices.Contains(s.on, id) })
		switch {
		case !reserved || !r.Certain || t.ID == x.ID:
		case taken && before(s.q, x, t):
			w.promised[t.ID] = promise{r.Since, unknownEnd}
		case w.promised[t.ID].since != r.Since:
			w.promised[t.ID] = promise{r.Since, r.Until}
		}
	}
	if p, was := w.promised[x.ID]; was && p.until < unknownEnd {
		if n.inTimes++; s.q.Boot > p.until {
			w.t.Errorf("%+v starts at %d, and was to start until %d", x, s.q.Boot, p.until)
		}
	}
}

// promise is a certain reservation that was seen, with the time until which its ticket starts.
type promise struct{ since, until int64 }

// sameInAnyOrder: the order of the input does not matter.
func sameInAnyOrder(w *world, s start) {
	if w.r.IntN(8) > 0 {
		return
	}
	want := w.answer(s.q, w.machine, s.task)
	q, m := s.q, w.machine
	q.Tickets, q.Held = shuffled(w.r, q.Tickets), shuffled(w.r, q.Held)
	m.Devices, m.Processes = shuffled(w.r, m.Devices), shuffled(w.r, m.Processes)
	for i := range q.Tickets {
		q.Tickets[i].Devices = shuffled(w.r, q.Tickets[i].Devices)
	}
	if got := w.answer(q, m, s.task); got != want {
		w.t.Errorf("in another order %s becomes %s", want, got)
	}
}

func (w *world) answer(q Input, m gpu.Machine, t *task) string {
	in := w.context(t.ticket.UID)
	q.Rooms = pick.RoomByDevice(m, q.Held, in)
	next, ok := NextTicket(q)
	kept := map[gpu.UUID]string{}
	in.Kept = KeptDevices(q, t.ticket.ID, t.ticket.UID)
	for id, by := range in.Kept {
		kept[id] = by.ID
	}
	plan, refusal := pick.Place(t.spec, m, q.Held, in)
	var order []string
	for _, o := range OrderTickets(q) {
		order = append(order, o.ID)
	}
	data, err := json.Marshal([]any{order, next.ID, ok, kept, plan, refusal})
	if err != nil {
		w.t.Error(err)
	}
	return string(data)
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// bounded sets the deadline of the package comment for tickets older than Patience, and fails where one has passed.
func (n *tally) bounded(w *world) {
	q := w.bareQuestion()
	for _, t := range competing(q) {
		i := slices.IndexFunc(w.waiting, func(o *task) bool { return o.ticket.ID == t.ID })
		task := w.waiting[i]
		if task.deadline == 0 && q.Now-t.Arrival > max(int64(12*time.Hour), 9*int64(n.longest)) {
			n.impatient++
			older := 0 // no two have the same nanosecond
			for _, o := range q.Tickets {
				older += boolToInt(o.Arrival < t.Arrival)
			}
			task.deadline = w.now + int64(10*(older+1)+1)*int64(n.longest)
		}
		if task.deadline > 0 && w.now > task.deadline {
			w.t.Errorf("%+v waits at %d, which is later than %s: %s after its arrival", t, w.now, time.Duration(task.deadline), time.Duration(q.Now-t.Arrival))
		}
	}
}

// randomSpec is a random job: on most devices or few, whole or shared, with or without an end, with or without
// preferred devices.
func (w *world) randomSpec() job.Spec {
	spec := job.Spec{GPUs: []int{1, 1, 1, 1, 2, 2, 3, 4, 8}[w.r.IntN(9)]}
	if w.r.IntN(2) == 0 {
		spec.Share, spec.GPUs = gpu.Bytes(1+w.r.IntN(20))*gpu.GiB, 1+w.r.IntN(9)/6
	} else if w.r.IntN(3) == 0 {
		spec.Memory = gpu.Bytes(10+w.r.IntN(70)) * gpu.GiB
	}
	switch w.r.IntN(4) {
	case 0:
		for i := range w.machine.Devices {
			if w.r.IntN(2) == 0 {
				spec.Exclude = append(spec.Exclude, fmt.Sprint(i))
			}
		}
	case 1:
		spec.Devices, spec.GPUs = []string{fmt.Sprint(w.r.IntN(len(w.machine.Devices)))}, 0
	}
	if w.r.IntN(2) == 0 {
		spec.Timeout = time.Minute + w.upTo(longest)
	}
	for w.r.IntN(2) == 0 { // preferred devices cost the ticket nothing in the order
		spec.Prefer = append(spec.Prefer, w.machine.Devices[w.r.IntN(len(w.machine.Devices))].UUID)
	}
	return spec
}

// populate lets jobs arrive faster than the machine can run them, as long as not too many wait: few on every other day,
// many on the days between. The first user asks for as much as all others together.
func (w *world) populate(jobs int, each func(*task)) {
	var arrive func()
	arrive = func() {
		crowd := 30
		if w.now/int64(24*time.Hour)%2 == 1 {
			crowd = 5
		}
		if w.changed = len(w.waiting) < crowd; w.changed {
			uid := uint32(1000 + max(0, w.r.IntN(12)-5))
			if task := w.arrive(uid, w.randomSpec(), time.Minute+w.upTo(longest-time.Minute), w.r.Float64()); task != nil {
				each(task)
			}
		}
		if len(w.tasks) < jobs {
			w.in(w.upTo(10*time.Minute), arrive)
		}
	}
	w.in(0, arrive)
}

// In a calm world, without foreign processes and stopped waiters, every job starts within the bound, and every certain
// reservation is met.
func TestNoJobStarves(t *testing.T) {
	t.Parallel()
	n := &tally{longest: longest}
	seeds, jobs := worlds()
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		w := newWorld(t, seed, 24, 24, 40, 40, 80, 80, 80, 80)
		w.checks = []func(*world, start){safe, fair, n.kept, n.inTime, sameInAnyOrder}
		w.populate(2*jobs, func(*task) { n.bounded(w) })
		w.run()
		w.finish(n)
	}
	if n.impatient < gate.SoakCount(10, 3) || n.ahead < gate.SoakCount(10, 4) || n.together < gate.SoakCount(100, 50) || n.inTimes < gate.SoakCount(5, 2) {
		t.Errorf("%+v: that proves little", n)
	}
}

func (w *world) finish(n *tally) {
	if len(w.waiting) > 0 && !w.t.Failed() {
		w.t.Errorf("%d wait for ever, first %+v", len(w.waiting), w.waiting[0].ticket)
	}
	n.starts += w.starts
	if w.t.Failed() {
		w.t.Logf("seed %d, %d starts until %s, %+v", w.seed, w.starts, time.Duration(w.now), n)
	}
}

// While a user is alone and each end is known, what passes the first ticket that waits never delays it: the time of its
// plan does not move away for as long as it is first.
func TestPlanIsKept(t *testing.T) {
	t.Parallel()
	passed := 0
	for seed := uint64(1); seed <= uint64(gate.SoakCount(10, 4)) && !t.Failed(); seed++ {
		w := newWorld(t, seed, 24, 24, 40, 40, 80, 80, 80, 80)
		var first string
		var until int64
		w.checks = []func(*world, start){safe, func(w *world, s start) {
			walk := s.q.newWalk()
			walk.firstStartable()
			if len(walk.keeps) == 0 || !walk.keeps[0].planned {
				first = ""
				return
			}
			k := walk.keeps[0]
			if first == k.ticket.ID && k.Until > until {
				w.t.Errorf("seed %d: %s was to start at %d, and is to start at %d", seed, first, until, k.Until)
			}
			first, until = k.ticket.ID, k.Until
			passed++
		}}
		for range 200 {
			w.in(w.upTo(12*time.Hour), func() {
				spec := w.randomSpec()
				spec.Timeout = time.Minute + w.upTo(longest)
				w.arrive(1000, spec, time.Minute+w.upTo(longest), w.r.Float64())
			})
		}
		w.run()
		if len(w.waiting) > 0 {
			t.Errorf("seed %d: %d wait for ever", seed, len(w.waiting))
		}
	}
	if passed < 100 {
		t.Errorf("%d tickets passed a plan: that proves little", passed)
	}
}

// The bound holds in a hard case. User 1000 always holds device 1, so tickets of users who hold none are ahead of its
// ticket for device 0. User 1009 wants both devices, while there is always a ticket for one.
func TestTheBoundIsMet(t *testing.T) {
	w := newWorld(t, 3, 24, 24)
	n := &tally{longest: time.Hour}
	ask := func(at time.Duration, uid uint32, spec job.Spec) {
		w.in(at, func() {
			w.arrive(uid, spec, time.Hour, 0.5)
			n.bounded(w)
		})
	}
	only := func(device string) job.Spec { return job.Spec{Devices: []string{device}} }
	const days = 6
	for hour := range days * 24 {
		at := time.Duration(hour) * time.Hour
		ask(at, 1000, only("1"))
		for uid := range uint32(3) {
			ask(at+time.Duration(uid)*time.Minute, 1001+uid, only("0"))
		}
	}
	ask(30*time.Minute, 1000, only("0"))
	ask(20*time.Hour+30*time.Minute, 1009, job.Spec{GPUs: 2})
	w.run()
	w.finish(n)
	if n.impatient < 10 {
		t.Errorf("%+v: that proves little", n)
	}
}

// In a rough world foreign processes come and go and waiters stop. The promises about devices and order still hold.
func TestNeverTooMuchAndNeverOutOfOrder(t *testing.T) {
	t.Parallel()
	n := &tally{longest: longest}
	seeds, jobs := worlds()
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		w := newWorld(t, seed, 24, 24, 40, 40, 80, 80, 80, 80)
		w.checks = []func(*world, start){safe, fair, n.kept, sameInAnyOrder, func(_ *world, s start) { n.passed += boolToInt(len(s.q.Passed) > 0) }}
		w.populate(jobs, func(task *task) {
			if w.r.IntN(50) == 0 {
				task.stopped = true
				w.in(w.upTo(5*time.Hour), func() { task.stopped = false })
			}
			if w.r.IntN(10) == 0 {
				w.visit(100_000+len(w.tasks), w.upTo(10*time.Hour))
			}
		})
		w.run()
		w.finish(n)
	}
	if n.ahead < gate.SoakCount(5, 2) || n.together < gate.SoakCount(100, 50) || n.passed < gate.SoakCount(100, 50) {
		t.Errorf("%+v: that proves little", n)
	}
}
