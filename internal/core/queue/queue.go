// Package queue decides which of the waiting tickets may start now. It must not read the machine, a clock or a file,
// and it does not choose devices: package pick does. The same input, in any order, gives the same answer.
//
//	q := queue.Input{Now: now, Boot: boot, Tickets: waiting, Held: leases, Rooms: rooms}
//	turn, next, ok := turn.See(q, me.Key(), all, queue.PassOverAfter)
//	if ok && next.Key() == me.Key() {
//		// claim devices that queue.KeptDevices does not name
//	}
//
// # The order
//
// Tickets have this order: first those that were not passed over (see Turn); among them first those that have waited
// longer than Patience, by arrival; then those whose user holds the fewest devices now; then by arrival. Of each user
// only the MaxCompeting earliest tickets count, so that more requests give a user no advantage.
//
// The places that the tickets of a user have together go to them in the order of that user (Own).
//
// # Which tickets may start
//
// The first ticket in that order may start as soon as enough of its devices have room for it. A later ticket may start
// on what the tickets ahead of it leave free. By that rule alone, requests for one device could pass a request for
// eight for ever. So a waiting ticket can have a reservation, whose cost is limited.
//
// # Reservations
//
// A reservation keeps a set of devices for a ticket: exactly as many as it needs, fixed when the reservation begins. It
// begins when one of them would otherwise lie idle, ends when the ticket starts or leaves, and lapses at a time that is
// fixed when it begins. Its price is the length of the pause after it, relative to its own length, in which its
// ticket's devices cannot be reserved again. The price keeps the idle part of those devices' time to a tenth: 10·c/n -
// 1, at least 1, where n is the number of devices that could serve the ticket and c how many of them the reservation
// may keep idle (the ticket's count less one; its count if any of its devices carries shares or it wants one). A
// reservation is worth having if the set will be complete before the reservation has lasted the ticket's age divided by
// the price. There are two kinds:
//
//   - Certain: each lease in the set has an enforced end (--timeout). Of the sets that are complete at the earliest
//     possible time, it is the one whose devices become free last, because that idles least. The reservation lapses at
//     that time.
//   - Guessed: a lease without an enforced end is assumed to last as long again as it has lasted. The set is the one
//     that is complete first. The reservation lapses when it has lasted the ticket's age divided by the price.
//
// A device whose last lease has ended, and whose memory the driver still frees, counts like a leased one (pick.Fading):
// the time after which it counts as busy is its enforced end, and as a guess the memory takes as long again as it has
// taken. So it costs its price, too, and a process that stays on the device keeps nothing else idle.
//
// The first ticket in the order for which a reservation is worth having gets it. No later ticket with a device in
// common gets one meanwhile. After a reservation of length t, no reservation begins on any of the ticket's devices for
// t times the price.
//
// A later ticket may use a reserved device in two cases:
//
//   - the reservation is certain, and the later ticket has an enforced end before it lapses;
//   - both want shares, and the device has room for both.
//
// A ticket whose owner would have more devices than its limit (Ticket.Max) neither starts nor reserves anything until
// leases of that owner end. A further share of a device that the owner has does not count.
//
// The end that a ticket names (Ticket.Timeout) must be the one that its lease will name (Lease.Until), grace included.
// Estimates of users do not count between users. A ticket reserves nothing while processes without a lease, drains or
// sick devices leave it too few devices, so that it could not start even if all leases ended (pick.ForecastRooms).
//
// # One user
//
// While all tickets are of one user, they are in the order of that user at any age. If each also names an estimate or
// an enforced end, the first that does not start keeps the devices that are expected to be free first, by the estimates
// of the user (Lease.Time), else by enforced ends, and a later ticket may use them if it is expected to end before.
// That costs nobody else anything. Where too few of these ends are known, reservations are those above.
//
// # The bound
//
// Take a ticket that is among its user's MaxCompeting earliest, is not passed over, and has enough devices that are
// free or leased. Let no job last longer than d, and let the ticket be older than Patience and than 9·d. From then on
// only the n tickets that arrived earlier are ahead of it. No price is above 9, and a lease is never older than d, so
// for each of these tickets a reservation is worth having at all times. Each reservation is complete within d, and a
// pause of at most 9·d follows. So the ticket starts at most (n+1)·10·d + d later. That bound costs at most a tenth of
// the devices' time, whatever the load.
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

// Patience is the age after which a ticket no longer waits for users who hold fewer devices: older ones are ordered by
// arrival alone.
const Patience = 12 * time.Hour

// MaxCompeting is how many tickets of one user count, the earliest.
const MaxCompeting = 16

// Input is the state of the queue, read under the folder lock. All tickets are of one scope: the same Parent and
// Allocation.
type Input struct {
	// Wall clock, ns since 1970: the clock of Ticket.Arrival.
	Now int64
	// CLOCK_BOOTTIME, ns: the clock of Lease.Until.
	Boot int64
	// The tickets of living waiters; a new request adds one with Arrival = Now.
	Tickets []job.Ticket
	Held    []job.Lease // all living leases
	// What each device or slice could give now, as seen in the scope.
	Rooms map[gpu.UUID]pick.Room
	// The tickets that did not start when they could, by Ticket.Key; they come last.
	Passed map[string]bool

	// Instead of the constant; 0: the constant.
	OwnPatience time.Duration

	// What is reserved, by Ticket.Key, as Turn remembers it.
	Reserved map[string]Reservation
	// CLOCK_BOOTTIME, ns: no reservation begins on the device before.
	Rest map[gpu.UUID]int64
}

// OrderTickets is the whole queue, the next ticket first; tickets beyond MaxCompeting come last. It is for display.
func OrderTickets(q Input) []job.Ticket {
	competing, others := q.splitCompeting()
	return append(competing, others...)
}

// NextTicket is the ticket that may start now. It must not use the devices that Kept names.
func NextTicket(q Input) (job.Ticket, bool) {
	t, ok := q.newWalk().firstStartable()
	return t, ok
}

// KeptDevices maps each device that the ticket must not take now to the earlier ticket that has reserved it.
func KeptDevices(q Input, id string, uid uint32) map[gpu.UUID]job.Ticket {
	w := q.newWalk()
	for _, t := range w.order {
		if t.ID == id && t.UID == uid {
			return w.devicesKeptFrom(t.Ticket)
		}
		w.reserveForTicket(t)
	}
	return nil
}

// splitCompeting returns the MaxCompeting earliest tickets of each user, in queue order, and the rest by arrival.
func (q *Input) splitCompeting() (in, out []job.Ticket) {
	byAge := slices.Clone(q.Tickets)
	slices.SortFunc(byAge, compareArrival)
	seen, holds := map[uint32]int{}, map[uint32]int{}
	for _, t := range byAge {
		if seen[t.UID] == 0 {
			holds[t.UID] = q.countHeldDevices(t.UID)
		}
		seen[t.UID]++
		if seen[t.UID] <= MaxCompeting {
			in = append(in, t)
		} else {
			out = append(out, t)
		}
	}

	slices.SortFunc(in, func(a, b job.Ticket) int {
		return cmp.Or(cmp.Compare(boolToInt(q.Passed[a.Key()]), boolToInt(q.Passed[b.Key()])), q.comparePriority(a, b, holds), compareArrival(a, b))
	})

	q.sortWithinUsers(in)

	return in, out
}

// comparePriority compares what counts more than arrival: age above Patience, and how much the users hold.
func (q *Input) comparePriority(a, b job.Ticket, holds map[uint32]int) int {
	if old, other := q.isPastPatience(a), q.isPastPatience(b); old || other {
		return cmp.Compare(boolToInt(other), boolToInt(old))
	}
	return cmp.Compare(holds[a.UID], holds[b.UID])
}

func (q *Input) isPastPatience(t job.Ticket) bool { return q.Now-t.Arrival > int64(Patience) }

// countHeldDevices counts devices, not leases: several shares of one device count once.
func (q *Input) countHeldDevices(uid uint32) int {
	return len(job.OwnedDevices(q.Held, uid, ""))
}

// compareArrival is a total order, so that the order of the input does not matter.
func compareArrival(a, b job.Ticket) int {
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.UID, b.UID), strings.Compare(a.ID, b.ID))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unknownEnd is the time of an unknown end.
const unknownEnd = math.MaxInt64
