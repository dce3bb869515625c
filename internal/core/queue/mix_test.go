package queue

import (
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

// mix is a random load of several users on one machine.
type mix struct {
	devices int
	longest time.Duration // of a job
	jobs    []mixed
}

// mixed is one job of a mix.
type mixed struct {
	at, lasts, timeout time.Duration
	uid                uint32
	count              int
	share              gpu.Bytes
	only               []gpu.UUID
}

// mixOf makes a mix. The machine, the users, and the parts of jobs for several devices and with an end differ.
func mixOf(seed uint64) mix {
	r := rand.New(rand.NewPCG(seed, 12))
	m := mix{devices: []int{1, 2, 4, 4, 8, 8, 8, 16}[r.IntN(8)], longest: []time.Duration{10 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour}[r.IntN(4)]}
	people, wide, ends, shares := 2+r.IntN(6), 0.05+0.35*r.Float64(), r.Float64(), 0.0
	if r.IntN(3) == 0 {
		shares = 0.6 * r.Float64()
	}
	load, jobs := 0.5+1.3*r.Float64(), 24+r.IntN(56)
	work := 0.0 // device time that is requested
	for range jobs {
		j := mixed{uid: 1000 + uint32(min(r.IntN(people), r.IntN(people))), count: 1, lasts: time.Second + time.Duration(r.Float64()*r.Float64()*float64(m.longest-time.Second))}
		switch {
		case r.Float64() < wide:
			j.count = 1 + r.IntN(m.devices)
			if r.IntN(3) == 0 {
				j.count = m.devices
			}
		case r.Float64() < shares:
			j.share = gpu.Bytes(2+r.IntN(70)) * gpu.GiB
		}
		if r.Float64() < ends {
			j.timeout = j.lasts + time.Duration(r.Float64()*float64(m.longest-j.lasts))
		}
		if r.IntN(5) == 0 { // any of half of the devices, as those of one model
			for i := r.IntN(2) * m.devices / 2; len(j.only) < max(j.count, (m.devices+1)/2); i++ {
				j.only = append(j.only, device(i%m.devices))
			}
		}
		work += float64(j.lasts) * float64(j.count)
		m.jobs = append(m.jobs, j)
	}
	span := work / float64(m.devices) / load
	if r.IntN(4) == 0 {
		span /= 20 // nearly all arrive together
	}
	for i := range m.jobs {
		m.jobs[i].at = time.Duration(r.Float64() * span)
	}
	slices.SortStableFunc(m.jobs, func(a, b mixed) int { return int(a.at - b.at) })
	return m
}

func device(i int) gpu.UUID { return gpu.UUID([]byte{'A' + byte(i)}) }

// outcome is the result of a mix.
type outcome struct {
	end  time.Duration // of the last job
	idle time.Duration // device time that reservations kept from tickets that could have used it
	wait map[string]time.Duration
	late []string // tickets that started after the bound
}

// replay is a machine that runs a mix.
type replay struct {
	mix
	outcome
	now      time.Duration
	arrived  int
	waiting  []job.Ticket
	held     []job.Lease
	ends     map[string]time.Duration // by lease
	deadline map[string]time.Duration // by ticket, once the bound applies
	turn     Turn
	without  bool // no reservations
}

const capacity = 76 * gpu.GiB

func (p *replay) question() Input {
	q := Input{Now: birth + int64(p.now), Boot: boot + int64(p.now), Tickets: p.waiting, Held: p.held, Rooms: map[gpu.UUID]pick.Room{}}
	for i := range p.devices {
		free, whole := capacity, true
		for _, l := range p.held {
			if l.Holds(device(i)) {
				free, whole = free-l.Share, false
				if l.Share == 0 {
					free = -1
				}
			}
		}
		room := pick.Room{Whole: whole, Free: new(capacity)}
		if free >= 0 {
			room.Share = new(free)
		}
		q.Rooms[device(i)] = room
	}
	return q
}

// settle starts all that may start now.
func (p *replay) settle() {
	for {
		q := p.question()
		if p.without {
			p.turn = p.refuse(p.turn)
		}
		var next job.Ticket
		var ok bool
		if p.turn, next, ok = p.turn.DecideNext(q, "", q.Tickets, PassOverAfter); !ok {
			return
		}
		p.start(p.turn.ApplyTo(q), next)
	}
}

// refuse is a turn under which no reservation ever begins.
func (p *replay) refuse(t Turn) Turn {
	t.Rest = map[gpu.UUID]int64{}
	for i := range p.devices {
		t.Rest[device(i)] = boot + int64(p.now) + int64(maxPause) - 1
	}
	return t
}

func (p *replay) start(q Input, t job.Ticket) {
	w := q.newWalk()
	w.firstStartable()
	var on []gpu.UUID
	for _, id := range t.Devices {
		if w.hasRoom(t, id) && w.blockingReservation(t, id) == nil && len(on) < t.Count {
			on = append(on, id)
		}
	}
	l := job.Lease{ID: "l" + t.ID, UID: t.UID, Devices: on, Share: t.Share, SinceBoot: q.Boot}
	if t.Timeout > 0 {
		l.Until = q.Boot + int64(t.Timeout)
	}
	p.held = append(p.held, l)
	j := p.jobs[number(t.ID)]
	p.ends[l.ID], p.wait[t.ID] = p.now+j.lasts, p.now-j.at
	if by, bounded := p.deadline[t.ID]; bounded && p.now > by {
		p.late = append(p.late, t.ID)
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(o job.Ticket) bool { return o.ID == t.ID })
}

// next is the moment of the next event; done when there is none.
func (p *replay) next() (at time.Duration, done bool) {
	at = unknownEnd
	if p.arrived < len(p.jobs) {
		at = p.jobs[p.arrived].at
	}
	for _, end := range p.ends {
		at = min(at, end)
	}
	if len(p.waiting) > 0 {
		for _, r := range p.turn.Reserved {
			at = min(at, time.Duration(r.Until-boot)+1)
		}
	}
	return at, at == unknownEnd
}

// to advances to the moment, and counts what reservations keep idle until then.
func (p *replay) to(at time.Duration) {
	q := Input{}
	if len(p.turn.Reserved) > 0 {
		q = p.question()
	}
	if _, wanted := NextTicket(p.refuse(Turn{}).ApplyTo(q)); wanted {
		w := p.turn.ApplyTo(q)
		walk := w.newWalk()
		walk.firstStartable()
		for _, k := range walk.keeps {
			for _, id := range k.Devices {
				if walk.hasRoom(k.ticket.Ticket, id) || walk.carriesShares(id) {
					p.idle += at - p.now
				}
			}
		}
	}
	p.now = at
}

func (p *replay) arrive() {
	j := p.jobs[p.arrived]
	t := job.Ticket{ID: fmt.Sprint(p.arrived), UID: j.uid, Arrival: birth + int64(j.at), Devices: j.only, Count: j.count, Share: j.share, Timeout: j.timeout}
	if t.Devices == nil {
		for i := range p.devices {
			t.Devices = append(t.Devices, device(i))
		}
	}
	p.waiting = append(p.waiting, t)
	p.arrived++
}

// bound sets the deadlines of the package comment.
func (p *replay) bound() {
	if len(p.waiting) == 0 || p.now-p.jobs[number(p.waiting[0].ID)].at <= max(Patience, (idleDivisor-1)*p.longest) {
		return // in the order of their arrival
	}
	q := p.question()
	in, _ := q.splitCompeting()
	for _, t := range in {
		age := time.Duration(q.Now - t.Arrival)
		if _, set := p.deadline[t.ID]; set || age <= max(Patience, (idleDivisor-1)*p.longest) {
			continue
		}
		older := 0
		for _, o := range p.waiting {
			older += boolToInt(o.Arrival < t.Arrival)
		}
		p.deadline[t.ID] = p.now + time.Duration(older+1)*idleDivisor*p.longest + p.longest
	}
}

func (m mix) run(without bool) outcome {
	p := &replay{mix: m, without: without, ends: map[string]time.Duration{}, deadline: map[string]time.Duration{}}
	p.wait = map[string]time.Duration{}
	for {
		at, done := p.next()
		if done {
			break
		}
		p.to(at)
		for p.arrived < len(p.jobs) && p.jobs[p.arrived].at <= at {
			p.arrive()
		}
		p.held = slices.DeleteFunc(p.held, func(l job.Lease) bool {
			over := p.ends[l.ID] <= at
			if over {
				delete(p.ends, l.ID)
			}
			return over
		})
		p.settle()
		p.bound()
	}
	p.end = p.now
	for _, t := range p.waiting {
		p.late = append(p.late, t.ID)
	}
	return p.outcome
}

// TestMixes: over random mixes no ticket waits longer than the bound, reservations keep at most a tenth of the
// devices' time idle, and the mixes take at most a tenth longer than without reservations.
func TestMixes(t *testing.T) {
	t.Parallel()
	first, mixes := gate.SoakCount(0, 100), gate.SoakCount(1000, 50) // in which many tickets meet the bound
	var with, without, idle, worst float64
	var wide, alone []time.Duration
	waited, longest := 0, 0.0
	for i := range mixes {
		seed := uint64(first + i) //nolint:gosec // small
		m := mixOf(seed)
		a, b := m.run(false), m.run(true)
		total := float64(a.end) * float64(m.devices)
		with, without, idle = with+total, without+float64(b.end)*float64(m.devices), idle+float64(a.idle)
		worst, longest = max(worst, float64(a.idle)/total), max(longest, float64(a.end)/float64(b.end))
		if len(a.late) > 0 {
			t.Errorf("mix %d: %v start after the bound", seed, a.late)
		}
		if float64(a.idle) > total/idleDivisor+float64(m.devices)*float64(m.longest) { // no pause follows the last reservation
			t.Errorf("mix %d: reservations keep %.1f %% of the devices' time idle", seed, 100*float64(a.idle)/total)
		}
		for i, j := range m.jobs {
			if j.count > m.devices/2 && j.count > 1 {
				wide, alone = append(wide, a.wait[fmt.Sprint(i)]), append(alone, b.wait[fmt.Sprint(i)])
			}
			waited += boolToInt(a.wait[fmt.Sprint(i)] > max(Patience, (idleDivisor-1)*m.longest))
		}
	}
	if idle > with/idleDivisor {
		t.Errorf("reservations keep %.1f %% of all devices' time idle", 100*idle/with)
	}
	if with > without*1.1 {
		t.Errorf("with reservations the mixes take %.1f %% longer", 100*(with/without-1))
	}
	slices.Sort(wide)
	slices.Sort(alone)
	at := func(list []time.Duration, part float64) time.Duration {
		return list[int(part*float64(len(list)-1))].Round(time.Minute)
	}
	t.Logf("device time: %+.2f %% against no reservations, in one mix at most %+.1f %%; kept idle %.2f %%, in one mix at most %.1f %%",
		100*(with/without-1), 100*(longest-1), 100*idle/with, 100*worst)
	t.Logf("%d requests for more than half of the devices wait p50 %s, p99 %s, at most %s; without reservations %s, %s, %s; the bound counted for %d tickets",
		len(wide), at(wide, .5), at(wide, .99), at(wide, 1), at(alone, .5), at(alone, .99), at(alone, 1), waited)
	if waited < mixes/10 || idle == 0 {
		t.Errorf("the bound counted for %d tickets only, and %.0f ns were kept idle: that proves little", waited, idle)
	}
}
