package trend

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// NewEndedLease is the line of a lease that ended at that time; where its end was not seen, it had ended by then.
func NewEndedLease(l job.Lease, user string, at time.Time, seen bool) EndedLease {
	e := EndedLease{Lease: l.ID, User: user, UID: &l.UID, Command: l.Command, Devices: []DeviceUse{}, Share: l.Share, Since: l.Since, Until: at.Truncate(time.Millisecond), Unseen: !seen,
		Peak: l.Peak, Memory: l.Memory, Time: l.Time, Exit: l.Exit, Signal: l.Signal, Seen: l.Seen}
	for i, id := range l.Devices {
		d := DeviceUse{UUID: id, Index: -1}
		if i < len(l.Indexes) {
			d.Index = l.Indexes[i]
		}

		if seen {
			d.Granted = max(0, e.Until.Sub(l.Since).Seconds())
		}

		if l.Load != nil {
			d.Busy, d.Idle = d.Granted**l.Load, d.Granted*(1-*l.Load)
		}

		e.Devices = append(e.Devices, d)
	}
	return e
}

// MergeEnded makes one list, oldest first, of what was written at the ends of leases and of what was watched. A lease
// that is in both counts once: the written line knows its end, and the watched one what it used.
func MergeEnded(written, watched []EndedLease) []EndedLease {
	all := map[string]EndedLease{}
	for i := range written {
		name := leaseKey(&written[i])
		if before, twice := all[name]; twice && !before.Unseen {
			continue
		}
		all[name] = written[i]
	}

	seen := map[string]bool{}
	for i := range watched {
		w := watched[i]
		name := leaseKey(&w)
		switch e, both := all[name]; {
		case seen[name]:
			// By a gpuard serve that was killed, and by the next one.
			continue
		case both:
			w = joinEnded(e, w)
		case w.Share == 0:
			// It had its devices also while nobody looked.
			w.Devices = slices.Clone(w.Devices)
			for j := range w.Devices {
				w.Devices[j].Granted = max(w.Devices[j].Granted, w.Until.Sub(w.Since).Seconds())
			}
		}
		all[name], seen[name] = w, true
	}

	divideShares(all, seen)
	out := make([]EndedLease, 0, len(all))
	for _, e := range all {
		out = append(out, e)
	}

	slices.SortFunc(out, func(a, b EndedLease) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Lease, b.Lease)) })

	return out
}

// joinEnded is a lease that was written and watched. Only who watched knows of a share how many others there were.
func joinEnded(written, watched EndedLease) EndedLease {
	e := written
	e.Devices = slices.Clone(watched.Devices)
	e.Peak = cmp.Or(watched.Peak, written.Peak)
	if written.Unseen {
		// It lived until then.
		e.Until, e.Unseen = watched.Until, false
		return e
	}

	for i := range e.Devices {
		d := &e.Devices[i]
		j := slices.IndexFunc(written.Devices, func(o DeviceUse) bool { return o.UUID == d.UUID })
		if j < 0 {
			continue
		}

		own := written.Devices[j]
		if written.Share == 0 {
			d.Granted = own.Granted
		}

		if d.Busy+d.Idle == 0 {
			d.Busy, d.Idle = own.Busy, own.Idle
		}

		if most := d.Busy + d.Idle; most > d.Granted {
			// The last look was a moment after the end.
			d.Busy, d.Idle = d.Busy*d.Granted/most, d.Idle*d.Granted/most
		}
	}

	return e
}

// change is a moment at which a share of a device begins or ends.
type change struct {
	at    time.Time
	name  string // of the lease
	begin bool
}

// divideShares grants each lease that shared a device its part of the time: of two, half. Those that were watched have
// that already.
func divideShares(all map[string]EndedLease, watched map[string]bool) {
	changes := map[gpu.UUID][]change{}
	for name, e := range all {
		if e.Share == 0 || e.Unseen || !e.Until.After(e.Since) {
			continue
		}
		for _, d := range e.Devices {
			changes[d.UUID] = append(changes[d.UUID], change{e.Since, name, true}, change{e.Until, name, false})
		}
	}
	for id, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
		granted, live := map[string]float64{}, map[string]bool{}
		for i, c := range list {
			if i > 0 {
				for name := range live {
					granted[name] += c.at.Sub(list[i-1].at).Seconds() / float64(len(live))
				}
			}
			live[c.name] = c.begin
			if !c.begin {
				delete(live, c.name)
			}
		}
		for name, seconds := range granted {
			if watched[name] {
				continue
			}

			e := all[name]
			i := slices.IndexFunc(e.Devices, func(d DeviceUse) bool { return d.UUID == id })
			e.Devices = slices.Clone(e.Devices)
			e.Devices[i].scaleTo(seconds)
			all[name] = e
		}
	}
}

// scaleTo changes how long the device was granted; the parts that were measured stay the same parts.
func (d *DeviceUse) scaleTo(granted float64) {
	if d.Granted > 0 {
		d.Busy, d.Idle = d.Busy*granted/d.Granted, d.Idle*granted/d.Granted
	}
	d.Granted = granted
}
