package glance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// Finding is one thing that somebody does to the others: a process on what another user has leased, a share that is exceeded, use without a
// lease, a lease that is held after its end. The first line counts them. The sentences are in English.
type Finding struct {
	// Intruder, Over, Unleased or Kept.
	Key   Key
	Grave bool // somebody is harmed
	// "GPU 1, leased by dave: process 31337 of mallory has no lease (python, 3 GiB)".
	Seen string
	// What to do about it; "" where nothing is known.
	Do    string
	Since *time.Time
	// The place of the device in the devices of the report.
	Place int
	// Id; "" for a process.
	Lease string
	// The PID of a process that may be ended; 0 none.
	PID  int
	User string // whose it is
}

// ID names a finding for as long as it lasts.
func (f *Finding) ID() string {
	return fmt.Sprint(f.Key, " ", f.Place, " ", cmp.Or(f.Lease, f.User+" "+fmt.Sprint(f.PID)))
}

// Findings are those of a report, the gravest first, in the order of the devices.
func Findings(s *status.Report) (all []Finding) {
	// A lease of several devices is one lease.
	told := map[string]bool{}
	eachSpot(s, func(place int, d *status.Device) {
		p := spotsFinder{place, s.Devices[place].Index, d}
		if d.Use == status.Busy {
			all = append(all, p.unleasedUse())
		}

		around := slices.Concat(d.Leases, outerLeases(&s.Devices[place], d))
		for i := range around {
			l := &around[i]
			if kept := l.Ended && l.KeptUntil == nil; kept && !told["kept "+l.ID] {
				told["kept "+l.ID] = true
				all = append(all, p.keptLeaseFinding(l))
			}
			if l.Over() && !told["over "+l.ID] {
				told["over "+l.ID] = true
				all = append(all, p.overshareFinding(l))
			}
		}

		for i := range d.Processes {
			if isIntruder(d.Processes[i], around) {
				all = append(all, p.intruderFinding(&d.Processes[i], around))
			}
		}
	})

	order := troubleTallies()
	rank := func(f Finding) int { return slices.IndexFunc(order, func(t tally) bool { return t.key == f.Key }) }
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })

	return all
}

// spotsFinder says what is found on one device or slice.
type spotsFinder struct {
	place, index int // of the GPU
	*status.Device
}

// deviceText is how people call it.
func (s spotsFinder) deviceText() string {
	if s.Profile != "" {
		return fmt.Sprintf("GPU %d:%d", s.index, s.Index)
	}
	return fmt.Sprintf("GPU %d", s.index)
}

// unleasedUse is that the device is in use without a lease, in the words of status.
func (s spotsFinder) unleasedUse() Finding {
	why := cmp.Or(s.Discreet, s.Reason, "in use without a lease")
	if who, cut := strings.CutPrefix(why, "in use by "); cut {
		why = "in use without a lease by " + who
	}

	f := Finding{Key: Unleased, Place: s.place, Seen: s.deviceText() + ": " + why}
	for i := range s.Processes {
		p := &s.Processes[i]
		if !p.Foreign || p.Display || p.Ended {
			continue
		}
		if p.Since != nil && (f.Since == nil || p.Since.Before(*f.Since)) {
			f.Since = p.Since
		}
		if f.PID == 0 && !p.Spared {
			f.PID, f.User = p.PID, p.User
		}
	}

	f.Do = end(f.PID)

	return f
}

// intruderFinding is a process on what others have leased.
func (s spotsFinder) intruderFinding(p *status.Process, around []status.Lease) Finding {
	var users []string
	for i := range around {
		users = append(users, around[i].User)
	}

	slices.Sort(users)
	process := "a process"
	if p.PID != 0 {
		process = fmt.Sprintf("process %d", p.PID)
	}

	var about []string
	if name := prose.ProgramName(p.Command); name != "" {
		about = append(about, name)
	}

	if p.Memory != nil {
		about = append(about, p.Memory.String())
	}

	f := Finding{Key: Intruder, Grave: true, Place: s.place, User: p.User, Since: p.Since,
		Seen: fmt.Sprintf("%s, leased by %s: %s of %s has no lease", s.deviceText(), strings.Join(slices.Compact(users), ", "), process, p.User)}

	if len(about) > 0 {
		f.Seen += " (" + strings.Join(about, ", ") + ")"
	}

	if !p.Spared {
		f.PID = p.PID
	}

	f.Do = end(f.PID)

	return f
}

// overshareFinding is a share that is exceeded.
func (s spotsFinder) overshareFinding(l *status.Lease) Finding {
	return Finding{Key: Over, Grave: true, Place: s.place, Lease: l.ID, User: l.User,
		Seen: fmt.Sprintf("%s: %s of %s uses %s, and its share is %s", s.deviceText(), l.Command, l.User, l.Memory, l.Share),
		Do:   option.Sprintf("ask %s to make it smaller, or to start it with a larger {share}", l.User)}
}

// keptLeaseFinding is a lease that lasts although its command has ended.
func (s spotsFinder) keptLeaseFinding(l *status.Lease) Finding {
	return Finding{Key: Kept, Place: s.place, Lease: l.ID, User: l.User, Seen: fmt.Sprintf("%s: the command of %s of %s has ended, and something holds its lease", s.deviceText(), l.Command, l.User),
		Do: cmp.Or(l.Remedy, option.Sprintf("{gpuard release} %s", l.ID))}
}

// end is the command that ends a process; "" for none.
func end(pid int) string {
	if pid == 0 {
		return ""
	}
	return option.Sprintf("{gpuard evict} %d", pid)
}

// outerLeases are the leases of the GPU that a slice is of.
func outerLeases(whole, d *status.Device) []status.Lease {
	if d == whole {
		return nil
	}
	return whole.Leases
}

// isIntruder reports whether a process uses a device that others have leased. What cannot be told, such as whose it is, accuses nobody.
// The processes of a container belong to the users that its image names.
func isIntruder(p status.Process, around []status.Lease) bool {
	engine := func(l status.Lease) bool {
		return slices.Contains([]string{"docker", "podman", "nerdctl"}, l.Command)
	}
	owns := func(l status.Lease) bool { return l.User == p.User }
	return p.Foreign && !p.Ended && !p.Display && p.Lease == "" && p.User != "" && len(around) > 0 && !slices.ContainsFunc(around, owns) &&
		(p.Container == "" || !slices.ContainsFunc(around, engine))
}
