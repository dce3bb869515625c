package trend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
)

// Limits of what the owner of a machine is told.
const (
	// Up to this load a device does nothing.
	maxIdleLoad = 0.05
	// Minutes that a lease does nothing before it is told.
	minIdleMinutes = 120
	// Degrees until the driver slows a device down.
	minThermalMargin = 2
	// Minutes that a trouble was gone before it is told again.
	forgetMinutes = 5
)

// TroubleKind is the kind of a trouble.
type TroubleKind string

// Kinds of troubles.
const (
	Unhealthy TroubleKind = "unhealthy" // a device
	Hot       TroubleKind = "hot"       // a device
	// A process without a lease on a device that another user has leased.
	Intruder TroubleKind = "intruder"
	// What became of an intruder that was to be ended.
	Evicted   TroubleKind = "evicted"
	OverShare TroubleKind = "over-share" // a lease
	IdleLease TroubleKind = "idle"       // a lease
	// A process with a lease on a device that its lease does not have.
	WrongDevice TroubleKind = "wrong-device"
	// A lease whose command computes, but not on its devices.
	OnCPU TroubleKind = "on-cpu"
)

// Trouble is something that the owner of the machine should know.
type Trouble struct {
	What   TroubleKind `json:"what"`
	Text   string      `json:"text"`   // one sentence
	Device gpu.UUID    `json:"device"` // UUID
	// "" when it is about none.
	Lease string `json:"lease"`
	// The user of the lease or the process; "" when it is about a device.
	User string `json:"user"`

	// What is to be done about it now.
	Level    policy.Level `json:"-"`
	Outsider *Outsider    `json:"-"` // of an intruder
	// The same of another process was told: a job of many processes is one trouble.
	Again bool `json:"-"`
	// The key of the same trouble in the next report.
	key string `json:"-"`
	// The key of the same trouble with another process; "" none.
	kin string `json:"-"`
}

// Watch finds what is wrong, and tells each trouble once. The zero value is ready.
type Watch struct {
	// The rules about outsiders; they may change between two reports.
	Rules policy.Watch
	// How long a minute lasts; 0: a minute.
	Minute time.Duration

	// The time of the first report.
	began time.Time
	// When each trouble was there last, by key.
	seen map[string]time.Time
	// When a lease on a device did something last, or was seen first, by both.
	active    map[string]time.Time
	computing map[string]cpuRecord // by lease
	// When an outsider on a device was warned, by both.
	warned map[string]time.Time
}

// scaledMinutes is a number of minutes.
func (w *Watch) scaledMinutes(n int) time.Duration {
	return time.Duration(n) * cmp.Or(w.Minute, time.Minute)
}

// Add takes one report in, and returns what is new.
func (w *Watch) Add(s *status.Report) (fresh []Trouble) {
	now := s.Taken
	if w.seen == nil {
		w.began, w.seen, w.active = now, map[string]time.Time{}, map[string]time.Time{}
	}

	for key, last := range w.seen {
		if now.Sub(last) > w.scaledMinutes(forgetMinutes) {
			delete(w.seen, key)
		}
	}

	for _, t := range w.findTroubles(s) {
		if _, told := w.seen[t.key]; !told {
			_, t.Again = w.seen[t.kin]
			fresh = append(fresh, t)
		}
		w.seen[t.key] = now
		if t.kin != "" {
			w.seen[t.kin] = now
		}
	}

	return fresh
}

// findTroubles are all of one report, in the order of the devices.
func (w *Watch) findTroubles(s *status.Report) (all []Trouble) {
	var spots []deviceOrSlice
	for i := range s.Devices {
		d := &s.Devices[i]
		whole := deviceOrSlice{d, fmt.Sprintf("GPU %d", d.Index), slices.Clone(d.Leases)}
		var parts []deviceOrSlice
		for j := range d.MIG {
			m := &d.MIG[j]
			parts = append(parts, deviceOrSlice{m, "slice " + m.Profile + " " + string(m.UUID), slices.Concat(m.Leases, d.Leases)})
			whole.around = append(whole.around, m.Leases...)
		}

		spots = append(append(spots, whole), parts...)
	}

	live, present := map[string]bool{}, map[string]bool{}
	for _, p := range spots {
		all = append(all, p.deviceTroubles()...)
		all = append(all, w.outsiderTroubles(s.Taken, p, present)...)
		all = append(all, p.strayTroubles(spots)...)
		all = append(all, w.shareAndIdleTroubles(s.Taken, p, live)...)
	}

	keepWanted(w.active, live)
	keepWanted(w.warned, present)

	return append(all, w.onCPUTroubles(s.Taken, spots)...)
}

// keepWanted leaves only what is wanted.
func keepWanted[T any](all map[string]T, wanted map[string]bool) {
	for key := range all {
		if !wanted[key] {
			delete(all, key)
		}
	}
}

// deviceOrSlice is a device or a slice.
type deviceOrSlice struct {
	*status.Device
	name string
	// Its own leases, and those of its GPU or of its slices.
	around []status.Lease
}

// newTrouble makes a trouble with this spot.
func (d deviceOrSlice) newTrouble(what TroubleKind, who, text string) Trouble {
	return Trouble{What: what, Text: text, Device: d.UUID, Level: policy.Report, key: fmt.Sprintf("%s %s %s", what, who, d.UUID)}
}

// leaseTrouble makes a trouble with a lease on this spot.
func (d deviceOrSlice) leaseTrouble(what TroubleKind, l status.Lease, text string) Trouble {
	t := d.newTrouble(what, l.ID, fmt.Sprintf("%s of %s (lease %s) %s", l.Command, l.User, l.ID, text))
	t.Lease, t.User = l.ID, l.User
	return t
}

// deviceTroubles are those of the device itself.
func (d deviceOrSlice) deviceTroubles() (all []Trouble) {
	if d.Health == health.Unhealthy && d.Profile == "" {
		all = append(all, d.newTrouble(Unhealthy, "", fmt.Sprintf("%s is unhealthy: %s", d.name, strings.Join(d.Why, "; "))))
	}
	if slices.Contains(d.Throttled, "hw_thermal_slowdown") || d.Margin != nil && *d.Margin <= minThermalMargin {
		all = append(all, d.newTrouble(Hot, "", d.name+" is so hot that the driver slows it down, or soon will"))
	}
	return all
}

// strayTroubles are processes with a lease that does not have this device. Several leases may be held for one process:
// then it has the devices of all.
func (d deviceOrSlice) strayTroubles(spots []deviceOrSlice) (all []Trouble) {
	for _, one := range d.Processes {
		program := programOf(one)
		if one.Lease == "" || one.Ended || one.Display || policy.IsDaemon(program) {
			continue
		}

		its, found := leaseOf(one.Lease, spots)
		if !found || slices.ContainsFunc(d.around, func(l status.Lease) bool { return l.ID == its.ID || l.PID == its.PID && l.PID > 0 }) {
			continue
		}

		t := d.newTrouble(WrongDevice, fmt.Sprint(one.PID, one.Start), fmt.Sprintf("process %d of %s (%s) belongs to lease %s and uses %s, which that lease does not have", one.PID, one.User, program.Name(), its.ID, d.name))
		t.Lease, t.User = its.ID, one.User
		all = append(all, t)
	}
	return all
}

func leaseOf(id string, spots []deviceOrSlice) (status.Lease, bool) {
	for _, p := range spots {
		if i := slices.IndexFunc(p.Leases, func(l status.Lease) bool { return l.ID == id }); i >= 0 {
			return p.Leases[i], true
		}
	}
	return status.Lease{}, false
}

// shareAndIdleTroubles are leases that use more than they were promised, or nothing. Those that are followed are noted
// in live.
func (w *Watch) shareAndIdleTroubles(now time.Time, p deviceOrSlice, live map[string]bool) (all []Trouble) {
	for _, l := range p.Leases {
		if l.Over() {
			all = append(all, p.leaseTrouble(OverShare, l, fmt.Sprintf("uses %s of %s, of which it was promised %s", *l.Memory, p.name, l.Share)))
		}

		if p.Utilization == nil || l.Parent != "" {
			continue
		}

		at := l.ID + " " + string(p.UUID)
		live[at] = true
		if _, known := w.active[at]; !known || *p.Utilization > maxIdleLoad {
			w.active[at] = now
		}

		if idle := now.Sub(w.active[at]); idle >= w.scaledMinutes(minIdleMinutes) {
			all = append(all, p.leaseTrouble(IdleLease, l, fmt.Sprintf("has not used %s for %d hours", p.name, int(idle/w.scaledMinutes(60)))))
		}
	}
	return all
}
