package queue

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/job"
)

// Own is what orders the requests of one user among themselves. Nothing of it counts between users: its owner can write
// all of it.
type Own struct {
	Nice    int   // lower goes first
	Arrival int64 // ns since 1970
	// How long it may take; 0 unknown.
	Estimate time.Duration
	// Devices that it needs; 0 as 1.
	Count int
	// Age from which arrival alone counts; 0: OwnPatience.
	Patience time.Duration
}

// OwnPatience is the age from which a request is ahead of the younger ones of its user, whatever they take. It is long
// because it is dear: where more is asked for than the devices can do, it turns the line into one by arrival.
const OwnPatience = 30 * 24 * time.Hour

// Compare compares two requests of one user, negative where a goes first: by Nice; then those that have waited longer
// than OwnPatience, by arrival; then by the response ratio, the time from arrival to the expected end over the device
// time that the request is expected to use, so that small ones go first and large ones not last for ever; then by
// arrival. Without estimates it is the arrival. docs/explanation/scheduling.md has the figures for this choice.
func (a Own) Compare(b Own, now int64) int {
	if c := cmp.Compare(a.Nice, b.Nice); c != 0 {
		return c
	}
	old, other := a.isPastPatience(now), b.isPastPatience(now)
	if old || other {
		return cmp.Or(cmp.Compare(boolToInt(other), boolToInt(old)), cmp.Compare(a.Arrival, b.Arrival))
	}

	return cmp.Or(cmp.Compare(b.responseRatio(now), a.responseRatio(now)), cmp.Compare(a.Arrival, b.Arrival))
}

func (a Own) isPastPatience(now int64) bool {
	return now-a.Arrival > int64(cmp.Or(a.Patience, OwnPatience))
}

// responseRatio is the response ratio of the request's device time. A request that has not waited has none, so that of
// two that come together the order would be open: a second is added.
func (a Own) responseRatio(now int64) float64 {
	if a.Estimate <= 0 {
		return 0
	}
	return float64(max(0, now-a.Arrival)+int64(time.Second)) / float64(a.Estimate) / float64(max(1, a.Count))
}

// hasOneUser is true where nobody else waits. Then an order among the tickets, and what their owner says of them, cost
// no other user anything.
func (q *Input) hasOneUser() bool {
	return !slices.ContainsFunc(q.Tickets, func(t job.Ticket) bool { return t.UID != q.Tickets[0].UID })
}

// hasAllEstimates reports whether each ticket names an estimate or an end.
func (q *Input) hasAllEstimates() bool {
	return !slices.ContainsFunc(q.Tickets, func(t job.Ticket) bool { return t.Time <= 0 && t.Timeout <= 0 })
}

// sortWithinUsers puts the tickets of each user, on the places that they have together, into the order of that user.
// Those that were passed over keep their places. So do those that are older than Patience, unless their owner is alone:
// a place ahead of other users must be left one day.
func (q *Input) sortWithinUsers(order []job.Ticket) {
	places, alone := map[uint32][]int{}, q.hasOneUser()
	for i, t := range order {
		if !q.Passed[t.Key()] && (alone || !q.isPastPatience(t)) {
			places[t.UID] = append(places[t.UID], i)
		}
	}
	for _, at := range places {
		var own []job.Ticket
		var known []time.Duration
		for _, i := range at {
			own = append(own, order[i])
			if order[i].Time > 0 {
				known = append(known, order[i].Time)
			}
		}

		usual := Median(known)
		of := func(t job.Ticket) Own {
			return Own{t.Nice, cmp.Or(t.Asked, t.Arrival), cmp.Or(t.Time, usual), t.Count, q.OwnPatience}
		}

		slices.SortStableFunc(own, func(a, b job.Ticket) int { return of(a).Compare(of(b), q.Now) })

		for k, i := range at {
			order[i] = own[k]
		}
	}
}

// Median is the middle one, 0 of none.
func Median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
