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
// The first ticket in that order may start as soon as enough of its devices have room for it. A later ticket may start
// on whatever the tickets before it leave free. That alone would let requests for one device pass a request for eight for
// ever. So a ticket that waits can have a reservation, and what a reservation costs is limited.
//
// # Reservations
//
// A reservation keeps a set of devices for a ticket: exactly as many as it needs, fixed when the reservation begins. It
// begins as soon as one of them would lie idle, ends when the ticket starts or leaves, and lapses after a time that is
// known at its beginning. Its price is how long others must be left alone for each moment that it lasts, so that of the
// time of the ticket's devices at most a tenth is kept idle: 10·c/n - 1, at least 1, where n is the number of devices
// that could serve the ticket and c how many of them it may keep idle (its count less one; its count where shares
// of a device are concerned). A reservation is worth having if the set will be complete before it has lasted the ticket's
// age divided by the price. There are two kinds:
//
//   - Certain: each lease in the set has an enforced end (--timeout). The set is the one that becomes free last among those
//     that are complete at the earliest possible time, because that idles least. The reservation lapses at that time.
//   - Guessed: a lease without an enforced end is taken to last as long again as it has lasted. The set is the one that is
//     complete first. The reservation lapses when it has lasted the ticket's age divided by the price.
//
// The first ticket in the order for which a reservation is worth having has it. No later ticket with a device in common
// gets one meanwhile. When a reservation ends, none begins on the ticket's devices for as long as it has lasted, times the price.
//
// A later ticket may use a reserved device in two cases:
//
//   - the reservation is certain, and the later ticket ends before it lapses, by its own enforced end;
//   - both want shares, and the device has room for both.
//
// A ticket whose owner has, together with what it wants, more devices than it says they may have at once (Ticket.Max) neither
// starts nor reserves anything until leases of that owner end. Further shares of devices that its owner has cost none.
//
// The end that a ticket names (Ticket.Timeout) must be the one that its lease will name (Lease.Until), grace included.
// Estimates of users do not count. While processes without a lease or sick devices leave a ticket too few devices, so that
// it could not start even if all leases ended, it reserves nothing.
//
// # The bound
//
// Take a ticket that is among its user's Compete earliest, is not passed over, and has enough devices that are free or
// leased. Let no job last longer than d, and let the ticket be older than Patience and than 9·d. From then on only the n
// tickets that arrived before it are before it. No price is above 9, so for each of them, and for it, a
// reservation is worth having at all times: a lease is never older than d. Each of their reservations is complete within d,
// and a pause of at most 9·d follows. So the ticket starts at most (n+1)·10·d + d later. The price of that bound is at most a tenth of
// the devices' time, whatever the jobs and whoever asks.
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
	Ending  map[gpu.UUID]bool      // devices about to become free: a lease has just ended, or a process is ending
	Passed  map[string]bool        // by Ticket.Key: tickets that let their turn pass; they come last

	Reserved map[string]Reservation // by Ticket.Key, as Turn remembers them
	Rest     map[gpu.UUID]int64     // CLOCK_BOOTTIME, ns: no reservation begins on the device before
}

// Order is the whole queue, first comes first; those that do not compete stand at the end. For places and for people.
func Order(q Question) []job.Ticket {
	competing, others := q.compete()
	return append(competing, others...)
}

// Next is the ticket that may start now. It must leave alone what Kept names.
func Next(q Question) (job.Ticket, bool) {
	t, ok := q.walk().next()
	return t, ok
}

// Kept are the devices that the ticket must not take now because one before it has reserved them, and which.
func Kept(q Question, id string, uid uint32) map[gpu.UUID]job.Ticket {
	w := q.walk()
	for _, t := range w.order {
		if t.ID == id && t.UID == uid {
			return w.kept(t.Ticket)
		}
		w.reserve(t)
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
		return cmp.Or(cmp.Compare(ordinal(q.Passed[a.Key()]), ordinal(q.Passed[b.Key()])), q.age(a, b, holds), byArrival(a, b))
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
