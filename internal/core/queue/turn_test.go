package queue

import (
	"math"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// convoy is a machine with one free and one leased device, on which a ticket of uid 1 waits for both, and one of uid 2,
// "small", for the free one. The first is older by age.
func convoy(age time.Duration) Input {
	q := Input{Now: int64(1_000_000 * time.Hour), Boot: int64(1000 * time.Hour),
		Rooms: map[gpu.UUID]pick.Room{"GPU-0": {Whole: true}, "GPU-1": {}},
		Held:  []job.Lease{{ID: "held", UID: 3, Devices: []gpu.UUID{"GPU-1"}, SinceBoot: int64(time.Hour)}}}
	q.Tickets = []job.Ticket{
		{ID: "wide", UID: 1, Arrival: q.Now - int64(age), Devices: []gpu.UUID{"GPU-0", "GPU-1"}, Count: 2},
		{ID: "small", UID: 2, Arrival: q.Now - 1, Devices: []gpu.UUID{"GPU-0"}, Count: 1},
	}
	return q
}

// until counts the time until the ticket may start.
func until(t *testing.T, q Input, turn Turn, id string) (waited time.Duration) {
	t.Helper()
	const step = time.Minute
	for ; waited < 1000*time.Hour; waited += step {
		var next job.Ticket
		var ok bool
		if turn, next, ok = turn.DecideNext(q, "", q.Tickets, PassOverAfter); ok && next.ID == id {
			return waited
		}
		q.Boot, q.Now = q.Boot+int64(step), q.Now+int64(step)
	}
	return waited
}

// TestForgedReservation: all users can write the record. A reservation that the rules cannot have made is dropped, and
// none lasts longer than the ticket is old.
func TestForgedReservation(t *testing.T) {
	const age = 8 * time.Hour
	q := convoy(age)
	boot, hours := q.Boot, func(n int) int64 { return int64(n) * int64(time.Hour) }
	set := []gpu.UUID{"GPU-0", "GPU-1"}
	for name, c := range map[string]struct {
		r    Reservation
		most time.Duration
	}{
		"a real one":            {Reservation{Since: boot - hours(1), Seen: boot, Until: boot, Price: 4}, step(0)},
		"for ever":              {Reservation{Since: boot - 1, Seen: boot, Until: math.MaxInt64, Price: 1}, 0},
		"for a year":            {Reservation{Since: boot - 1, Seen: boot, Until: boot + hours(9000), Price: 4}, 0},
		"at no price":           {Reservation{Since: boot - 1, Seen: boot, Until: boot + hours(9000)}, 0},
		"at a negative price":   {Reservation{Since: boot - 1, Seen: boot, Until: boot + hours(9000), Price: -1}, 0},
		"at no number":          {Reservation{Since: boot - 1, Seen: boot, Until: boot + hours(9000), Price: math.NaN()}, 0},
		"from the future":       {Reservation{Since: boot + hours(1), Seen: boot, Until: boot + hours(2), Price: 1}, 0},
		"seen in the future":    {Reservation{Since: boot - 1, Seen: boot + hours(1), Until: boot + hours(1), Price: 1}, 0},
		"older than the ticket": {Reservation{Since: boot - hours(100), Seen: boot, Until: boot + hours(1), Price: 1}, 0},
		"before all time":       {Reservation{Since: math.MinInt64, Seen: boot, Until: boot + hours(1), Price: 1}, 0},
		"of a device twice":     {Reservation{Devices: []gpu.UUID{"GPU-0", "GPU-0"}, Since: boot, Seen: boot, Until: boot + hours(1), Price: 1}, 0},
		"of one device":         {Reservation{Devices: set[:1], Since: boot, Seen: boot, Until: boot + hours(1), Price: 1}, 0},
		"the longest":           {Reservation{Since: boot, Seen: boot, Until: boot + int64(age), Price: 1}, age},
	} {
		for _, certain := range []bool{false, true} {
			if c.r.Certain = certain; c.r.Devices == nil {
				c.r.Devices = set
			}
			rest := map[gpu.UUID]int64{"GPU-0": boot + hours(10)} // otherwise the ticket would reserve them now
			got := until(t, q, Turn{Reserved: map[string]Reservation{"1/wide": c.r}, Rest: rest}, "small")
			if got > c.most+2*time.Minute || c.most > 0 && got < c.most {
				t.Errorf("%s: the other ticket waits %s, want %s", name, got, c.most)
			}
		}
	}
}

// TestForgedPause: no pause follows a reservation that the rules cannot have made.
func TestForgedPause(t *testing.T) {
	q := convoy(8 * time.Hour)
	for _, c := range []struct {
		devices []gpu.UUID
		pauses  bool
	}{{[]gpu.UUID{"GPU-0", "GPU-1"}, true}, {[]gpu.UUID{"GPU-0"}, false}, {[]gpu.UUID{"GPU-1", "GPU-1"}, false}} {
		r := Reservation{Devices: c.devices, Since: q.Boot - int64(2*time.Hour), Seen: q.Boot - 1, Until: q.Boot - int64(time.Hour), Price: 4}
		turn, _, _ := Turn{Reserved: map[string]Reservation{"1/wide": r}}.DecideNext(q, "", q.Tickets, PassOverAfter)
		if got := turn.Rest["GPU-0"] != 0; got != c.pauses {
			t.Errorf("a pause after a reservation of %v: %v, want %v", c.devices, got, c.pauses)
		}
	}
}

func step(n int) time.Duration { return time.Duration(n) * time.Minute }

// TestForgedRest: a pause that no reservation can have caused lasts a week, however often the record is read.
func TestForgedRest(t *testing.T) {
	q := convoy(8 * time.Hour)
	q.Held[0].SinceBoot = q.Boot - int64(time.Hour)
	for _, rest := range []int64{math.MaxInt64, q.Boot + int64(80*24*time.Hour)} {
		turn, now := Turn{Rest: map[gpu.UUID]int64{"GPU-0": rest, "GPU-1": rest}}, q
		now.Tickets = now.Tickets[:1]
		for turn.Rest["GPU-0"] != 0 && now.Boot < q.Boot+int64(1000*time.Hour) {
			turn, _, _ = turn.DecideNext(now, "", now.Tickets, PassOverAfter)
			now.Boot, now.Now = now.Boot+int64(time.Hour), now.Now+int64(time.Hour)
		}
		if lasted := time.Duration(now.Boot - q.Boot); lasted > 7*24*time.Hour+2*time.Hour {
			t.Errorf("it lasts %s", lasted)
		}
	}
}

// TestSameIDOfAnotherUser: a ticket with the ID of another user's ticket takes over nothing of its record.
func TestSameIDOfAnotherUser(t *testing.T) {
	q := convoy(8 * time.Hour)
	q.Held[0].SinceBoot = q.Boot - int64(time.Hour)
	q.Tickets[1].ID = "wide" // of uid 2
	r := Reservation{Devices: []gpu.UUID{"GPU-0", "GPU-1"}, Since: q.Boot - 1, Seen: q.Boot, Until: q.Boot + int64(time.Hour), Price: 4}
	turn := Turn{Reserved: map[string]Reservation{"1/wide": r}}
	turn, _, ok := turn.DecideNext(q, "2/wide", q.Tickets, PassOverAfter)
	if _, kept := turn.Reserved["1/wide"]; ok || !kept || len(turn.Reserved) != 1 {
		t.Errorf("uid 1's reservation is taken over: %v, %+v", ok, turn)
	}
	q = Input{Boot: 100, Rooms: map[gpu.UUID]pick.Room{"GPU-0": {Whole: true}}}
	for uid := range uint32(2) {
		q.Tickets = append(q.Tickets, job.Ticket{ID: "same", UID: uid, Arrival: int64(uid), Devices: []gpu.UUID{"GPU-0"}, Count: 1})
	}
	turn, next, _ := Turn{}.DecideNext(q, "1/same", q.Tickets, PassOverAfter)
	if next.UID != 0 {
		t.Fatalf("%+v is next", next)
	}
	q.Boot += int64(PassOverAfter)
	if turn, next, _ = turn.DecideNext(q, "1/same", q.Tickets, PassOverAfter); next.UID != 1 || len(turn.Passed) != 1 || turn.Passed["0/same"] == 0 {
		t.Errorf("%+v is next, %+v: a ticket with another's id keeps the other's turn", next, turn)
	}
}

// TestForgedTimes: whatever the record contains, a ticket with a stopped owner holds up others for Overdue, and a
// caller's own ticket is not passed over.
func TestForgedTimes(t *testing.T) {
	start := int64(time.Hour)
	for _, at := range []int64{math.MinInt64, math.MinInt64 + start, -1, 0, start, start + 1, start + int64(PassOverAfter), math.MaxInt64} {
		q := Input{Boot: start, Rooms: map[gpu.UUID]pick.Room{"GPU-0": {Whole: true}, "GPU-1": {Whole: true}}}
		for uid, id := range []string{"stopped", "polls"} {
			q.Tickets = append(q.Tickets, job.Ticket{ID: id, UID: uint32(uid), Arrival: int64(uid), Devices: []gpu.UUID{"GPU-0"}, Count: 1})
		}
		said := map[string]int64{"0/stopped": at, "1/polls": at}
		for name, turn := range map[string]Turn{"next": {Next: said}, "passed": {Passed: said}, "unsure": {Unsure: said}, "all": {Next: said, Passed: said, Unsure: said}} {
			now, next, tickets := q, job.Ticket{}, []job.Ticket(nil)
			for step := range 2 {
				now.Boot = start + int64(step)*int64(PassOverAfter)
				turn, tickets = turn.AddUnknownDevices(q.Tickets, []gpu.UUID{"GPU-0", "GPU-1"}, now.Boot, PassOverAfter)
				turn, next, _ = turn.DecideNext(now, "1/polls", q.Tickets, PassOverAfter)
			}
			if next.ID != "polls" || len(tickets[0].Devices) != 1 {
				t.Errorf("%s %d: after %s %s is next, and the stopped one keeps %v", name, at, PassOverAfter, next.ID, tickets[0].Devices)
			}
			if name == "passed" {
				now.Boot = start
				if _, next, _ = (Turn{Passed: said}).DecideNext(now, "0/stopped", q.Tickets, PassOverAfter); next.ID != "stopped" {
					t.Errorf("%d: a ticket that polls is still passed over, %s is next", at, next.ID)
				}
			}
		}
	}
}

// TestPauseOfDays: the pause after a reservation of a ticket that has waited for days is as long as the price says.
// Jobs follow each other on one of two devices without a gap, so a ticket for both is never served, and the other
// device lies idle a fifth of the time.
func TestPauseOfDays(t *testing.T) {
	q, turn, reserved := convoy(6*24*time.Hour), Turn{}, 0
	for range 180 { // five times the first reservation, which lasts a quarter of the ticket's age
		q.Held[0].SinceBoot = q.Boot - int64(time.Hour)
		turn, _, _ = turn.DecideNext(q, "", q.Tickets, PassOverAfter)
		reserved += len(turn.Reserved)
		q.Boot, q.Now = q.Boot+int64(time.Hour), q.Now+int64(time.Hour)
	}
	if reserved < 30 || reserved > 180/5+1 {
		t.Errorf("a device is kept idle for %d of 180 hours", reserved)
	}
}

// TestPauseOnAllDevices: after a reservation none begins on any of the ticket's devices, in the set or not.
func TestPauseOnAllDevices(t *testing.T) {
	q := convoy(8 * time.Hour)
	q.Held[0].SinceBoot = q.Boot - int64(time.Hour)
	q.Rooms["GPU-2"], q.Rooms["GPU-3"] = pick.Room{}, pick.Room{}
	q.Held[0].Devices = []gpu.UUID{"GPU-1", "GPU-2", "GPU-3"}
	q.Tickets[0].Devices = []gpu.UUID{"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
	turn, _, _ := Turn{}.DecideNext(q, "", q.Tickets, PassOverAfter)
	r, reserved := turn.Reserved["1/wide"]
	if !reserved || len(r.Devices) != 2 {
		t.Fatalf("%+v", turn)
	}
	q.Boot, q.Now = q.Boot+int64(time.Hour), q.Now+int64(time.Hour)
	turn, _, _ = turn.DecideNext(q, "", q.Tickets, PassOverAfter)
	q.Tickets = q.Tickets[1:] // it left
	turn, _, _ = turn.DecideNext(q, "", q.Tickets, PassOverAfter)
	for _, id := range []gpu.UUID{"GPU-0", "GPU-1", "GPU-2", "GPU-3"} {
		if turn.Rest[id] != q.Boot+int64(float64(time.Hour)*r.Price) {
			t.Errorf("the pause on %s ends after %s", id, time.Duration(turn.Rest[id]-q.Boot))
		}
	}
}

// TestFadingCosts: what is about to leave a device keeps the other one free for a tenth of the time of both, also where
// leases end on it again and again, and for one user alone no longer than it may take.
func TestFadingCosts(t *testing.T) {
	const fading, every = 10 * time.Second, 100 * time.Millisecond
	for _, c := range []struct {
		name   string
		again  time.Duration // between two ends of leases; 0: there is one
		uid    uint32        // of the small ticket
		age    time.Duration // of the wide one
		steps  int
		refuse int // how often the small one may be told to wait
	}{
		{"one end, a ticket that came now", 0, 2, 0, 100, 10},
		{"one end, an old ticket", 0, 2, time.Hour, 100, 100},
		{"ends again and again", 3 * time.Second, 2, 0, 3000, 300},
		{"ends again and again, an old ticket", 3 * time.Second, 2, 5 * time.Minute, 6000, 1300},
		{"of one user", 0, 1, 0, 300, 100},
	} {
		q, turn, refused := convoy(c.age), Turn{}, 0
		q.Held, q.Tickets[1].UID = nil, c.uid
		if c.uid == 1 { // both end in a known time, so there is a plan
			q.Tickets[0].Timeout, q.Tickets[1].Timeout, q.Tickets[1].Nice = time.Hour, time.Hour, 1
		}
		ended := q.Boot
		for range c.steps {
			if c.again > 0 && q.Boot-ended >= int64(c.again) {
				ended = q.Boot
			}
			room := pick.Room{}
			if q.Boot-ended < int64(fading) {
				room.Fading = &pick.Fading{Since: ended, Until: ended + int64(fading)}
			}
			q.Rooms["GPU-1"] = room
			var ok bool
			turn, _, ok = turn.DecideNext(q, "", q.Tickets, PassOverAfter+time.Hour)
			refused += boolToInt(!ok)
			q.Boot, q.Now = q.Boot+int64(every), q.Now+int64(every)
		}
		if refused > c.refuse {
			t.Errorf("%s: the free device is kept %d of %d times, at most %d expected", c.name, refused, c.steps, c.refuse)
		}
	}
}

// TestReservationOf: what is shown as kept is what the queue keeps: from the first look on, of the ticket that waits for several, and neither after
// its end, nor where the ticket was passed over, nor where the record cannot be of the rules.
func TestReservationOf(t *testing.T) {
	q := convoy(8 * time.Hour)
	q.Held[0].SinceBoot = q.Boot - int64(time.Hour)
	turn, _, _ := Turn{}.DecideNext(q, "", q.Tickets, PassOverAfter)
	wide, small := q.Tickets[0], q.Tickets[1]
	r, kept := turn.ReservationOf(q, wide)
	if !kept || len(KeptDevices(turn.ApplyTo(q), small.ID, small.UID)) == 0 || len(r.Devices) != 2 {
		t.Fatalf("%+v %v", r, kept)
	}
	if _, kept := turn.ReservationOf(q, small); kept {
		t.Error("something is kept for one device")
	}
	late := q
	late.Boot = r.Until + 1
	if _, kept := turn.ReservationOf(late, wide); kept {
		t.Error("it is kept after its end")
	}
	if _, kept := turn.passOver(q, wide, "").ReservationOf(q, wide); kept {
		t.Error("it is kept for one that was passed over")
	}
	forged := r
	forged.Until = math.MaxInt64
	if _, kept := (Turn{Reserved: map[string]Reservation{wide.Key(): forged}}).ReservationOf(q, wide); kept {
		t.Error("it is kept for ever")
	}
}
