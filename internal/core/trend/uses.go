package trend

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// EndedLease is one lease that has ended, and what was measured of it. Seconds are of one device: a lease of two
// devices for an hour was granted 7200. What nobody measured, or nobody knows, has no key.
type EndedLease struct {
	Lease string `json:"lease"`
	User  string `json:"user"`
	// Name of the job, or base name of its command.
	Command string      `json:"command"`
	Devices []DeviceUse `json:"devices"`
	// The share of each device; 0: all of it.
	Share gpu.Bytes `json:"share,omitempty"`
	Since time.Time `json:"since"`
	// Its end; of one that was only watched, when it was seen last.
	Until time.Time `json:"until"`
	// Nobody saw its end, which was some time before Until.
	Unseen bool `json:"unseen,omitempty"`
	// Most memory of one device that its processes used; 0 not measured.
	Peak gpu.Bytes `json:"peak,omitempty"`

	UID *uint32 `json:"uid,omitempty"` // of the user
	// Asked for on each device.
	Memory gpu.Bytes `json:"memory,omitempty"`
	// Asked for, an estimate or a limit.
	Time time.Duration `json:"time_ns,omitempty"`
	// exit code of its command.
	Exit *int `json:"exit,omitempty"`
	// That ended its command.
	Signal string `json:"signal,omitempty"`
	// What was wrong with where it worked: "outside-lease", "cpu", "partly-used".
	Seen string `json:"seen,omitempty"`
}

// DeviceUse is what a lease did on one device, in seconds.
type DeviceUse struct {
	UUID    gpu.UUID `json:"uuid"`
	Index   int      `json:"index"`
	Granted float64  `json:"granted"`
	// How much of these was busy, by the measured load.
	Busy float64 `json:"busy,omitempty"`
	// Likewise; what is neither was not measured.
	Idle float64 `json:"idle,omitempty"`
}

// Uses follow the leases of a machine until they end. The zero value is ready.
type Uses struct {
	open map[string]*EndedLease
	// When the machine was read.
	last time.Time
}

// Restore takes leases that an earlier process has followed.
func (u *Uses) Restore(open []EndedLease) {
	u.open = map[string]*EndedLease{}
	for i := range open {
		u.open[leaseKey(&open[i])] = &open[i]
	}
}

// OpenLeases are the leases that have not ended, in a fixed order.
func (u *Uses) OpenLeases() []EndedLease {
	out := []EndedLease{}
	for _, name := range slices.Sorted(maps.Keys(u.open)) {
		e := *u.open[name]

		// They are still counted.
		e.Devices = slices.Clone(e.Devices)
		out = append(out, e)
	}
	return out
}

// leaseKey tells a lease from a later one with the same ID.
func leaseKey(e *EndedLease) string { return e.Lease + " " + e.Since.UTC().Format(time.RFC3339Nano) }

// Add takes one report in, and returns the leases that have ended since the one before.
func (u *Uses) Add(s *status.Report) (ended []EndedLease) {
	if u.open == nil {
		u.open = map[string]*EndedLease{}
	}

	passed := s.Taken.Sub(u.last)
	if u.last.IsZero() || passed < 0 || passed > time.Minute {
		// Nobody looked meanwhile.
		passed = 0
	}

	u.last = s.Taken
	live := map[string]bool{}
	s.EachDevice(func(d *status.Device) {
		n := 0
		for _, l := range d.Leases {
			if countsAsUse(l) {
				n++
			}
		}
		for _, l := range d.Leases {
			if countsAsUse(l) {
				live[u.addSeconds(d, l, s.Taken, passed.Seconds()/float64(n))] = true
			}
		}
	})

	for name, e := range u.open {
		if !live[name] {
			ended = append(ended, *e)
			delete(u.open, name)
		}
	}

	slices.SortFunc(ended, func(a, b EndedLease) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Lease, b.Lease))
	})

	return ended
}

// countsAsUse: a part of another lease has that one's devices.
func countsAsUse(l status.Lease) bool { return l.Parent == "" && l.Since != nil }

// addSeconds adds so many seconds to a lease on a device, and returns its key.
func (u *Uses) addSeconds(d *status.Device, l status.Lease, now time.Time, seconds float64) string {
	name := leaseKey(&EndedLease{Lease: l.ID, Since: *l.Since})
	e := u.open[name]
	if e == nil {
		e = &EndedLease{Lease: l.ID, User: l.User, Command: l.Command, Share: l.Share, Since: *l.Since}
		u.open[name] = e
	}

	e.Until = now
	if l.Memory != nil {
		e.Peak = max(e.Peak, *l.Memory)
	}

	i := slices.IndexFunc(e.Devices, func(o DeviceUse) bool { return o.UUID == d.UUID })
	if i < 0 {
		// Until it was seen first, nothing was measured.
		before := max(0, now.Sub(*l.Since).Seconds())
		e.Devices = append(e.Devices, DeviceUse{UUID: d.UUID, Index: d.Index, Granted: before})
		return name
	}

	e.Devices[i].Granted += seconds
	if d.Utilization != nil {
		e.Devices[i].Busy += seconds * *d.Utilization
		e.Devices[i].Idle += seconds * (1 - *d.Utilization)
	}

	return name
}

// Load is the mean load of a lease on a device, 0..1; nil where it was not measured.
func (d *DeviceUse) Load() *float64 {
	if d.Busy+d.Idle <= 0 {
		return nil
	}
	return new(d.Busy / (d.Busy + d.Idle))
}
