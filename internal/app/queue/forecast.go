package queue

import (
	"slices"
	"time"

	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
	"gpuard/internal/core/status"
)

// Forecast says of each job that waits for devices when it may start: after the requests of others that are in the
// line, and as far as estimates say. A lease without a known or estimated end is taken to last as long again as it has lasted. s is
// of the machine that --machine names.
func Forecast(list []Entry, others []status.Waiting, s *status.Report, machine string) {
	now := s.Now
	ends := map[string]time.Time{} // of the own jobs that run, by device
	for i := range list {
		if e := &list[i]; e.State == Running && e.Estimate > 0 && e.Started != nil {
			for _, d := range e.Devices {
				ends[string(d.UUID)] = e.Started.Add(time.Duration(e.Estimate * float64(time.Second)))
			}
		}
	}
	var free []int64
	for i := range s.Devices {
		d := &s.Devices[i]
		switch end, own := ends[string(d.UUID)]; {
		case own:
			free = append(free, max(end.UnixNano(), now.UnixNano()))
		default:
			free = append(free, freeAt(d, now))
		}
	}
	var asked []queue.Asked
	for i := range others {
		asked = append(asked, queue.Asked{Count: others[i].Count, Estimate: others[i].Time})
	}
	var own []*Entry
	for i := range list {
		if e := &list[i]; e.State == Waiting && !e.Spec.CPU && e.Machine == machine && e.Engine == "" {
			own = append(own, e)
		}
	}
	of := func(e *Entry) queue.Own {
		return queue.Own{Nice: e.Nice, Arrival: e.Submitted.UnixNano(), Estimate: time.Duration(e.Estimate * float64(time.Second)), Count: needs(e)}
	}
	slices.SortStableFunc(own, func(a, b *Entry) int { return of(a).Before(of(b), now.UnixNano()) })
	for _, e := range own {
		asked = append(asked, queue.Asked{Count: needs(e), Estimate: of(e).Estimate})
	}
	for i, start := range queue.Forecast(free, asked) {
		at := time.Unix(0, start)
		switch {
		case start == queue.Unknown:
		case i < len(others):
			others[i].Expected = &at
		default:
			own[i-len(others)].Expected = &at
		}
	}
}

// needs is how many devices a job needs that needs one.
func needs(e *Entry) int { return max(1, pick.Need(e.Spec)) }

// freeAt is when a device may be free, in ns since 1970.
func freeAt(d *status.Device, now time.Time) int64 {
	if len(d.Leases) == 0 {
		if d.Reason == "" {
			return now.UnixNano()
		}
		return queue.Unknown
	}
	last := now
	for i := range d.Leases {
		l := &d.Leases[i]
		switch {
		case l.Until != nil:
			last = later(last, *l.Until)
		case l.Since != nil && l.Asked > now.Sub(*l.Since):
			last = later(last, l.Since.Add(l.Asked))
		case l.Since != nil:
			last = later(last, now.Add(now.Sub(*l.Since)))
		default:
			return queue.Unknown
		}
	}
	return last.UnixNano()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
