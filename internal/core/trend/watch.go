package trend

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// Limits of what the owner of a machine is told.
const (
	idleLoad  = 0.05            // up to this load a device does nothing
	idleFor   = 2 * time.Hour   // a lease that does nothing for so long is told
	nearLimit = 2               // degrees until the driver slows a device down
	forgotten = 5 * time.Minute // a trouble that was gone for so long is told again
)

// Trouble is something that the owner of the machine should know.
type Trouble struct {
	key  string // of the same trouble in the next report
	Text string // one sentence
}

// Watch finds what is wrong, and tells each trouble once. The zero value is ready.
type Watch struct {
	seen   map[string]time.Time // by key: when it was there last
	active map[string]time.Time // by lease and device: when it did something last, or was seen first
}

// Add takes one report in, and returns what is new.
func (w *Watch) Add(s *status.Report) (fresh []Trouble) {
	if w.seen == nil {
		w.seen, w.active = map[string]time.Time{}, map[string]time.Time{}
	}
	now := s.Taken
	for key, last := range w.seen {
		if now.Sub(last) > forgotten {
			delete(w.seen, key)
		}
	}
	for _, t := range w.troubles(s) {
		if _, told := w.seen[t.key]; !told {
			fresh = append(fresh, t)
		}
		w.seen[t.key] = now
	}
	return fresh
}

// troubles are all of one report, in the order of the devices.
func (w *Watch) troubles(s *status.Report) (all []Trouble) {
	live := map[string]bool{}
	EachDevice(s, func(d *status.Device) {
		name := fmt.Sprintf("GPU %d", d.Index)
		if d.Profile != "" {
			name = "slice " + d.Profile + " " + string(d.UUID)
		}
		add := func(what, text string) { all = append(all, Trouble{what + " " + string(d.UUID), text}) }
		if d.Health == health.Unhealthy && d.Profile == "" {
			add("unhealthy", fmt.Sprintf("%s is unhealthy: %s", name, strings.Join(d.Why, "; ")))
		}
		if slices.Contains(d.Throttled, "hw_thermal_slowdown") || d.Margin != nil && *d.Margin <= nearLimit {
			add("hot", name+" is so hot that the driver slows it down, or soon will")
		}
		for _, p := range d.Processes {
			if p.Foreign && len(d.Leases) > 0 {
				add(fmt.Sprint("intruder ", p.PID), fmt.Sprintf("process %d of %s (%s) uses %s without a lease, which %s has leased", p.PID, p.User, p.Command, name, d.Leases[0].User))
			}
		}
		for _, l := range d.Leases {
			if l.Share > 0 && l.Memory != nil && *l.Memory > l.Share {
				add("over "+l.ID, fmt.Sprintf("%s of %s (lease %s) uses %s of %s, of which it was promised %s", l.Command, l.User, l.ID, *l.Memory, name, l.Share))
			}
			if d.Utilization == nil || l.Parent != "" {
				continue
			}
			place := l.ID + " " + string(d.UUID)
			live[place] = true
			if _, known := w.active[place]; !known || *d.Utilization > idleLoad {
				w.active[place] = s.Taken
			}
			if idle := s.Taken.Sub(w.active[place]); idle >= idleFor {
				add("idle "+l.ID, fmt.Sprintf("%s of %s (lease %s) has not used %s for %d hours", l.Command, l.User, l.ID, name, int(idle.Hours())))
			}
		}
	})
	for place := range w.active {
		if !live[place] {
			delete(w.active, place)
		}
	}
	return all
}
