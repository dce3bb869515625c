package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/trend"
)

// Use is how long the jobs of one name had devices, in hours of one device.
type Use struct {
	Name    string  `json:"name"`    // of the user, the device or the command
	Jobs    int     `json:"jobs"`    // or leases, that have ended
	Granted float64 `json:"granted"` // hours
	Used    float64 `json:"used"`    // of these, by the measured load
	Idle    float64 `json:"idle"`    // likewise; what is neither used nor idle was not measured
}

// By is what the use of jobs can be told by.
func By() []string { return []string{"user", "gpu", "command"} }

// UseOfLeases adds up the use of leases, ended or not; the largest comes first.
func UseOfLeases(list []trend.Ended, by string) []Use {
	sums := map[string]*Use{}
	for i := range list {
		e := &list[i]
		counted := map[string]bool{} // a lease of two devices is one of its user
		for _, d := range e.Devices {
			name := e.User
			switch by {
			case "gpu":
				name = fmt.Sprintf("GPU %d (%s)", d.Index, d.UUID)
			case "command":
				name = e.Command
			}
			u := sums[name]
			if u == nil {
				u = &Use{Name: name}
				sums[name] = u
			}
			if !counted[name] {
				u.Jobs++
				counted[name] = true
			}
			u.Granted += d.Granted / 3600
			u.Used += d.Busy / 3600
			u.Idle += d.Idle / 3600
		}
	}
	return sorted(sums)
}

// UseOf adds up the use of jobs that have ended; the largest comes first.
func UseOf(list []Entry, by, user string) []Use {
	sums := map[string]*Use{}
	add := func(name string, e *Entry, part float64) {
		u := sums[name]
		if u == nil {
			u = &Use{Name: name}
			sums[name] = u
		}
		u.Jobs++
		u.Granted += e.Granted * part / 3600
		u.Used += e.Used * part / 3600
		u.Idle += e.Idle * part / 3600
	}
	for i := range list {
		e := &list[i]
		switch by {
		case "gpu":
			for _, d := range e.Devices {
				add(fmt.Sprintf("GPU %d (%s)", d.Index, d.UUID), e, 1/float64(len(e.Devices)))
			}
		case "command":
			name, _, _ := strings.Cut(e.Name, "[") // of an array
			add(name, e, 1)
		default:
			add(user, e, 1)
		}
	}
	return sorted(sums)
}

func sorted(sums map[string]*Use) (out []Use) {
	for _, u := range sums {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Granted, a.Granted), cmp.Compare(a.Name, b.Name))
	})
	return out
}
