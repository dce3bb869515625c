// Package pick decides whether and where one job can run on one machine. It returns a plan that names the devices,
// or a refusal; both give a reason for every device:
//
//	in := pick.Context{Now: now, UID: uid, Tolerate: pick.DefaultTolerance()}
//	plan, refusal := pick.Place(job.Spec{GPUs: 2}, machine, leases, in)
//	if refusal != nil {
//		return errors.New(refusal.Summary)
//	}
//
// It first drops devices that can never serve the job (hidden, excluded, not named, wrong model, too old, too small,
// split, far weaker than others), then devices that are busy now (sick, leased, used without a lease, too little
// memory). From the rest it takes the best, in the order that order.go describes.
//
// It must not read the machine, the clock or the environment, and it records nothing: the same input, in any order,
// always gives the same answer.
package pick

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
)

// Context is the caller, its place, and the state of the machine that is not in gpu.Machine.
type Context struct {
	// The present for ages of processes, and the time zone of printed times; zero: no ages.
	Now time.Time
	// The user id of the caller; decides whether a remedy may say `kill`.
	UID uint32
	// The lease that the caller runs inside: only its devices can be given. nil outside.
	Parent *job.Lease
	// IDs of that lease and its parents, which do not block the caller.
	Ancestors []string
	// "slurm:12": the devices come from another scheduler; only leases of the same allocation block.
	Allocation string
	// Devices that the caller's variables allow, as they name them; nil without such variables.
	MaskOrder []gpu.UUID
	// Devices that this caller may not see, and why: "CUDA_VISIBLE_DEVICES=1 hides it".
	Hidden map[gpu.UUID]string
	// The devices this user had last.
	Last []gpu.UUID
	// PIDs that the lease is for and that run already: they do not block.
	Own []int
	// Processes of each shared lease and of Parent, by lease ID; a process in none is foreign.
	Trees map[string][]int
	// Devices reserved for a waiting job that is ahead of this one.
	Kept map[gpu.UUID]job.Ticket
	// Other jobs wait for devices: pack instead of spreading.
	Waiting  bool
	Tolerate Tolerance
	// Rules that bind the caller; they do not count inside a lease.
	Limits policy.Limits
	// The request is for a lease without a command: of a time, a process or a shell.
	Apart bool
	// The caller's PID namespace: PIDs of another one are said to be in a container. 0: unknown.
	Namespace uint64
	// Lease that is given back in exchange for this one; it does not count as the caller's.
	Moving string
}

// Tolerance is how much use without a lease still counts as free.
type Tolerance struct {
	// The memory of all such processes together, on one device.
	Memory gpu.Bytes
	// The memory of what serves a display (Xorg, compositor); without it a desktop with one GPU could never run a job.
	Display gpu.Bytes
	// A process younger than this may be about to grow, so the device is not idle.
	YoungerThan time.Duration
	// 0..1; above this the device is not idle.
	Utilization float64

	// That a higher value of Memory does not count, in words; "" there is none.
	MemoryCut string
	// What says Display: "tolerate.display in /etc/gpuard/config.yaml"; "" gpuard itself.
	DisplayBy string
	// How it is raised, in words; "" by the machine's file.
	DisplayRaise string
	// That a higher value does not count, in words; "" there is none.
	DisplayCut string
}

// DefaultTolerance holds without configuration.
func DefaultTolerance() Tolerance {
	return Tolerance{Memory: 256 * gpu.MiB, Display: 2 * gpu.GiB, YoungerThan: 10 * time.Second, Utilization: 0.05}
}

// Place decides a lease: which devices of m, or shares of them, the spec gets while the leases in held are alive.
// The refusal is nil exactly when there is a plan. Reasons come in index order, one per whole GPU; where MIG slices are
// asked for (--mig, or a slice in --device), a split GPU has one per slice instead. --mig is always one slice; with
// --device it may come only from the GPUs or slices named.
func Place(spec job.Spec, m gpu.Machine, held []job.Lease, in Context) (job.Plan, *job.Refusal) {
	if spec.CPU {
		return job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}, nil
	}

	q := newQuery(spec, m, held, in)
	wrong := q.readNames()

	for _, u := range q.units {
		u.use = q.usageOf(u)
	}

	q.decideSpread()
	q.countOwnedDevices()
	q.setAside()

	for _, u := range q.units {
		u.reason = q.judgeUnit(u)
	}

	if wrong == nil {
		wrong = q.refuseOverLimits()
	}

	if wrong != nil {
		wrong.Reasons = q.collectReasons()
		return job.Plan{}, wrong
	}

	candidates := q.selectCandidates()
	if candidates == nil {
		return job.Plan{}, q.buildRefusal()
	}

	return q.buildPlan(q.chooseUnits(candidates)), nil
}

// query is one call of Place: the request, and what is known of each device.
type query struct {
	spec job.Spec
	in   Context
	m    *gpu.Machine
	// The live leases by age, so that the input order does not matter.
	held []job.Lease
	// Everything that gets a reason, in index order.
	units []*unit
	// Devices of --device, in the order given; with --mig they only limit the search.
	named []*unit
	// Several vendors, so names need the vendor: "amd:0".
	mixed bool
	// The vendor to choose from; "" until selectCandidates sets it, and when no vendor has enough.
	vendor gpu.Vendor
	need   int
	spread bool
	// Set when a rule's limit on devices is reached.
	full *reachedLimit

	// The screen of each device, as far as they were asked for.
	screens map[gpu.UUID]display.Screen
}

func newQuery(spec job.Spec, m gpu.Machine, held []job.Lease, in Context) *query {
	q := &query{spec: spec, in: in, m: &m, held: slices.Clone(held), need: spec.GPUs}
	slices.SortFunc(q.held, compareLeaseAge)
	if in.Parent != nil {
		q.in.Ancestors = append(slices.Clone(in.Ancestors), in.Parent.ID)
	}

	for _, d := range m.Devices {
		q.mixed = q.mixed || d.Vendor != m.Devices[0].Vendor
	}

	if spec.MIG != "" {
		q.need = 1
	}

	return q
}

// judgeUnit gives the verdict on one device. chooseUnits writes the texts of eligible ones.
func (q *query) judgeUnit(u *unit) job.Reason {
	r := job.Reason{UUID: u.id(), Index: u.dev.Index, Name: u.fullName(), Processes: u.use.processes}
	if b := q.permanentObstacle(u); b != nil {
		r.Verdict, r.Code, r.Text, r.Remedy, r.Processes = job.Never, b.code, b.text, b.remedy, nil
		u.forbiddenBy = b.rule
		return r
	}

	b := u.use.busy
	if b == nil {
		b = q.freeMemoryObstacle(u)
	}

	if b == nil {
		b = q.limitObstacle(u)
	}

	if b != nil {
		r.Verdict, r.Code, r.Text, r.Remedy, r.Lease = job.Busy, b.code, b.text, b.remedy, b.lease
		return r
	}

	r.Verdict, r.Code = job.Eligible, "order"

	return r
}

// obstacle is why a device cannot be given.
type obstacle struct{ code, text, remedy, lease, rule string }

// selectCandidates returns the devices to choose from, nil when there are too few. All devices of a job are of one
// vendor: no program uses several, and a program built for one vendor finds nothing on another's device. The first
// vendor with enough able devices is meant, busy or not, because the second is often an idle integrated GPU. Another
// one must be named.
func (q *query) selectCandidates() []*unit {
	if len(q.named) > 0 && q.spec.MIG == "" {
		if slices.ContainsFunc(q.named, func(u *unit) bool { return u.reason.Verdict != job.Eligible }) {
			return nil
		}
		return q.named
	}
	for _, u := range q.units {
		// Sorted by vendor.
		able, free := 0, []*unit(nil)
		for _, v := range q.units {
			if v.dev.Vendor != u.dev.Vendor || v.reason.Verdict == job.Never {
				continue
			}
			able++
			if isEligible(v) {
				free = append(free, v)
			}
		}

		if able < q.need || q.need == 0 {
			continue
		}

		q.vendor = u.dev.Vendor
		if len(free) < q.need {
			return nil
		}

		return free
	}
	return nil
}

func (q *query) buildPlan(chosen []*unit) job.Plan {
	plan := job.Plan{Devices: []job.Given{}, Notes: []string{}, Share: q.promisedShare(), Isolation: q.spec.Isolate.Level()}
	plan.Quota = q.spec.Quota
	if q.spec.Share <= 0 && plan.Share > 0 {
		// The request gets all of that lease, which is limited as a whole.
		plan.Quota = q.parentPool().Quota
	}

	for i, u := range chosen {
		given := job.Given{Logical: i, Index: u.dev.Index, UUID: u.id(), Name: u.dev.Name, Label: "GPU " + q.deviceNumber(u.dev), Vendor: u.dev.Vendor, PCI: u.dev.PCI}
		if u.mig != nil {
			given.Parent, given.Profile = u.dev.UUID, u.mig.Profile
		}
		plan.Devices = append(plan.Devices, given)

		for _, note := range u.use.notes {
			plan.Notes = append(plan.Notes, fmt.Sprintf("%s: %s", u.label, note))
		}
	}

	if text := blindNote(chosen); text != "" {
		plan.Notes = append(plan.Notes, text)
	}

	if text := modelsText(chosen); text != "" && len(q.named) == 0 {
		plan.Notes = append(plan.Notes, text)
	}

	plan.Reasons = q.collectReasons()

	return plan
}

// modelsText says that the devices are of different models, of which the slowest decides how fast a job is that
// works in step.
func modelsText(chosen []*unit) string {
	models := prose.Texts(chosen, func(u *unit) string { return u.dev.Name })

	models = uniqueStrings(models)
	if len(models) < 2 {
		return ""
	}

	return fmt.Sprintf("the GPUs are of %d models (%s), because too few of one are free", len(models), prose.JoinWords(models, "and"))
}

func (q *query) collectReasons() []job.Reason {
	out := []job.Reason{}
	for _, u := range q.units {
		if u.reason.Verdict == job.Eligible && u.reason.Text == "" {
			u.reason.Text = freeText(u)
		}
		out = append(out, u.reason)
	}
	return out
}
