package sim

import (
	"cmp"
	"time"

	"gpuard/internal/core/queue"
)

// Policy is a rule by which jobs start.
type Policy struct {
	Name  string
	About string

	// The rule of gpuard: package queue decides.
	own bool
	// The age from which arrival alone counts; of own.
	patience time.Duration
	order    jobOrder // of the others
	blocked  blockRule
	// While devices are kept; nil: order.
	backfill jobOrder
}

// Policies are all of them; the first one is gpuard's own.
func Policies() []Policy {
	const day = 24 * time.Hour
	return []Policy{
		{Name: "own", About: "gpuard's own rule", own: true},
		{Name: "own-24h", About: "the same; after 24 hours a job is ahead of all younger ones", own: true, patience: day},
		{Name: "own-7d", About: "the same after 7 days", own: true, patience: 7 * day},
		{Name: "own-30d", About: "the same after 30 days, which is what gpuard does", own: true, patience: queue.OwnPatience},
		{Name: "own-never", About: "the same at no age", own: true, patience: 100 * 365 * day},
		{Name: "fifo", About: "by arrival; one that does not fit blocks all others", order: byArrival, blocked: blockAll},
		{Name: "skip", About: "by arrival; what does not fit is skipped", order: byArrival, blocked: blockNone},
		{Name: "easy", About: "by arrival, past the first one if that delays it not (EASY)", order: byArrival, blocked: blockDelaying},
		{Name: "easy-short", About: "the same, the shortest first", order: byArrival, blocked: blockDelaying, backfill: byEstimate},
		{Name: "short", About: "the shortest first; what does not fit is skipped", order: byEstimate, blocked: blockNone},
		{Name: "ratio", About: "highest response ratio first; what does not fit is skipped", order: byRatio, blocked: blockNone},
	}
}

// blockRule says what may start while the first job of the order does not fit.
type blockRule int

const (
	blockAll blockRule = iota // nothing
	// What does not delay it.
	blockDelaying
	blockNone // what fits
)

// jobOrder is negative where a goes first.
type jobOrder func(a, b *Job, now int64) int

func byArrival(a, b *Job, _ int64) int { return cmp.Compare(a.Arrival, b.Arrival) }

func byEstimate(a, b *Job, now int64) int {
	return cmp.Or(cmp.Compare(a.Estimate, b.Estimate), byArrival(a, b, now))
}

// byRatio compares the time waited over the estimate.
func byRatio(a, b *Job, now int64) int {
	ratio := func(j *Job) float64 { return float64(now-j.Arrival) / float64(max(1, j.Estimate)) }
	return cmp.Or(cmp.Compare(ratio(b), ratio(a)), byArrival(a, b, now))
}
