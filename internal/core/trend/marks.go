package trend

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// Mark is one trouble of a device, at the moment at which it began.
type Mark struct {
	At time.Time `json:"at"`
	// Xid, throttle, breach or intruder.
	What string `json:"what"`
	Text string `json:"text"` // a few words
}

// minTroubleGap is how long a trouble must be away before it is marked again: clocks that are lowered and raised all
// night are one.
const minTroubleGap = 10 * time.Minute

// markMemory is what a day remembers between two reports, to know what begins.
type markMemory struct {
	began bool // a report has come
	// When each trouble of a device was there last.
	seen map[string]time.Time
}

// newMarks are the marks of a report, by device. What the first report shows began at an unknown time before, but for
// an error of the driver that has its time.
func (t *markMemory) newMarks(s *status.Report) map[gpu.UUID][]Mark {
	if t.seen == nil {
		t.seen = map[string]time.Time{}
	}

	out := map[gpu.UUID][]Mark{}
	for i := range s.Devices {
		d := &s.Devices[i]
		all := marksOf(d, s.Taken)
		for j := range d.MIG {
			all = append(all, marksOf(&d.MIG[j], s.Taken)...)
		}
		for _, m := range all {
			key := m.troubleKey(d.UUID)
			last, known := t.seen[key]
			t.seen[key] = s.Taken
			isNew := !known || m.What != "xid" && s.Taken.Sub(last) > minTroubleGap
			if isNew && (t.began || m.What == "xid" && m.At.Before(s.Taken)) {
				out[d.UUID] = append(out[d.UUID], m)
			}
		}
	}

	for key, last := range t.seen {
		if s.Taken.Sub(last) > 24*time.Hour {
			delete(t.seen, key)
		}
	}

	t.began = true

	return out
}

// restoreMarks takes the marks of an earlier process.
func (t *markMemory) restoreMarks(minutes []Minute) {
	t.seen = map[string]time.Time{}
	for _, minute := range minutes {
		for id, mean := range minute.Devices {
			for _, m := range mean.Marks {
				t.seen[m.troubleKey(id)] = m.At
			}
		}
	}
}

// troubleKey is the same for the same trouble in the next report. Two errors of the driver are two troubles.
func (m *Mark) troubleKey(id gpu.UUID) string {
	key := string(id) + " " + m.What + " " + m.Text
	if m.What == "xid" {
		key += " " + m.At.UTC().Format(time.RFC3339)
	}
	return key
}

// marksOf is what is wrong with a device now, and on it.
func marksOf(d *status.Device, now time.Time) (all []Mark) {
	for _, x := range d.XIDs {
		m := Mark{now, "xid", fmt.Sprintf("XID %d: %s", x.Code, x.Meaning)}
		if x.At != nil {
			m.At = x.At.Truncate(time.Second)
		}
		all = append(all, m)
	}

	for _, why := range d.Throttled {
		if why == "hw_slowdown" || strings.Contains(why, "thermal") || strings.Contains(why, "power_brake") {
			all = append(all, Mark{now, "throttle", "slowed down: " + why})
		}
	}

	for i := range d.Leases {
		if l := &d.Leases[i]; l.Over() {
			all = append(all, Mark{now, "breach", fmt.Sprintf("%s of %s uses more than its share", l.Command, l.User)})
		}
	}

	for _, p := range d.Processes {
		own := func(l status.Lease) bool { return l.User == p.User }
		if p.Foreign && !p.Display && !p.Spared && !p.Ended && len(d.Leases) > 0 && !slices.ContainsFunc(d.Leases, own) {
			all = append(all, Mark{now, "intruder", fmt.Sprintf("process of %s without a lease", p.Owner())})
		}
	}

	return all
}

// Lasts reports whether what a mark says is there still, in the report of its device.
func (m *Mark) Lasts(d *status.Device) bool {
	same := func(o Mark) bool { return o.What == m.What && o.Text == m.Text }
	return slices.ContainsFunc(marksOf(d, m.At), same) || slices.ContainsFunc(d.MIG, func(slice status.Device) bool {
		return slices.ContainsFunc(marksOf(&slice, m.At), same)
	})
}

// stateOf is what a device was besides free or leased: its health where that is bad, else its use.
func stateOf(d *status.Device) string {
	switch {
	case d.Health == health.Unhealthy || d.Health == health.Unknown && d.Utilization == nil && d.MemoryUsed == nil:
		return string(health.Unhealthy)
	case d.Use == status.Draining || d.Use == status.Busy:
		return string(d.Use)
	}
	return ""
}
