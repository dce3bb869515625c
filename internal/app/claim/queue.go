package claim

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/store"
)

// queueView is one reading of the queue for the devices that this request wants. nil is an empty queue.
type queueView struct {
	// The ticket of the request; without an id where it has none yet.
	me    job.Ticket
	asked queue.Input
	turn  queue.Turn
	next  job.Ticket
	// There is a next one, and what it wants is free.
	free bool
	// This reading is the first to see that.
	firstSeen bool
	kept      map[gpu.UUID]job.Ticket
	boot      int64
}

// viewQueue decides which request is next.
func (q *request) viewQueue(v store.View, mine *store.Waiting, now time.Time) *queueView {
	tracing := isTracing(q.host)
	if len(v.Tickets) == 0 && !tracing {
		return nil
	}

	in, _ := q.pickContext(v.Held, now)
	l := &queueView{me: q.makeTicket(in, now), boot: v.Now}
	if mine != nil {
		l.me = renewedTicket(mine.Ticket, l.me)
	}

	overdue, rooms := cmp.Or(q.host.Times.Overdue, queue.PassOverAfter), pick.RoomByDevice(q.machine, v.Held, in)
	turn, tickets := v.Turn.AddUnknownDevices(ticketsInScope(l.me, v.Tickets), slices.Sorted(maps.Keys(rooms)), v.Now, overdue)
	tickets = rivalTickets(l.me, tickets)
	if len(tickets) == 0 && !tracing {
		return nil
	}

	if q.host.IsHardware() {
		pick.ForecastRooms(rooms, q.machine, v.Held, in, q.recentEnds())
	}

	l.asked = queue.Input{
		Now: now.UnixNano(), Boot: v.Now, Tickets: append(tickets, l.me), Held: v.Held, Rooms: rooms,
	}

	l.turn, l.next, l.free = turn.DecideNext(l.asked, l.me.Key(), append(slices.Clone(v.Tickets), l.me), overdue)
	_, seen := turn.Next[l.next.Key()]
	l.firstSeen = l.free && !seen
	l.asked = l.turn.ApplyTo(l.asked)
	l.kept = queue.KeptDevices(l.asked, l.me.ID, l.me.UID)
	if l.free && !l.mayStart() {
		l.reserveForNext()
	}

	return l
}

// nameOwners finds the owners of the tickets that keep devices from this request, and reports whether there are any. It
// can run a program, so it is not called under the folder lock.
func (q *queueView) nameOwners(names func(uint32) string) bool {
	if q == nil {
		return false
	}
	for id, t := range q.kept {
		t.User = names(t.UID)
		q.kept[id] = t
	}
	return len(q.kept) > 0
}

// reserveForNext leaves everything to the next one until it has acted.
func (q *queueView) reserveForNext() {
	if q.kept == nil {
		q.kept = map[gpu.UUID]job.Ticket{}
	}
	for _, id := range q.me.Devices {
		if _, already := q.kept[id]; !already {
			q.kept[id] = q.next
		}
	}
}

// nextLapse is how long until the first reservation lapses that keeps a device from this request; 0 where none does.
func (q *queueView) nextLapse() (first time.Duration) {
	for _, t := range q.kept {
		if r, reserved := q.turn.Reserved[t.Key()]; reserved {
			if left := time.Duration(r.Until-q.boot) + 1; first == 0 || left < first {
				first = left
			}
		}
	}
	return first
}

// mayStart reports whether the queue lets this request start. It does if no request may start: then the devices give
// the reason.
func (q *queueView) mayStart() bool {
	return q == nil || !q.free || q.next.ID == q.me.ID && q.next.UID == q.me.UID
}

// storeTurn stores whose turn it is. A request that is next and gets nothing lets the others pass.
func (q *queueView) storeTurn(v *store.View, refusal *job.Refusal) {
	if q == nil {
		return
	}
	if refusal != nil && q.free && q.mayStart() && q.me.ID != "" {
		if q.turn.Passed == nil {
			q.turn.Passed = map[string]int64{}
		}
		q.turn.Passed[q.me.Key()] = v.Now
	}
	*v.Turn = q.turn
}

// queuePosition is the place of the request in the queue for the same devices, from 1, and the length of that queue.
func (q *queueView) queuePosition() (int, int) {
	order := queue.OrderTickets(q.asked)
	return slices.IndexFunc(order, q.isMe) + 1, len(order)
}

func (q *queueView) isMe(t job.Ticket) bool { return t.ID == q.me.ID && t.UID == q.me.UID }

// makeTicket is the request as others shall see it.
func (q *request) makeTicket(in pick.Context, now time.Time) job.Ticket {
	parent := ""
	if in.Parent != nil {
		parent = in.Parent.ID
	}

	most := 0
	if r := in.Limits.Count(); r != nil && in.Parent == nil && in.Moving == "" {
		// A move gives back as much as it takes.
		most = *r.GPUs
	}

	asked := int64(0)
	if !q.spec.Asked.IsZero() {
		asked = q.spec.Asked.UnixNano()
	}

	return job.Ticket{
		UID: uint32(os.Geteuid()), Arrival: now.UnixNano(), Devices: pick.CapableDevices(q.spec, q.machine, in), Known: knownUUIDs(q.machine), Count: pick.DeviceCount(q.spec),
		Max: most, Memory: q.spec.Memory, Share: q.spec.Share, Timeout: q.spec.TimeLimit(), Time: q.spec.Time, Nice: q.spec.Nice, Asked: asked, Parent: parent, Allocation: in.Allocation,
		PID: os.Getpid(), Namespace: q.host.Proc.PIDNamespace(), Command: q.subject.Command, Since: now.Truncate(time.Millisecond),
	}
}

// ticketsInScope are the tickets of the same scope, without our own.
func ticketsInScope(me job.Ticket, all []job.Ticket) (others []job.Ticket) {
	for _, t := range all {
		if t.Parent == me.Parent && t.Allocation == me.Allocation && (t.ID != me.ID || t.UID != me.UID) {
			others = append(others, t)
		}
	}
	return others
}

// rivalTickets are those of the tickets that want one of the devices, or one of a device that such a one wants. Tickets
// that want other devices do not matter.
func rivalTickets(me job.Ticket, rest []job.Ticket) []job.Ticket {
	var near []job.Ticket
	wanted := map[gpu.UUID]bool{}
	for _, id := range me.Devices {
		wanted[id] = true
	}

	for grown := true; grown; {
		grown = false
		rest = slices.DeleteFunc(rest, func(t job.Ticket) bool {
			if !slices.ContainsFunc(t.Devices, func(id gpu.UUID) bool { return wanted[id] }) {
				return false
			}
			for _, id := range t.Devices {
				wanted[id] = true
			}
			near, grown = append(near, t), true

			return true
		})
	}

	return near
}
