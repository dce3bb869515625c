package queue

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// A stopped waiter does not block others: it is passed over with its user's other tickets, until it acts.
func TestAStoppedWaiterIsPassedOver(t *testing.T) {
	ticket := func(id string, uid uint32, arrival int64) job.Ticket {
		return job.Ticket{ID: id, UID: uid, Arrival: arrival, Devices: []gpu.UUID{"GPU-0"}, Count: 1}
	}
	q := Input{Boot: 100, Rooms: map[gpu.UUID]pick.Room{"GPU-0": {Whole: true}},
		Tickets: []job.Ticket{ticket("stopped", 1, 1), ticket("also", 1, 2), ticket("alive", 2, 3)}}
	see := func(turn Turn, id string, boot int64) (Turn, string) {
		q.Boot = boot
		turn, next, ok := turn.DecideNext(q, id, q.Tickets, PassOverAfter)
		if !ok {
			return turn, "none"
		}
		return turn, next.ID
	}
	turn, next := see(Turn{}, "2/alive", 100)
	if next != "stopped" || turn.Next["1/stopped"] != 100 {
		t.Fatalf("next is %s, %+v", next, turn)
	}
	if turn, next = see(turn, "2/alive", 100+int64(PassOverAfter)-1); next != "stopped" {
		t.Fatalf("passed over too early: %s is next, %+v", next, turn)
	}
	if turn, next = see(turn, "2/alive", 100+int64(PassOverAfter)); next != "alive" || len(turn.Passed) != 2 {
		t.Fatalf("%s is next, %+v", next, turn)
	}
	if turn, next = see(turn, "1/stopped", 101+int64(PassOverAfter)); next != "stopped" || len(turn.Passed) != 1 {
		t.Fatalf("a ticket that acts again is still passed over, or not next: %s is next, %+v", next, turn)
	}
	q.Tickets = q.Tickets[2:]
	if turn, next = see(turn, "2/alive", 102+int64(PassOverAfter)); next != "alive" || len(turn.Passed) != 0 {
		t.Fatalf("%s is next, %+v: tickets that are gone are forgotten", next, turn)
	}
}
