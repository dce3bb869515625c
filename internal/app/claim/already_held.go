package claim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/visible"
)

// AlreadyHeld says that the process to be held for has a lease already.
type AlreadyHeld struct {
	Lease   job.Lease
	Plan    job.Plan // its devices
	Machine gpu.Machine
	// They are what is asked for.
	Same bool
}

// Error is for a request that the lease does not serve.
func (a *AlreadyHeld) Error() string {
	text := fmt.Sprintf("cannot lease for process %d: it already holds lease %s (%s), and something else is asked for", a.Lease.PID, a.Lease.ID, a.Plan.DeviceNumbers())
	if a.Lease.Apart {
		return text + "; give that back first: gpuard release " + a.Lease.ID
	}
	return text + "; gpuard run started it with that, so start it again: gpuard run"
}

// refuseIfHeld finds the lease that the process has, so that a second call does not take a second device. A shell inside of
// gpuard run is different: its variables are about to change, so it gets a part of its lease for itself.
func (q *request) refuseIfHeld(held []job.Lease, now time.Time) error {
	if !q.subject.Apart {
		return nil
	}

	owner, _ := q.host.Proc.Owner(q.subject.PID)

	// Others may write any number into theirs.
	trusted := []uint32{0, uint32(os.Geteuid()), owner}
	i := slices.IndexFunc(held, func(l job.Lease) bool {
		return l.PID == q.subject.PID && l.Start == q.subject.Start && l.Namespace == q.host.Proc.PIDNamespace() &&
			!l.Unreadable && !l.Ended && slices.Contains(trusted, l.UID) && (l.Apart || q.subject.Running)
	})

	if i < 0 {
		return nil
	}

	h := &AlreadyHeld{Lease: held[i], Machine: q.machine}
	ids, same := q.coversSpec(held[i], now)
	h.Same, h.Plan = same, planOf(q.machine, ids)
	h.Plan.Share, h.Plan.Quota, h.Plan.Isolation = h.Lease.Share, h.Lease.Quota, h.Lease.Isolation

	return h
}

// coversSpec reports whether the devices of the lease are those that were asked for, and returns them in the order
// asked for. Their use does not matter: they are leased already.
func (q *request) coversSpec(l job.Lease, now time.Time) ([]gpu.UUID, bool) {
	s := q.spec
	if s.Share != l.Share && (s.Share > 0 || l.Parent == "") {
		// A part of a share may be as large as that without saying so.
		return l.Devices, false
	}

	s.Share = 0
	if len(s.Devices) == 0 && s.MIG == "" && s.GPUs > len(l.Devices) {
		return l.Devices, false
	}
	if len(s.Devices)+len(s.Exclude) == 0 && s.MIG+s.Model == "" && s.MinCompute == nil && s.Memory == 0 {
		return l.Devices, true
	}

	if len(s.Devices) == 0 {
		s.GPUs = 0
		for _, id := range l.Devices {
			s.Devices = append(s.Devices, string(id))
		}
	}

	m := q.machine
	m.Processes = nil
	const unlimited = gpu.Bytes(1 << 60)
	plan, refusal := pick.Place(s, m, nil, pick.Context{Now: now, Tolerate: pick.Tolerance{Memory: unlimited, Display: unlimited, Utilization: 1}})
	ids := plan.UUIDs()
	alike := refusal == nil && len(ids) == len(l.Devices) && !slices.ContainsFunc(ids, func(id gpu.UUID) bool { return !l.Holds(id) })
	if !alike {
		ids = l.Devices
	}

	return ids, alike
}

// planOf describes devices that were given before.
func planOf(m gpu.Machine, ids []gpu.UUID) job.Plan {
	plan := job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}
	for i, id := range ids {
		d, slice, ok := m.FindDevice(id)
		if !ok {
			continue
		}

		g := job.Given{Logical: i, Index: d.Index, UUID: id, Name: d.Name, Label: machine.DeviceName(m, *d), Vendor: d.Vendor, PCI: d.PCI}
		if slice != nil {
			g.Parent, g.Profile = d.UUID, slice.Profile
		}

		plan.Devices = append(plan.Devices, g)
	}
	return plan
}

// hiddenDevices is what the masks hide. A device that a running process is on already is not hidden from it, whatever
// its environment said when it started.
func (q *request) hiddenDevices() (map[gpu.UUID]string, []visible.Note) {
	hidden, notes := visible.HiddenDevices(q.env, q.machine)
	for _, id := range q.machine.DevicesUnder(q.own) {
		delete(hidden, gpu.UUID(id))
		if d, _, ok := q.machine.FindDevice(gpu.UUID(id)); ok {
			delete(hidden, d.UUID)
		}
	}
	return hidden, notes
}

// explainMask says in a refusal because of a mask what is wrong with that, before any way around it.
func explainMask(r *job.Refusal, notes []visible.Note) {
	if r == nil {
		return
	}
	hides := func(n visible.Note) bool {
		name, _, _ := strings.Cut(n.Text, "=")
		return slices.ContainsFunc(r.Reasons, func(reason job.Reason) bool {
			return reason.Code == "hidden" && strings.HasPrefix(reason.Text, name+"=")
		})
	}
	i := slices.IndexFunc(notes, func(n visible.Note) bool { return n.IsMisread() && hides(n) })
	if i >= 0 {
		r.Remedy = fmt.Sprintf("correct %s (gpuard explain shows how it is read), or %s", notes[i].Text, r.Remedy)
	}
}

// dropMaskAdvice removes the advice to ignore a mask from a refusal for a running process, which cannot.
func (q *request) dropMaskAdvice(r *job.Refusal) {
	if r == nil || !q.subject.Running || q.spec.Any {
		return
	}
	for i := range r.Reasons {
		reason := &r.Reasons[i]
		if reason.Code != "hidden" || reason.Remedy == "" {
			continue
		}

		better := fmt.Sprintf("start process %d again without that", q.subject.PID)
		r.Remedy = strings.ReplaceAll(r.Remedy, reason.Remedy, better)
		reason.Text = fmt.Sprintf("process %d does not see it: %s (its environment when it started)", q.subject.PID, reason.Text)
		reason.Remedy = better
	}
}
