// Package pick decides one job on one machine: a plan that names the devices, or a refusal; both say why for
// every device. It never reads the machine, the clock or the environment, and it records nothing:
// the same values in, in whatever order, always give the same answer.
//
// In short: a device that can never serve the job (hidden, excluded, not named, wrong model, too old, too small,
// split) is set aside; then what is busy now (sick, leased, used by somebody else, memory full); the best of the
// rest is taken, in the order that order.go describes.
package pick

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// Context is who asks, from where, and what else is going on.
type Context struct {
	Now        time.Time               // for ages of processes; also the zone in which times are written. Zero: no ages
	UID        uint32                  // who asks; decides whether a remedy may say `kill`
	Parent     *job.Lease              // the lease we are inside of: its devices are all there is. nil outside
	Ancestors  []string                // ids of that lease and its parents: their holding a device does not block
	Allocation string                  // "slurm:12": devices come from another scheduler, only leases of the same allocation block
	Hidden     map[gpu.UUID]string     // devices this caller may not see, and why: "CUDA_VISIBLE_DEVICES=1 hides it"
	Last       []gpu.UUID              // the devices this user had last
	Own        []int                   // processes that the lease is for and that run already: they do not block
	Trees      map[string][]int        // by id of a shared lease: its process tree. A process in none is foreign to it
	Kept       map[gpu.UUID]job.Ticket // devices that must stay for somebody who waits and stands before this job
	Waiting    bool                    // others wait for devices: pack instead of spreading
	Tolerate   Tolerance
	Limits     policy.Limits // rules that bind the asker; inside of a lease they say nothing
	Endless    bool          // it is a lease, and so without Spec.Timeout one without an end
	Moving     string        // lease that is given back for this one, so that it does not count as the asker's
}

// Tolerance is how much use by processes without a lease still counts as free.
type Tolerance struct {
	Memory      gpu.Bytes     // of all such processes together, on one device
	Display     gpu.Bytes     // of graphics processes (Xorg, compositor), or a desktop with one GPU never works
	YoungerThan time.Duration // a process younger than this may be about to grow, so the device is not idle
	Utilization float64       // 0..1; above this the device is not idle
}

// DefaultTolerance is what holds without configuration.
func DefaultTolerance() Tolerance {
	return Tolerance{Memory: 256 * gpu.MiB, Display: 2 * gpu.GiB, YoungerThan: 10 * time.Second, Utilization: 0.05}
}

// Place decides leases: which devices of m the spec gets while held are alive, whole ones, or a share of each. The refusal is nil
// exactly when there is a plan. Reasons come in index order, one per whole GPU; where MIG slices are asked for
// (--mig, or a slice in --device), a split GPU has one per slice instead. --mig is always one slice;
// with --device it may come only from the GPUs or slices named.
func Place(spec job.Spec, m gpu.Machine, held []job.Lease, in Context) (job.Plan, *job.Refusal) {
	if spec.CPU {
		return job.Plan{Devices: []job.Given{}, Reasons: []job.Reason{}, Notes: []string{}}, nil
	}
	q := ask(spec, m, held, in)
	wrong := q.readNames()
	for _, u := range q.units {
		u.use = q.usage(u)
	}
	q.decideMode()
	q.fill()
	for _, u := range q.units {
		u.reason = q.judge(u)
	}
	if wrong == nil {
		wrong = q.beyond()
	}
	if wrong != nil {
		wrong.Reasons = q.reasons()
		return job.Plan{}, wrong
	}
	candidates := q.candidates()
	if candidates == nil {
		return job.Plan{}, q.refusal()
	}
	return q.plan(q.choose(candidates)), nil
}

// question is one call of Place: what was asked, and what is known of each device.
type question struct {
	spec   job.Spec
	in     Context
	m      *gpu.Machine
	held   []job.Lease // by age, so that the input order does not show
	units  []*unit     // everything that gets a reason, in index order
	named  []*unit     // what --device named, in the order given; with --mig only what limits the search
	mixed  bool        // several vendors: indices need the vendor
	vendor gpu.Vendor  // whose devices are meant; "" until candidates, and when no vendor has enough
	need   int
	spread bool
	full   *full // the asker has as many devices as a rule gives at once; nil: not so
}

func ask(spec job.Spec, m gpu.Machine, held []job.Lease, in Context) *question {
	q := &question{spec: spec, in: in, m: &m, held: slices.Clone(held), need: spec.GPUs}
	slices.SortFunc(q.held, olderLease)
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

// judge gives the verdict on one device; texts of the eligible are written when the choice is known.
func (q *question) judge(u *unit) job.Reason {
	r := job.Reason{UUID: u.id(), Index: u.dev.Index, Name: u.name(), Processes: u.use.processes}
	if b := q.never(u); b != nil {
		r.Verdict, r.Code, r.Text, r.Remedy, r.Processes = job.Never, b.code, b.text, b.remedy, nil
		u.by = b.rule
		return r
	}
	b := u.use.busy
	if b == nil {
		b = q.lacking(u)
	}
	if b == nil {
		b = q.tooMany(u)
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

// candidates are the devices to choose from, nil when there are too few. The devices of one job are of one vendor, because
// no program sees several, and vendors do not stand in for each other: a program built for one finds nothing on another's
// device, and the second vendor is often an idle integrated GPU. The first vendor with enough devices here is meant,
// busy or not; another one must be named.
func (q *question) candidates() []*unit {
	if len(q.named) > 0 && q.spec.MIG == "" {
		if slices.ContainsFunc(q.named, func(u *unit) bool { return u.reason.Verdict != job.Eligible }) {
			return nil
		}
		return q.named
	}
	for _, u := range q.units { // in order of vendors
		able, free := 0, []*unit(nil)
		for _, v := range q.units {
			if v.dev.Vendor != u.dev.Vendor || v.reason.Verdict == job.Never {
				continue
			}
			able++
			if eligible(v) {
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

func (q *question) plan(chosen []*unit) job.Plan {
	plan := job.Plan{Devices: []job.Given{}, Notes: []string{}, Share: q.share()}
	if plan.Quota = q.spec.Quota; q.spec.Share <= 0 && plan.Share > 0 {
		plan.Quota = q.pool().Quota // it has all of that lease, which is kept to its share as a whole
	}
	for i, u := range chosen {
		given := job.Given{Logical: i, Index: u.dev.Index, UUID: u.id(), Name: u.dev.Name, Label: "GPU " + q.number(u.dev), Vendor: u.dev.Vendor, PCI: u.dev.PCI}
		if u.mig != nil {
			given.Parent, given.Profile = u.dev.UUID, u.mig.Profile
		}
		plan.Devices = append(plan.Devices, given)
		for _, note := range u.use.notes {
			plan.Notes = append(plan.Notes, fmt.Sprintf("%s: %s", u.label, note))
		}
	}
	plan.Reasons = q.reasons()
	return plan
}

func (q *question) reasons() []job.Reason {
	out := []job.Reason{}
	for _, u := range q.units {
		if u.reason.Verdict == job.Eligible && u.reason.Text == "" {
			u.reason.Text = "free"
		}
		out = append(out, u.reason)
	}
	return out
}
