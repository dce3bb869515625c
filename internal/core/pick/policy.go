package pick

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// The rules of configuration files (core/policy) say which devices somebody may have, how many at once, how much of each, and
// for how long. Inside of a lease they say nothing: they did when it was given, and its devices are all there is.

// bound are the rules that count here.
func (q *question) bound() policy.Limits {
	if q.in.Parent != nil {
		return nil
	}
	return q.in.Limits
}

// Allowed lists the devices, and slices, that the rules let somebody have, in index order, whoever uses them. How many they may
// have at once is another thing, but none at all is none.
func Allowed(m gpu.Machine, limits policy.Limits) []gpu.UUID {
	ids := []gpu.UUID{}
	if r := limits.Count(); r != nil && *r.GPUs == 0 {
		return ids
	}
	q := ask(job.Spec{GPUs: 1}, m, nil, Context{Limits: limits})
	for _, u := range q.everything() {
		if !u.twin && q.forbidden(u) == nil && (u.mig != nil || !u.dev.UsesMIG()) {
			ids = append(ids, u.id())
		}
	}
	return ids
}

// forbidden names the first rule that keeps the device from the asker.
func (q *question) forbidden(u *unit) *obstacle {
	limits := q.bound()
	for i := range limits {
		r := &limits[i]
		var gives string
		remedy := "have " + gpu.Clean(r.At.String()) + " changed"
		switch {
		case len(r.Devices) > 0 && !slices.ContainsFunc(q.meant(r.Devices), func(v *unit) bool { return v.dev == u.dev && (v.mig == nil || v.mig == u.mig) }):
			gives = "gives " + deviceWords(r.Devices)
		case len(r.Models) > 0 && (u.dev.Name != "" || u.dev.Problem == "") && !slices.ContainsFunc(r.Models, func(pattern string) bool { return isModel(pattern, u.dev.Name) }):
			gives = fmt.Sprintf("gives models like %s, and this is %s", listed(r.Models, "or"), or(gpu.Brief(u.dev.Name), "of an unknown model"))
		default:
			if gives = q.muchMore(r, u); gives != "" && u.mig == nil && q.spec.MIG == "" && u.total() != nil {
				remedy = fmt.Sprintf("ask for a share of it (--share %s), or %s", typed(r.Memory), remedy)
			}
		}
		if gives != "" {
			return &obstacle{code: "policy", text: fmt.Sprintf("policy: %s %s", r, gives), remedy: remedy, rule: r.String()}
		}
	}
	return nil
}

// muchMore says what a rule gives of a device whose memory is more than that; "" where it suffices. A share is judged by itself.
func (q *question) muchMore(r *policy.Rule, u *unit) string {
	total := u.total()
	switch {
	case r.Memory <= 0 || q.spec.Share > 0 || total == nil && u.dev.Problem != "":
		return ""
	case total == nil:
		return fmt.Sprintf("gives at most %s of a GPU, and how much this one has is unknown", r.Memory)
	case u.size() <= r.Memory:
		return ""
	}
	have, most := apart(u.size(), r.Memory)
	return fmt.Sprintf("gives at most %s of a GPU, and this one has %s", most, have)
}

// meant are the devices that names of a rule mean, those that mean several or none left out: a rule never gives by accident.
func (q *question) meant(names []string) (out []*unit) {
	all := q.everything()
	for _, name := range names {
		if u, problem, _ := q.find(all, "device", name); problem == "" {
			out = append(out, u)
		}
	}
	return out
}

// deviceWords is "GPU 0 and 1", or the names as they stand in the rule.
func deviceWords(names []string) string {
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			return gpu.Clean(listed(names, "and"))
		}
	}
	return "GPU " + listed(names, "and")
}

// beyond says that more is asked for than the rules ever give; nil when it is not.
func (q *question) beyond() *job.Refusal {
	limits, need := q.bound(), q.need
	refuse := func(what string, r *policy.Rule, gives, remedy string) *job.Refusal {
		if remedy != "" {
			remedy += ", or "
		}
		return &job.Refusal{Never: true, Summary: fmt.Sprintf("cannot give %s: policy: %s gives %s", what, r, gives), Remedy: remedy + "have " + gpu.Clean(r.At.String()) + " changed"}
	}
	if r := limits.Count(); r != nil && need > *r.GPUs {
		if *r.GPUs == 0 {
			return refuse(q.what(), r, "no GPU", "use --cpu to run without a GPU")
		}
		return refuse(q.what(), r, fmt.Sprintf("at most %d at once", *r.GPUs), fmt.Sprintf("ask for %s (--gpus %d)", count(*r.GPUs, "GPU"), *r.GPUs))
	}
	if r := limits.Size(); r != nil && max(q.spec.Share, q.spec.Memory) > r.Memory {
		flag := "--share"
		if q.spec.Share <= 0 {
			flag = "--mem"
		}
		return refuse(q.what(), r, fmt.Sprintf("at most %s of a GPU", r.Memory), fmt.Sprintf("ask for less (%s %s)", flag, typed(r.Memory)))
	}
	switch r := limits.Longest(); {
	case r == nil:
	case q.spec.Timeout > r.Time:
		return refuse(fmt.Sprintf("%s for %s", q.what(), spoken(q.spec.Timeout)), r, fmt.Sprintf("it for at most %s", spoken(r.Time)), fmt.Sprintf("ask for less time (--timeout %s)", spoken(r.Time)))
	case q.spec.Timeout <= 0 && q.in.Endless:
		return refuse(q.what()+" without an end", r, fmt.Sprintf("it for at most %s", spoken(r.Time)), fmt.Sprintf("run a command (gpuard run --timeout %s -- COMMAND)", spoken(r.Time)))
	}
	return nil
}

// spoken is a time as --timeout takes it.
func spoken(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text += "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		return short + "h"
	}
	return text
}

// full is the state of an asker who has, together with what is asked for, more devices than a rule gives at once.
type full struct {
	rule   *policy.Rule
	own    map[string]bool // devices that they have, as job.DeviceHash
	leases []string        // that have them, oldest first
}

// fill finds out whether the asker has too many devices for this request now. More shares of devices that they have cost none.
func (q *question) fill() {
	r := q.bound().Count()
	if r == nil || q.need > *r.GPUs { // that is never given, which beyond says
		return
	}
	own := job.Owned(q.held, q.in.UID, q.in.Moving)
	if len(own)+q.need <= *r.GPUs {
		return
	}
	q.full = &full{rule: r, own: own}
	for _, l := range q.held {
		if l.UID == q.in.UID && l.Parent == "" && (q.in.Moving == "" || l.ID != q.in.Moving) {
			q.full.leases = append(q.full.leases, l.ID)
		}
	}
}

// tooMany says that one more device would be too many now.
func (q *question) tooMany(u *unit) *obstacle {
	if q.full == nil || q.spec.Share > 0 && q.full.own[job.DeviceHash(u.id())] && len(q.full.own) <= *q.full.rule.GPUs {
		return nil
	}
	o := &obstacle{code: "policy", text: fmt.Sprintf("free, but policy: %s", q.full), remedy: q.full.remedy()}
	if len(q.full.leases) > 0 {
		o.lease = q.full.leases[0]
	}
	return o
}

// String is `rule "students" (/etc/gpuard/config.yaml:4) gives at most 2 at once, and you have 2 (lease k3f9)`.
func (f *full) String() string {
	leases := f.leases[:min(most, len(f.leases))]
	return fmt.Sprintf("%s gives at most %d at once, and you have %d (lease %s)", f.rule, *f.rule.GPUs, len(f.own), listed(leases, "and"))
}

func (f *full) remedy() string {
	return fmt.Sprintf("wait until lease %s ends", listed(f.leases[:min(most, len(f.leases))], "or"))
}

// refuseFull is the refusal to somebody who has enough for now.
func (q *question) refuseFull(r *job.Refusal) {
	r.Summary, r.Remedy = fmt.Sprintf("cannot give %s now: policy: %s", q.what(), q.full), q.full.remedy()
	if left := *q.full.rule.GPUs - len(q.full.own); left > 0 && len(q.named) == 0 {
		r.Remedy = fmt.Sprintf("ask for %s (--gpus %d), or %s", count(left, "GPU"), left, r.Remedy)
	}
}
