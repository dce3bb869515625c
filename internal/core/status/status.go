// Package status joins a machine with the leases on it: who uses what, since when, and why a device cannot be leased:
//
//	report := status.NewReport(machine, leases, time.Now())
//	report.Inside(os.Getenv("GPUARD_LEASE"))
//
// It must not decide anything itself: a device is busy if package pick refuses it.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
)

// Report is a machine with the use of its devices, as `gpuard status` shows it and as its JSON. Lists are never nil.
type Report struct {
	Schema string `json:"schema"` // "gpuard.status/1"
	// Ages count up to here.
	Now time.Time `json:"now"`
	// When the readings were made.
	Taken time.Time `json:"taken"`
	// "nvml", "nvidia-smi", "file", "invented".
	Source string `json:"source"`
	Driver string `json:"driver"` // "" when unknown
	CUDA   string `json:"cuda"`   // "" when unknown
	// The devices in index order per vendor.
	Devices []Device `json:"devices"`
	// Requests that wait for devices, the next first.
	Waiting []Waiting `json:"waiting"`
	// Vendors whose devices cannot be read.
	Unavailable []Unavailable `json:"unavailable"`
	// What could not be read.
	Problems []string `json:"problems"`
	// What is odd about the leases, and devices that no reader knows.
	Notes []string `json:"notes"`
}

// Lease is one live lease on a device.
type Lease struct {
	ID   string `json:"id"`
	User string `json:"user"`
	// The name of the job, or the base name of its command.
	Command string `json:"command"`
	// The whole command, of the caller's own jobs.
	Line string `json:"command_line,omitempty"`
	PID  int    `json:"pid"`
	// PID is the number in a container or another PID namespace.
	Apart bool       `json:"other_pid_namespace,omitempty"`
	Since *time.Time `json:"since"`
	// When it is certainly over (--timeout, reserve --for); null unknown.
	Until *time.Time `json:"until"`
	// Lease that this one is a part of.
	Parent string `json:"parent,omitempty"`
	// That its processes use on this device; null when unknown, or none is listed.
	Memory *gpu.Bytes `json:"memory"`
	// Promised on this device; 0: an exclusive lease.
	Share gpu.Bytes `json:"share,omitempty"`
	// How strictly the share is enforced; "" not at all.
	Quota job.Quota `json:"quota,omitempty"`
	// What stops its command from opening other devices: "namespace", "landlock", "cgroup"; "" nothing.
	Isolation job.Isolation `json:"isolation,omitempty"`
	// The command has ended, another process holds the lock.
	Ended bool `json:"ended"`
	// Processes that hold the lock, as far as known.
	HeldBy []Keeper `json:"held_by"`
	// Its command has ended, and it waits for the next start until then; null for others.
	KeptUntil *time.Time `json:"kept_until"`
	// What ends a lease whose command has ended; "" for others.
	Remedy string `json:"remedy"`
	// Only its devices are known.
	Unreadable bool `json:"unreadable"`
	// The caller is inside it.
	Here bool `json:"here"`
	// Why its service, one of the caller's, is unhealthy.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Verdict on where its job was seen at work, from its 20th second on; "" nobody looked yet.
	Seen     string `json:"seen,omitempty"`
	SeenText string `json:"seen_text,omitempty"` // it in one sentence

	// The time that was asked for it, an estimate; 0 none.
	Asked time.Duration `json:"-"`
	// Processor time of its processes that live; nil unknown, as while its devices are in use.
	Computed *time.Duration `json:"-"`
}

// Keeper is a process that keeps a lease whose command has ended.
type Keeper struct {
	PID     int    `json:"pid"`
	Command string `json:"command"` // "" when unknown
	// A signal has stopped it: it does nothing until it is continued.
	Stopped bool `json:"stopped"`
}

// Unavailable is a vendor whose devices cannot be read at all.
type Unavailable struct {
	Cause  gpu.Cause `json:"cause"`
	Text   string    `json:"text"`
	Remedy string    `json:"remedy"`
}

// NewReport joins a machine with the live leases on it. A device counts as busy if pick.Place refuses it to a caller
// who asks for every device. unavailable lists vendors that could not be read.
func NewReport(m gpu.Machine, leases []job.Lease, now time.Time, unavailable ...*gpu.Unavailable) Report {
	return NewReportWith(pick.DefaultTolerance(), m, leases, now, unavailable...)
}

// NewReportWith is Of with another tolerance than the default.
func NewReportWith(tolerate pick.Tolerance, m gpu.Machine, leases []job.Lease, now time.Time, unavailable ...*gpu.Unavailable) Report {
	s := Report{
		Schema: "gpuard.status/1", Now: now, Taken: m.Taken, Source: m.Source, Driver: m.Driver, CUDA: m.CUDA,
		Devices: []Device{}, Waiting: []Waiting{}, Unavailable: []Unavailable{}, Problems: append([]string{}, m.Problems...), Notes: []string{},
	}

	for _, u := range unavailable {
		s.Unavailable = append(s.Unavailable, Unavailable{u.Cause, u.Text, u.Remedy})
	}

	v := statusView{m: &m, now: now, leases: leases, reasons: reasonsByDevice(tolerate, m, leases, now)}
	for i := range m.Devices {
		s.Devices = append(s.Devices, v.newDevice(&m.Devices[i]))
	}

	slices.SortStableFunc(s.Devices, func(a, b Device) int {
		return cmp.Or(-cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Index, b.Index))
	})

	s.Notes = append(s.Notes, v.oddNotes()...)

	return s
}

// reasonsByDevice requests every device and slice and returns the reason for each.
func reasonsByDevice(tolerate pick.Tolerance, m gpu.Machine, leases []job.Lease, now time.Time) map[string]job.Reason {
	var all []string
	for i := range m.Devices {
		d := &m.Devices[i]
		switch {
		case d.UUID == "":
			// It did not answer before it reported a UUID.
			all = append(all, fmt.Sprintf("%s:%d", d.Vendor, d.Index))
		case len(d.MIG) == 0:
			all = append(all, string(d.UUID))
		}
		for j := range d.MIG {
			all = append(all, string(d.MIG[j].UUID))
		}
	}

	plan, refusal := pick.Place(job.Spec{Devices: all}, m, leases, pick.Context{Now: now, Tolerate: tolerate})
	reasons := plan.Reasons
	if refusal != nil {
		reasons = refusal.Reasons
	}

	out := map[string]job.Reason{}
	for _, r := range reasons {
		out[nameOf(r.UUID, r.Index)] = r
	}

	return out
}

// nameOf is the UUID of a device, or its index where it has not reported one.
func nameOf(id gpu.UUID, index int) string {
	if id != "" {
		return string(id)
	}
	return fmt.Sprint(index)
}

type statusView struct {
	m       *gpu.Machine
	now     time.Time
	leases  []job.Lease
	reasons map[string]job.Reason
}

func (v statusView) newDevice(d *gpu.Device) Device {
	out := Device{
		Index: d.Index, UUID: d.UUID, Name: prose.Clean(d.Name), Vendor: d.Vendor, PCI: d.PCI,
		MemoryTotal: d.MemoryTotal, MemoryUsed: d.MemoryUsed, MemoryReserved: d.MemoryReserved, MainMemory: d.MainMemory, MainAvailable: d.MainAvailable,
		Utilization: d.Utilization, MemoryLoad: d.MemoryLoad, Temperature: d.Temperature, Power: d.Power, PowerLimit: d.PowerLimit, Energy: d.Energy,
		Margin: temperatureMargin(d), Clock: d.ClockSM, Throttled: throttleEvents(d), MIG: []Device{},
	}

	out.Health, out.Why = health.StateOf(*d, v.now)
	out.Why = append([]string{}, out.Why...)
	out.Drained, out.XIDs, out.Unlisted = prose.Clean(d.Drained), []XID{}, prose.Clean(cmp.Or(d.Unlisted, d.Problem))

	for _, x := range d.XIDs {
		class, meaning := health.ExplainXID(x.Code)
		out.XIDs = append(out.XIDs, XID{x.Code, class, meaning, timeOrNil(x.At), x.PID, prose.Clean(x.Source)})
	}

	v.fillUse(&out, d.UseUnknown(nil))

	for i := range d.MIG {
		s := &d.MIG[i]
		slice := Device{
			Index: s.Index, UUID: s.UUID, Name: out.Name, Vendor: d.Vendor, PCI: d.PCI, Profile: s.Profile,
			Health: out.Health, Why: out.Why, Drained: out.Drained, Unlisted: out.Unlisted, XIDs: []XID{}, Throttled: []string{}, MemoryTotal: s.MemoryTotal, MemoryUsed: s.MemoryUsed, MIG: []Device{},
		}
		v.fillUse(&slice, d.UseUnknown(s))
		out.MIG = append(out.MIG, slice)
	}

	if len(out.MIG) > 0 && out.Use == Free && !slices.ContainsFunc(out.MIG, func(s Device) bool { return s.Use == Free }) {
		out.Use = out.MIG[0].Use
	}

	return out
}

// temperatureMargin is what the driver says, else the distance to the temperature at which it slows the device down.
func temperatureMargin(d *gpu.Device) *int {
	if d.TempMargin == nil && d.TempSlowdown != nil && d.Temperature != nil {
		return new(*d.TempSlowdown - *d.Temperature)
	}
	return d.TempMargin
}

// throttleEvents are the events that lower the clocks of a device that has work: settings and idleness are none.
func throttleEvents(d *gpu.Device) []string {
	events := []string{}
	for _, e := range d.ClockEvents {
		if !slices.Contains([]string{"gpu_idle", "applications_clocks", "sync_boost", "display_clock_setting"}, e) {
			events = append(events, prose.Clean(e))
		}
	}
	return events
}

// fillUse adds the use of the device: leases, processes, and what follows from them.
func (v statusView) fillUse(d *Device, unknown bool) {
	d.Leases, d.Processes = []Lease{}, []Process{}
	var held []job.Lease
	for _, l := range v.leases {
		if l.Holds(d.UUID) {
			held = append(held, l)
			d.Leases = append(d.Leases, leaseOf(l, v.now))
		}
	}

	screen := v.deviceScreen(d.UUID)
	for _, p := range v.m.Processes {
		if p.GPU == d.UUID {
			d.Processes = append(d.Processes, Process{
				PID: p.PID, User: prose.Clean(p.User), Command: prose.Clean(p.Command), Memory: p.Memory, Kind: p.Kind, Since: timeOrNil(p.Started), Foreign: true,
				Container: prose.Clean(p.Container), UID: p.UID, Start: p.Start, Ended: p.State == "gone" || p.State == "Z",
				Outside: p.Outside, Display: screen.Serves(p), Spared: p.PID == 0 || screen.MayServe(p),
			})
		}
	}

	slices.SortStableFunc(d.Leases, func(a, b Lease) int {
		return cmp.Or(strings.Compare(a.Parent, b.Parent), strings.Compare(a.ID, b.ID))
	})

	slices.SortStableFunc(d.Processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	r, judged := v.reasons[nameOf(d.UUID, d.Index)]
	blocked := judged && (r.Verdict == job.Busy || r.Verdict == job.Never)
	if blocked {
		d.Reason, d.Discreet = r.Text, r.PublicView().Text
	}

	switch {
	case d.Drained != "":
		d.Use = Draining
	case isShared(held):
		d.Use = Shared
	case len(held) > 0:
		d.Use = Leased
	case r.Verdict == job.Busy && (d.Health == health.OK || len(d.Processes) > 0):
		d.Use = Busy
	case unknown:
		d.Use = Unknown
	default:
		d.Use = Free
	}
}

// deviceScreen is what is known of the display of a device, or of that of a slice.
func (v statusView) deviceScreen(id gpu.UUID) display.Screen {
	d, _, found := v.m.FindDevice(id)
	if !found {
		return display.Screen{}
	}
	return display.ScreenOf(*d, v.m.ProcessesOn(d.UUID))
}

func leaseOf(l job.Lease, now time.Time) Lease {
	out := Lease{
		ID: l.ID, User: prose.Clean(l.User), Command: prose.Clean(l.Command), PID: l.PID, Since: timeOrNil(l.Since), Until: enforcedEnd(l), Parent: l.Parent,
		Share: l.Share, Quota: l.Quota, Isolation: l.Isolation, Ended: l.Ended, HeldBy: []Keeper{}, Unreadable: l.Unreadable,
		KeptUntil: timeOrNil(l.WaitsUntil(now)), Asked: l.Time,
	}
	out.Seen, out.SeenText = prose.Clean(l.Seen), prose.Clean(l.SeenText)

	for _, b := range l.HeldBy {
		out.HeldBy = append(out.HeldBy, Keeper{b.PID, prose.Brief(b.Command), b.Stopped})
	}

	return out
}

// AddCommandLines adds the whole commands of leases, by id, and marks those of other PID namespaces.
func (r *Report) AddCommandLines(lines map[string]string, apart map[string]bool) {
	r.eachLease(func(l *Lease) { l.Line, l.Apart = prose.Clean(lines[l.ID]), apart[l.ID] })
}

// MarkCallerLease marks the lease that the caller is in; an empty id marks none.
func (r *Report) MarkCallerLease(id string) {
	r.eachLease(func(l *Lease) { l.Here = id != "" && l.ID == id })
}

// AddUnhealthy adds by lease why a service is unhealthy.
func (r *Report) AddUnhealthy(why map[string]string) {
	r.eachLease(func(l *Lease) { l.Unhealthy = prose.Clean(why[l.ID]) })
}

func (r *Report) eachLease(do func(*Lease)) {
	each := func(leases []Lease) {
		for i := range leases {
			do(&leases[i])
		}
	}
	for i := range r.Devices {
		each(r.Devices[i].Leases)
		for j := range r.Devices[i].MIG {
			each(r.Devices[i].MIG[j].Leases)
		}
	}
}

// NoteUnreadDevices adds one note for each vendor in others without a reported device: gpuard knows only its variables.
func (r *Report) NoteUnreadDevices(others []gpu.Device) {
	for _, v := range []struct {
		vendor        gpu.Vendor
		name, runtime string
	}{{gpu.Intel, "Intel GPU", "level-zero"}, {gpu.Ascend, "Ascend device", "ascend"}} {
		var places []string
		for _, o := range others {
			known := slices.ContainsFunc(r.Devices, func(d Device) bool { return strings.EqualFold(d.PCI, o.PCI) })
			if o.Vendor == v.vendor && !known {
				places = append(places, prose.Clean(o.PCI))
			}
		}
		if len(places) > 0 {
			r.Notes = append(r.Notes, option.Sprintf("%s %s: gpuard does not read these; it knows their variables only ({gpuard explain} {runtime=%s})",
				v.name, strings.Join(places, ", "), v.runtime))
		}
	}
}

// isShared reports whether there are leases, and each is a share or a part of another one here.
func isShared(held []job.Lease) bool {
	alone := func(l job.Lease) bool {
		return l.Share <= 0 && !slices.ContainsFunc(held, func(p job.Lease) bool { return l.Parent == p.ID && p.ID != l.ID })
	}
	return len(held) > 0 && !slices.ContainsFunc(held, alone)
}

// oddNotes lists inconsistencies: two leases on one device, leases that cannot be read or have unknown devices.
func (v statusView) oddNotes() []string {
	var notes []string
	for i := range v.m.Devices {
		d := &v.m.Devices[i]
		var first *job.Lease
		for j := range v.leases {
			l := &v.leases[j]
			if l.Parent != "" || l.Allocation != "" || l.Unreadable || !l.Holds(d.UUID) {
				continue
			}
			if first != nil && first.Share > 0 && l.Share > 0 {
				continue
			}

			if first != nil {
				notes = append(notes, fmt.Sprintf("GPU %d is leased twice, by %s (%s) and by %s (%s): one of them should end",
					d.Index, prose.Clean(first.User), first.ID, prose.Clean(l.User), l.ID))
				break
			}

			first = l
		}
	}
	for i := range v.leases {
		l := &v.leases[i]
		if l.Unreadable {
			notes = append(notes, fmt.Sprintf("lease %s of %s cannot be read; its devices stay leased until it ends", l.ID, prose.Clean(l.User)))
			continue
		}

		for _, id := range l.Devices {
			if _, _, ok := v.m.FindDevice(id); !ok {
				notes = append(notes, fmt.Sprintf("lease %s of %s holds %s, which this machine does not show", l.ID, prose.Clean(l.User), prose.Clean(string(id))))
			}
		}
	}

	return notes
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// enforcedEnd is the enforced end of a lease by the wall clock; nil: it has none.
func enforcedEnd(l job.Lease) *time.Time {
	if l.Until <= l.SinceBoot || l.Since.IsZero() {
		return nil
	}
	end := l.Since.Add(time.Duration(l.Until - l.SinceBoot))
	return &end
}
