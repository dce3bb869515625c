package glance

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// closeToSlowdown is how many degrees below the temperature at which it slows down a degraded device counts as hot.
const closeToSlowdown = 3

// tally counts one kind of trouble.
type tally struct {
	key          Key
	one, several string // behind the number
	grave        bool
	count        int
	places       []int
	leases       []string
}

// troubleTallies are all kinds, the gravest first. A state has the word that the row of the device has, with the reason behind it.
func troubleTallies() []tally {
	return []tally{
		{key: Lost, one: "GPU unhealthy: lost", several: "GPUs unhealthy: lost", grave: true},
		{key: Unhealthy, one: "GPU unhealthy", several: "GPUs unhealthy", grave: true},
		{key: Unreadable, one: "driver cannot be read", several: "drivers cannot be read", grave: true},
		{key: Silent, one: "GPU does not answer", several: "GPUs do not answer", grave: true},
		{key: Intruder, one: "process of an intruder", several: "processes of intruders", grave: true},
		{key: Over, one: "job over its share", several: "jobs over their share", grave: true},
		{key: Hot, one: "GPU degraded: hot", several: "GPUs degraded: hot", grave: true},
		{key: Degraded, one: "GPU degraded", several: "GPUs degraded"},
		{key: Unleased, one: "GPU busy without a lease", several: "GPUs busy without a lease"},
		{key: Kept, one: "lease held after its end", several: "leases held after their end"},
		{key: Drained, one: "GPU drained", several: "GPUs drained"},
	}
}

// findTroubles are those of a report, the gravest first.
func findTroubles(s *status.Report) (parts []Part) {
	all := troubleTallies()
	note := func(key Key, place int, lease string) {
		t := &all[slices.IndexFunc(all, func(t tally) bool { return t.key == key })]
		t.count++
		if place >= 0 && !slices.Contains(t.places, place) {
			t.places = append(t.places, place)
		}
		if lease != "" {
			t.leases = append(t.leases, lease)
		}
	}

	for range s.Unavailable {
		note(Unreadable, -1, "")
	}

	for i := range s.Devices {
		d := &s.Devices[i]
		if key := troubleOf(d); key != "" {
			note(key, i, "")
		}
		if d.Drained != "" {
			note(Drained, i, "")
		}
	}

	for _, f := range Findings(s) {
		note(f.Key, f.Place, f.Lease)
	}

	for _, t := range all {
		if t.count > 0 {
			parts = append(parts, t.toPart())
		}
	}

	if len(parts) == 0 {
		return []Part{{Key: Well, Text: "nothing is broken"}}
	}

	return parts
}

func (t tally) toPart() Part {
	word := t.one
	if t.count != 1 && t.several != "" {
		word = t.several
	}
	return Part{t.key, t.count, fmt.Sprintf("%d %s", t.count, word), t.places, t.leases, t.grave}
}

// troubleOf is what is wrong with a device; "" nothing.
func troubleOf(d *status.Device) Key {
	why := strings.ToLower(strings.Join(d.Why, "; "))
	switch {
	case d.Health == health.OK:
		return ""
	case strings.Contains(why, "lost") || strings.Contains(why, "fallen off"):
		return Lost
	case d.Health == health.Unhealthy:
		return Unhealthy
	case d.Health == health.Unknown:
		return Silent
	case slices.Contains(d.Throttled, "hw_thermal_slowdown"), d.Margin != nil && *d.Margin <= closeToSlowdown:
		return Hot
	}
	return Degraded
}
