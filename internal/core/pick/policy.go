package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
)

// The rules of configuration files (core/policy) limit which devices a user may have, how many together, how much of
// each, and for how long. They do not apply inside a lease: they did when it was given, and only its devices can be
// given.

// policyLimits returns the rules that apply to this request.
func (q *query) policyLimits() policy.Limits {
	if q.in.Parent != nil {
		return nil
	}
	return q.in.Limits
}

// AllowedDevices lists the devices and slices that the rules permit, in index order, whether or not they are in use. A
// limit on their number does not shorten the list, but a limit of 0 empties it.
func AllowedDevices(m gpu.Machine, limits policy.Limits) []gpu.UUID {
	ids := []gpu.UUID{}
	if r := limits.Count(); r != nil && *r.GPUs == 0 {
		return ids
	}

	q := newQuery(job.Spec{GPUs: 1}, m, nil, Context{Limits: limits})
	for _, u := range q.allUnits() {
		if !u.twin && q.policyObstacle(u) == nil && (u.mig != nil || !u.dev.UsesMIG()) {
			ids = append(ids, u.id())
		}
	}

	return ids
}

// policyObstacle returns an obstacle that names the first rule that keeps the device from the caller.
func (q *query) policyObstacle(u *unit) *obstacle {
	limits := q.policyLimits()
	for i := range limits {
		r := &limits[i]
		var gives string
		remedy := "have " + prose.Clean(r.At.String()) + " changed"
		switch {
		case len(r.Devices) > 0 && !slices.ContainsFunc(q.ruleDevices(r.Devices), func(v *unit) bool { return v.dev == u.dev && (v.mig == nil || v.mig == u.mig) }):
			gives = "gives " + deviceWords(r.Devices)
		case len(r.Models) > 0 && (u.dev.Name != "" || u.dev.Problem == "") && !slices.ContainsFunc(r.Models, func(pattern string) bool { return isModel(pattern, u.dev.Name) }):
			gives = fmt.Sprintf("gives models like %s, and this is %s", prose.JoinWords(r.Models, "or"), cmp.Or(prose.Brief(u.dev.Name), "of an unknown model"))
		default:
			gives = q.overMemoryText(r, u)
			if gives != "" && u.mig == nil && q.spec.MIG == "" && u.totalMemory() != nil {
				remedy = option.Sprintf("ask for a share of it ({share=%s}), or %s", formatSizeFlag(r.Memory), remedy)
			}
		}

		if gives != "" {
			return &obstacle{code: "policy", text: fmt.Sprintf("policy: %s %s", r, gives), remedy: remedy, rule: r.String()}
		}
	}
	return nil
}

// overMemoryText says what a rule permits of a device with more memory than that; "" where it suffices. A share is
// limited by refuseOverLimits instead.
func (q *query) overMemoryText(r *policy.Rule, u *unit) string {
	total := u.totalMemory()
	switch {
	case r.Memory <= 0 || q.spec.Share > 0 || total == nil && u.dev.Problem != "":
		return ""
	case total == nil:
		return fmt.Sprintf("gives at most %s of a GPU, and how much this one has is unknown", r.Memory)
	case u.nominalMemory() <= r.Memory:
		return ""
	}
	have, most := distinctSizes(u.nominalMemory(), r.Memory)

	return fmt.Sprintf("gives at most %s of a GPU, and this one has %s", most, have)
}

// ruleDevices finds the devices that a rule names. A name that means several devices or none is ignored: a rule
// never permits a device by accident.
func (q *query) ruleDevices(names []string) (out []*unit) {
	all := q.allUnits()
	for _, name := range names {
		if u, problem, _ := q.findUnit(all, "device", name); problem == "" {
			out = append(out, u)
		}
	}
	return out
}

// deviceWords is "GPU 0 and 1", or the names as the rule writes them.
func deviceWords(names []string) string {
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			return prose.Clean(prose.JoinWords(names, "and"))
		}
	}
	return "GPU " + prose.JoinWords(names, "and")
}

// refuseOverLimits refuses a request for more than the rules ever permit; nil when they permit it.
func (q *query) refuseOverLimits() *job.Refusal {
	limits, need := q.policyLimits(), q.need
	refuse := func(what string, r *policy.Rule, gives, remedy string) *job.Refusal {
		if remedy != "" {
			remedy += ", or "
		}
		return &job.Refusal{Never: true, Summary: fmt.Sprintf("cannot give %s: policy: %s gives %s", what, r, gives), Remedy: remedy + "have " + prose.Clean(r.At.String()) + " changed"}
	}

	if r := limits.Count(); r != nil && need > *r.GPUs {
		if *r.GPUs == 0 {
			return refuse(q.demandText(), r, "no GPU", option.Expand("use {cpu} to run without a GPU"))
		}
		return refuse(q.demandText(), r, fmt.Sprintf("at most %d at the same time", *r.GPUs), option.Sprintf("ask for %s ({gpus=%d})", prose.CountNoun(*r.GPUs, "GPU"), *r.GPUs))
	}

	if r := limits.LeastMemory(); r != nil && max(q.spec.Share, q.spec.Memory) > r.Memory {
		flag := option.Expand("{share}")
		if q.spec.Share <= 0 {
			flag = option.Expand("{mem}")
		}
		return refuse(q.demandText(), r, fmt.Sprintf("at most %s of a GPU", r.Memory), fmt.Sprintf("ask for less (%s %s)", flag, formatSizeFlag(r.Memory)))
	}

	if r := q.in.Limits.ShortestTime(); r != nil && q.spec.Timeout > r.Time {
		// Also inside of a lease: else its end would not be one.
		return refuse(fmt.Sprintf("%s for %s", q.demandText(), DurationText(q.spec.Timeout)), r, fmt.Sprintf("it for at most %s", DurationText(r.Time)), option.Sprintf("ask for less time ({timeout=%s})", DurationText(r.Time)))
	}

	return nil
}

// DurationText writes a time as --timeout takes it.
func DurationText(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text += "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		return short + "h"
	}

	return text
}

// reachedLimit describes a caller who has, together with this request, more devices than a rule permits at once.
type reachedLimit struct {
	rule *policy.Rule
	// Devices that the caller has, as job.DeviceHash.
	own map[string]bool
	// leases on them, oldest first.
	leases []string
}

// countOwnedDevices sets q.full when the caller has too many devices for this request now. A further share of a device
// that the caller has does not count.
func (q *query) countOwnedDevices() {
	r := q.policyLimits().Count()
	if r == nil || q.need > *r.GPUs {
		// refuseOverLimits refuses such a request.
		return
	}

	own := job.OwnedDevices(q.held, q.in.UID, q.in.Moving)
	if len(own)+q.need <= *r.GPUs {
		return
	}

	q.full = &reachedLimit{rule: r, own: own}

	for _, l := range q.held {
		if l.UID == q.in.UID && l.Parent == "" && (q.in.Moving == "" || l.ID != q.in.Moving) {
			q.full.leases = append(q.full.leases, l.ID)
		}
	}
}

// limitObstacle returns an obstacle when one more device would exceed the limit now.
func (q *query) limitObstacle(u *unit) *obstacle {
	if q.full == nil || q.spec.Share > 0 && q.full.own[job.DeviceHash(u.id())] && len(q.full.own) <= *q.full.rule.GPUs {
		return nil
	}
	o := &obstacle{code: "policy", text: fmt.Sprintf("free, but policy: %s", q.full), remedy: q.full.waitRemedy()}
	if len(q.full.leases) > 0 {
		o.lease = q.full.leases[0]
	}

	return o
}

// String is `rule "students" (/etc/gpuard/config.yaml:4) gives at most 2 at the same time, and you have 2 (lease
// k3f9)`.
func (f *reachedLimit) String() string {
	leases := f.leases[:min(maxNamesInText, len(f.leases))]
	return fmt.Sprintf("%s gives at most %d at the same time, and you have %d (lease %s)", f.rule, *f.rule.GPUs, len(f.own), prose.JoinWords(leases, "and"))
}

func (f *reachedLimit) waitRemedy() string {
	return fmt.Sprintf("wait until lease %s ends", prose.JoinWords(f.leases[:min(maxNamesInText, len(f.leases))], "or"))
}

// refuseFull refuses a caller who has reached a limit.
func (q *query) refuseFull(r *job.Refusal) {
	r.Summary, r.Remedy = fmt.Sprintf("cannot give %s now: policy: %s", q.demandText(), q.full), q.full.waitRemedy()
	if left := *q.full.rule.GPUs - len(q.full.own); left > 0 && len(q.named) == 0 {
		r.Remedy = option.Sprintf("ask for %s ({gpus=%d}), or %s", prose.CountNoun(left, "GPU"), left, r.Remedy)
	}
}
