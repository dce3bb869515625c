// Package queue decides whose turn it is: which of the waiting tickets may start now. It never reads the machine, a
// clock or a file, and it does not choose devices: that is pick's part. The same values in, in whatever order, give the
// same answer.
//
// # The order
//
// Tickets stand in this order: first those that are not passed over (see Turn); among them first those that have
// waited longer than Patience, by arrival; then those whose user holds the fewest devices now; then by arrival. Of each
// user the Compete earliest are looked at, so that nobody crowds others out by asking more often.
//
// # Who may start
//
// The first ticket in that order may start as soon as enough of its devices have room for it. While it waits, a later
// one may start only if that cannot keep an earlier one waiting longer. So each waiting ticket keeps its devices, and
// what it keeps depends on its reservation: the time at which, by the enforced ends (--timeout) of the leases there,
// enough of its devices are certainly free. Estimates do not count. A later ticket may use a kept device in three cases:
//
//   - it certainly ends before the reservation, by its own enforced end;
//   - so many devices are free at the reservation that there are enough without those it takes;
//   - both want shares, and beside its share the device still has room for those of all that wait before it.
//
// A ticket whose owner has, together with what it wants, more devices than it says they may have at once (Ticket.Max) neither
// starts nor keeps anything until leases of that owner end. Further shares of devices that its owner has cost none.
//
// The end that a ticket names (Ticket.Timeout) must be the one that its lease will name (Lease.Until), grace included.
// Where one lease has no enforced end there is no reservation, and only the third case remains. A device that is kept
// for a ticket counts for those behind it as free at that ticket's reservation at the earliest.
//
// Nobody knows when strangers (processes without a lease) go or a sick device recovers. While they leave a ticket too few
// devices, so that it could not start even if all leases ended, it keeps nothing: others may work meanwhile.
//
// # The bound
//
// Nobody starves. Take a ticket that is among its user's Compete earliest, is not passed over, has waited for
// Patience, and has enough devices that are free or leased. From then on only tickets that arrived before it
// stand before it, and no new one can join them. Whoever starts behind it on a device that it keeps has certainly ended at
// its reservation, or leaves enough for it. So it waits for the leases that its devices carry at that time and for
// older tickets, and for nothing that came later: when no job lasts longer than d and n older tickets wait, it starts
// at most (n+1)·d after it became so old.
package queue

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// Patience is how long a ticket stands behind users who hold fewer devices. Older ones go by arrival alone.
const Patience = 12 * time.Hour

// Compete is how many tickets of one user are looked at, the earliest.
const Compete = 16

// Question is what is known when somebody under the folder lock asks who may start. All tickets are of one scope: the same
// Parent and Allocation.
type Question struct {
	Now     int64                  // wall clock, ns since 1970: the clock of Ticket.Arrival
	Boot    int64                  // CLOCK_BOOTTIME, ns: the clock of Lease.Until
	Tickets []job.Ticket           // who waits, alive; a newcomer adds one with Arrival = Now
	Held    []job.Lease            // all living leases
	Rooms   map[gpu.UUID]pick.Room // what each device or slice could give now, as seen in the scope
	Ending  map[gpu.UUID]bool      // devices that somebody is about to leave: a lease has just ended, or a process is ending
	Passed  map[string]bool        // IDs of tickets that let their turn pass; they come last
}

// Order is the whole queue, first comes first; those that do not compete stand at the end. For places and for people.
func Order(q Question) []job.Ticket {
	competing, others := q.compete()
	return append(competing, others...)
}

// Next is the ticket that may start now. It must leave alone what Kept names.
func Next(q Question) (job.Ticket, bool) {
	w := q.walk()
	for _, t := range w.order {
		if w.fits(t) {
			return t, true
		}
		w.keep(t)
	}
	return job.Ticket{}, false
}

// Kept are the devices that the ticket must not take now because one that stands before it waits for them, and which.
func Kept(q Question, id string, uid uint32) map[gpu.UUID]job.Ticket {
	w := q.walk()
	for _, t := range w.order {
		if t.ID == id && t.UID == uid {
			return w.kept(t)
		}
		w.keep(t)
	}
	return nil
}

// compete splits the tickets into the Compete earliest of each user, in their order, and the rest by arrival.
func (q *Question) compete() (in, out []job.Ticket) {
	byAge := slices.Clone(q.Tickets)
	slices.SortFunc(byAge, byArrival)
	seen, holds := map[uint32]int{}, map[uint32]int{}
	for _, t := range byAge {
		if seen[t.UID] == 0 {
			holds[t.UID] = q.holds(t.UID)
		}
		if seen[t.UID]++; seen[t.UID] <= Compete {
			in = append(in, t)
		} else {
			out = append(out, t)
		}
	}
	slices.SortFunc(in, func(a, b job.Ticket) int {
		return cmp.Or(cmp.Compare(ordinal(q.Passed[a.ID]), ordinal(q.Passed[b.ID])), q.age(a, b, holds), byArrival(a, b))
	})
	return in, out
}

// age compares what counts before arrival: impatience, and how much the users hold.
func (q *Question) age(a, b job.Ticket, holds map[uint32]int) int {
	if old, other := q.impatient(a), q.impatient(b); old || other {
		return cmp.Compare(ordinal(other), ordinal(old))
	}
	return cmp.Compare(holds[a.UID], holds[b.UID])
}

func (q *Question) impatient(t job.Ticket) bool { return q.Now-t.Arrival > int64(Patience) }

// holds counts devices, not leases: who has several shares of one device holds one.
func (q *Question) holds(uid uint32) int {
	return len(job.Owned(q.Held, uid, ""))
}

// byArrival orders any two tickets: nobody's order depends on the order of a list.
func byArrival(a, b job.Ticket) int {
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.UID, b.UID), strings.Compare(a.ID, b.ID))
}

func ordinal(b bool) int {
	if b {
		return 1
	}
	return 0
}

// never is a time that does not come: nobody knows when.
const never = math.MaxInt64
