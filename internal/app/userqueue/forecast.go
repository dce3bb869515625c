package userqueue

import (
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
	"gpuard/internal/core/status"
)

// ForecastJobs says of each job that waits for devices when it may start: after the requests of others that are in the
// line, and as far as estimates say; or the lease of which no end is known. s is of the machine that --machine names.
func ForecastJobs(list []Entry, others []status.Waiting, s *status.Report, machine string) {
	now := s.Now

	// Own jobs, by device.
	running := map[gpu.UUID]*Entry{}
	for i := range list {
		if e := &list[i]; e.State == Running && e.Started != nil {
			for _, d := range e.Devices {
				running[gpu.UUID(d.UUID)] = e
			}
		}
	}

	var free []int64
	// By device.
	var endless []string
	for i := range s.Devices {
		at, lease := freeAt(&s.Devices[i], running[s.Devices[i].UUID], now)
		free, endless = append(free, at), append(endless, lease)
	}

	var asked []queue.ForecastRequest
	for i := range others {
		of := []int{}
		for k := range s.Devices {
			if slices.ContainsFunc(others[i].Devices, func(id gpu.UUID) bool { return isDeviceOrSlice(&s.Devices[k], id) }) {
				of = append(of, k)
			}
		}
		asked = append(asked, queue.ForecastRequest{Count: others[i].Count, Of: of, Estimate: others[i].Time})
	}

	var own []*Entry
	for i := range list {
		if e := &list[i]; e.State == Waiting && e.HeldBack == "" && !e.Spec.CPU && e.Machine == machine && e.Engine == "" {
			own = append(own, e)
		}
	}

	of := func(e *Entry) queue.Own {
		return queue.Own{Nice: e.Nice, Arrival: e.Submitted.UnixNano(), Estimate: jobEstimate(e), Count: deviceCount(e)}
	}

	slices.SortStableFunc(own, func(a, b *Entry) int { return of(a).Compare(of(b), now.UnixNano()) })

	for _, e := range own {
		asked = append(asked, queue.ForecastRequest{Count: deviceCount(e), Of: placesOf(e.Spec.Devices, s.Devices), Estimate: of(e).Estimate})
	}

	for i, start := range queue.ForecastStarts(free, asked) {
		expected, behind := (*time.Time)(nil), firstText(endless, asked[i].Of)
		if start != queue.UnknownTime {
			expected, behind = new(time.Unix(0, start)), ""
		}
		if i < len(others) {
			others[i].Expected, others[i].Endless = expected, behind
			continue
		}
		own[i-len(others)].Expected, own[i-len(others)].Endless = expected, behind
	}
}

// firstText is the first text that is not empty of those in these places; nil: of all.
func firstText(texts []string, places []int) string {
	for i, text := range texts {
		if text != "" && (places == nil || slices.Contains(places, i)) {
			return text
		}
	}
	return ""
}

// isDeviceOrSlice reports whether a UUID is that of a GPU or of one of its slices.
func isDeviceOrSlice(d *status.Device, id gpu.UUID) bool {
	return d.UUID == id || slices.ContainsFunc(d.MIG, func(m status.Device) bool { return m.UUID == id })
}

// placesOf are the places of devices that a job names by their numbers; nil where it names none, or otherwise.
func placesOf(names []string, devices []status.Device) (of []int) {
	for _, name := range names {
		index, err := strconv.Atoi(name)
		at := slices.IndexFunc(devices, func(d status.Device) bool { return d.Index == index })
		if err != nil || at < 0 {
			return nil
		}
		of = append(of, at)
	}
	return of
}

func jobEstimate(e *Entry) time.Duration { return time.Duration(e.Estimate * float64(time.Second)) }

// deviceCount is how many devices a job needs that needs one.
func deviceCount(e *Entry) int { return max(1, pick.DeviceCount(e.Spec)) }

// freeAt is when a device may be free, in ns since 1970, or Unknown, with the lease of which no end is known, "" where
// it is none. own is the own job that runs there.
func freeAt(d *status.Device, own *Entry, now time.Time) (at int64, endless string) {
	if len(d.Leases) == 0 && d.Reason == "" {
		return now.UnixNano(), ""
	}
	if len(d.Leases) == 0 {
		return queue.UnknownTime, ""
	}

	last := now
	for i := range d.Leases {
		l := &d.Leases[i]
		end := l.Until
		if end == nil && l.Since != nil && l.Asked > 0 {
			end = new(l.Since.Add(l.Asked))
		}

		if end == nil && own != nil && own.Estimate > 0 {
			end = new(own.Started.Add(jobEstimate(own)))
		}

		if end == nil || !end.After(now) {
			// What should be over by now may go on for ever.
			return queue.UnknownTime, l.Command + " of " + l.User
		}

		if end.After(last) {
			last = *end
		}
	}

	return last.UnixNano(), ""
}
