package trend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// Use is how long the leases of one name had devices, in hours of one device.
type Use struct {
	// The name of the user, the device, the command or the day.
	Name string `json:"name"`
	// Leases that have ended.
	Jobs int `json:"jobs"`
	// The leases among these whose end nobody saw: their hours are not known and not counted.
	Unseen  int     `json:"unseen,omitempty"`
	Granted float64 `json:"granted"` // hours
	// How much of these was used, by the measured load.
	Used float64 `json:"used"`
	// Likewise; what is neither used nor idle was not measured.
	Idle float64 `json:"idle"`
	// Most memory that one of them used of a device; 0 not measured.
	Peak gpu.Bytes `json:"peak,omitempty"`
}

// UseTable is the use by one property of leases.
type UseTable struct {
	// User, gpu, command or day.
	By string `json:"by"`
	// The largest first; days in their order.
	Use []Use `json:"use"`
}

// UseReport is the JSON answer of /api/history.
type UseReport struct {
	Schema string `json:"schema"` // "gpuard.use/1"
	// The tables by user, gpu and command; one without rows is left out.
	Tables []UseTable   `json:"tables"`
	Leases []EndedLease `json:"-"` // that were added up
}

// SumKeys is what use can be added up by.
func SumKeys() []string { return []string{"user", "gpu", "command", "day"} }

// SumUse adds up the use of leases; the largest comes first, and days come in their order. Days are those of zone.
func SumUse(list []EndedLease, by string, zone *time.Location) []Use {
	s := totals{}

	// The last that is known of each device.
	indexes := map[gpu.UUID]int{}
	for i := range list {
		for _, d := range list[i].Devices {
			if _, known := indexes[d.UUID]; d.Index >= 0 || !known {
				indexes[d.UUID] = d.Index
			}
		}
	}

	for i := range list {
		e := &list[i]
		if by == "gpu" && len(e.Devices) > 1 {
			// On which of them the peak was is not known.
			alone := *e
			e, alone.Peak = &alone, 0
		}

		for _, d := range e.Devices {
			switch by {
			case "gpu":
				s.addUse(deviceName(d.UUID, indexes[d.UUID]), e, d, 1)
			case "command":
				// Of an array: its tasks are one command.
				name, _, _ := strings.Cut(e.Command, "[")
				s.addUse(name, e, d, 1)
			case "day":
				eachDay(e, zone, func(day string, part float64) { s.addUse(day, e, d, part) })
			default:
				s.addUse(e.User, e, d, 1)
			}
		}
	}

	out := make([]Use, 0, len(s))
	for _, one := range s {
		out = append(out, one.Use)
	}

	slices.SortFunc(out, func(a, b Use) int {
		if by == "day" {
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(cmp.Compare(b.Granted, a.Granted), cmp.Compare(a.Name, b.Name))
	})

	return out
}

func deviceName(id gpu.UUID, index int) string {
	if index < 0 {
		return fmt.Sprintf("GPU (%s)", id)
	}
	return fmt.Sprintf("GPU %d (%s)", index, id)
}

// totals are those of each name.
type totals map[string]*total

type total struct {
	Use
	// That was added: a lease of two devices counts once.
	last *EndedLease
}

func (t totals) addUse(name string, e *EndedLease, d DeviceUse, part float64) {
	u := t[name]
	if u == nil {
		u = &total{Use: Use{Name: name}}
		t[name] = u
	}

	if u.last != e {
		u.last = e
		u.Jobs++
		if e.Unseen {
			u.Unseen++
		}
	}

	u.Peak = max(u.Peak, e.Peak)
	u.Granted += d.Granted * part / 3600
	u.Used += d.Busy * part / 3600
	u.Idle += d.Idle * part / 3600
}

// eachDay calls f with each day on which the lease was alive, and the part of its time on that day.
func eachDay(e *EndedLease, zone *time.Location, f func(day string, part float64)) {
	from, until := e.Since.In(zone), e.Until.In(zone)
	whole := until.Sub(from)
	if e.Unseen || whole <= 0 {
		f(from.Format(time.DateOnly), 1)
		return
	}

	for from.Before(until) {
		next := time.Date(from.Year(), from.Month(), from.Day()+1, 0, 0, 0, 0, zone)
		if !next.After(from) || next.After(until) {
			// A day may begin later than at 0:00 where clocks are put forward.
			next = until
		}
		f(from.Format(time.DateOnly), float64(next.Sub(from))/float64(whole))
		from = next
	}
}
