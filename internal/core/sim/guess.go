package sim

import (
	"fmt"
	"slices"
	"time"
)

// Guess is where the estimates of jobs come from.
type Guess string

// Guesses. A trace without estimates can be given synthetic ones.
const (
	GuessGiven Guess = "given" // by the trace
	// Nobody says anything.
	GuessNone Guess = "none"
	// As users guess: the true time, times a random factor of 1 to 4, rounded up to a usual one.
	GuessRough Guess = "rough"
	// The true time, which nobody knows.
	GuessExact Guess = "exact"
)

// usualTimes are the times that users ask for: most of them use the same few values (Tsafrir, Etsion, Feitelson,
// Modeling user runtime estimates, JSSPP 2005).
func usualTimes() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{time.Hour, 4 * time.Hour, 12 * time.Hour, day, 3 * day, 7 * day, 60 * day}
}

// SetEstimates gives the jobs the estimates of a guess. random gives numbers from 0 to 1, one for each job in order.
func SetEstimates(jobs []Job, g Guess, random func() float64) error {
	if !slices.Contains([]Guess{GuessGiven, GuessNone, GuessRough, GuessExact}, g) {
		return fmt.Errorf("cannot guess times by %q: write given, none, rough or exact", g)
	}
	times := usualTimes()
	for i := range jobs {
		j := &jobs[i]
		switch g {
		case GuessNone:
			j.Estimate = 0
		case GuessExact:
			j.Estimate = max(j.Lasts, 1)
		case GuessRough:
			least := time.Duration(float64(j.Lasts) * (1 + 3*random()))
			at, _ := slices.BinarySearch(times, least)
			j.Estimate = times[min(at, len(times)-1)]
		}
	}

	return nil
}
