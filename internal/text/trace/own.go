package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"gpuard/internal/core/sim"
	"gpuard/internal/core/trend"
)

// endedJob is what a replay needs of a job of gpuard history --json.
type endedJob struct {
	Submitted time.Time         `json:"submitted"`
	Seconds   float64           `json:"seconds"`
	Time      float64           `json:"expect_seconds"`
	Devices   []json.RawMessage `json:"devices"`
}

// readHistory reads the answer of gpuard history --json.
func (k *jobCollector) readHistory(in io.Reader) error {
	k.Format = "gpuard history"
	d := json.NewDecoder(in)
	fail := func(err error) error {
		return fmt.Errorf("byte %d: it is not the answer of gpuard history --json: %w", d.InputOffset(), err)
	}

	if _, err := d.Token(); err != nil {
		return fail(err)
	}

	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fail(err)
		}

		if key != "jobs" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return fail(err)
			}
			continue
		}

		if open, err := d.Token(); err != nil || open != json.Delim('[') {
			return fail(fmt.Errorf("jobs is not a list: %w", err))
		}

		for d.More() {
			var e endedJob
			if err := d.Decode(&e); err != nil {
				return fail(err)
			}

			if y := e.Submitted.Year(); y < 1970 || y > 2200 || e.Seconds < 0 || e.Seconds > 1e9 || e.Time < 0 || e.Time > 1e9 {
				k.left.unfinished++
				continue
			}

			j := sim.Job{Arrival: e.Submitted.UnixNano(), Lasts: secondsToSpan(e.Seconds), Estimate: secondsToSpan(e.Time)}
			if err := k.addJob(j, len(e.Devices), ""); err != nil {
				return fail(err)
			}
		}

		if _, err := d.Token(); err != nil {
			return fail(err)
		}
	}

	return nil
}

func secondsToSpan(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

// readLeases reads the leases that have ended, a line each. When a job came is not in them: the time of its
// lease counts.
func (k *jobCollector) readLeases(in io.Reader) error {
	k.Format = "the leases that have ended"
	d := json.NewDecoder(in)
	for n := 1; ; n++ {
		var e trend.EndedLease
		switch err := d.Decode(&e); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", n, err)
		}

		if y, z := e.Since.Year(), e.Until.Year(); y < 1970 || y > 2200 || z > 2200 {
			k.left.unfinished++
			continue
		}

		if e.Share > 0 {
			k.shares++
		}

		if err := k.addJob(sim.Job{Arrival: e.Since.UnixNano(), Lasts: e.Until.Sub(e.Since)}, len(e.Devices), e.User); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}
