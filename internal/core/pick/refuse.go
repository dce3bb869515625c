package pick

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// refusal says what was asked, how far it could be met, and what would have to change.
func (q *question) refusal() *job.Refusal {
	r := &job.Refusal{Never: q.possible() < q.need, Reasons: q.reasons()}
	if len(q.named) > 0 && q.spec.MIG == "" {
		r.Never = slices.ContainsFunc(q.named, func(u *unit) bool { return u.reason.Verdict == job.Never })
		q.refuseNamed(r)
		if q.full != nil && !r.Never {
			q.refuseFull(r)
		}
		return r
	}
	if q.full != nil && !r.Never {
		q.refuseFull(r)
		return r
	}
	if r.Never {
		r.Summary, r.Remedy = q.neverSummary(), q.neverRemedy()
		return r
	}
	r.Summary, r.Remedy = q.busySummary(), q.busyRemedy()
	r.Reasons = q.reasons() // with what the remedy adds to them
	return r
}

// possible is how many devices of one vendor could serve the spec if nobody else were here.
func (q *question) possible() int {
	return q.largest(func(u *unit) bool { return u.reason.Verdict != job.Never })
}

func (q *question) largest(fits func(*unit) bool) int {
	byVendor, most := map[gpu.Vendor]int{}, 0
	for _, u := range q.units {
		if fits(u) {
			byVendor[u.dev.Vendor]++
			most = max(most, byVendor[u.dev.Vendor])
		}
	}
	return most
}

func eligible(u *unit) bool { return u.reason.Verdict == job.Eligible }

// refuseNamed begins with the named device that decides: one that never fits, else the first that is busy.
func (q *question) refuseNamed(r *job.Refusal) {
	var first *unit
	var remedies []string
	for _, u := range q.named {
		if eligible(u) || r.Never && u.reason.Verdict != job.Never {
			continue
		}
		if first == nil {
			first = u
		}
		remedies = append(remedies, u.reason.Remedy)
	}
	r.Summary = fmt.Sprintf("cannot give %s: %s", first.label, first.reason.Text)
	remedies = unique(slices.DeleteFunc(remedies, func(s string) bool { return s == "" }))
	r.Remedy = strings.Join(append(remedies, "name another device, or none to have one chosen"), ", or ")
	if len(remedies) > 1 {
		r.Remedy = listed(remedies, "and") + ", or name other devices"
	}
}

// what is the job's demand: "2 GPUs", "a 1g.10gb slice", "a share of 8 GiB".
func (q *question) what() string {
	text := count(q.need, "GPU")
	switch {
	case q.spec.Share > 0 && q.need == 1:
		text = fmt.Sprintf("a share of %s", q.spec.Share)
	case q.spec.Share > 0:
		text = fmt.Sprintf("a share of %s on each of %s", q.spec.Share, text)
	case q.spec.MIG != "":
		text = fmt.Sprintf("a %s slice", q.spec.MIG)
	}
	if q.spec.Memory > 0 {
		text += fmt.Sprintf(" with %s", q.spec.Memory)
	}
	return text
}

// freeWord is what is said of n devices that could be given: "is free", or "has room" for a share.
func (q *question) freeWord(n int) string {
	words := []string{"is free", "are free"}
	if q.spec.Share > 0 {
		words = []string{"has room", "have room"}
	}
	return words[ordinal(n > 1)]
}

// ours reports whether the device is of the vendor that is meant; every vendor is when none has enough devices.
func (q *question) ours(u *unit) bool { return q.vendor == "" || u.dev.Vendor == q.vendor }

func (q *question) busySummary() string {
	free, all, others := 0, 0, false
	for _, u := range q.units {
		if !q.ours(u) {
			others = true
			continue
		}
		free += ordinal(eligible(u))
		if q.spec.MIG == "" || u.mig != nil && strings.EqualFold(u.mig.Profile, q.spec.MIG) {
			all++
		}
	}
	what := q.what()
	if others {
		what += " of " + vendorName(q.vendor)
	}
	if free == 0 {
		return fmt.Sprintf("cannot give %s: none of %d %s", what, all, q.freeWord(1))
	}
	return fmt.Sprintf("cannot give %s: %d of %d %s", what, free, all, q.freeWord(free))
}

// busyRemedy lists what frees a device, in index order; several may be needed at once.
func (q *question) busyRemedy() string {
	free := q.largest(func(u *unit) bool { return eligible(u) && q.ours(u) })
	var options []string
	if free > 0 {
		options = append(options, fmt.Sprintf("ask for %s (--gpus %d)", count(free, "GPU"), free))
	}
	for _, u := range q.units {
		if eligible(u) && !q.ours(u) {
			u.reason.Text = fmt.Sprintf("free, but of %s: a program for %s finds nothing on it", vendorName(u.dev.Vendor), vendorName(q.vendor))
			u.reason.Remedy = fmt.Sprintf("name it (--device %s) if the program is made for %s", q.number(u.dev), vendorName(u.dev.Vendor))
			options = append(options, u.reason.Remedy)
		}
	}
	busy := q.remedies(job.Busy)
	switch {
	case q.spec.Share > 0:
		options, busy = append(options, q.smaller()...), q.waits()
	case q.need == 1:
		options = append(options, q.besides()...)
	}
	if missing := q.need - free; missing > 1 && len(busy) > 1 {
		busy = []string{fmt.Sprintf("free %d more: %s", missing, strings.Join(busy, "; "))}
	}
	options = append(options, busy...)
	return either(append(options, q.unhide()...))
}

// smaller is the largest share that as many devices of one vendor as are needed have room for now.
func (q *question) smaller() []string {
	var most gpu.Bytes
	for _, u := range q.units {
		if room := u.use.left; room != nil && q.ours(u) && u.reason.Verdict == job.Busy && u.use.short() && *room > most && *room < q.spec.Share &&
			q.largest(func(v *unit) bool {
				return eligible(v) || v.reason.Verdict == job.Busy && v.use.short() && *v.use.left >= *room
			}) >= q.need {
			most = *room
		}
	}
	if most < gpu.MiB {
		return nil
	}
	return []string{fmt.Sprintf("ask for a smaller share (--share %s)", typed(most))}
}

// waits are what would have to end on the busy devices.
func (q *question) waits() []string {
	var out []string
	for _, u := range q.units {
		switch {
		case u.reason.Verdict != job.Busy:
		case u.use.short() && u.use.wait != "":
			out = append(out, u.use.wait)
		case u.reason.Remedy != "":
			out = append(out, u.reason.Remedy)
		}
	}
	out = unique(out)
	return out[:min(most, len(out))]
}

// besides offers a share to somebody who wants a whole device, and finds only such that are shared.
func (q *question) besides() []string {
	if q.spec.MIG != "" || q.pool() != nil || q.in.Allocation != "" {
		return nil
	}
	in := q.in
	part := ask(job.Spec{GPUs: 1, Share: 1}, *q.m, q.held, in)
	var room gpu.Bytes
	for _, u := range q.units {
		if u.reason.Verdict == job.Busy && u.reason.Code == "leased" {
			if use := part.usage(u); use.busy == nil && use.shared && *use.left > room {
				room = *use.left
			}
		}
	}
	if room < gpu.MiB || room < q.spec.Memory {
		return nil
	}
	return []string{fmt.Sprintf("share one (--share %s)", typed(room))}
}

// either joins alternatives; a refusal never ends without saying what to do.
func either(options []string) string {
	if len(options) == 0 {
		return "look at gpuard status, or use --cpu to run without a GPU"
	}
	return strings.Join(options, ", or ")
}

// remedies of all devices with the verdict, each once, at most a few.
func (q *question) remedies(v job.Verdict) []string {
	var out []string
	for _, u := range q.units {
		if u.reason.Verdict == v && u.reason.Remedy != "" && u.reason.Code != "hidden" {
			out = append(out, u.reason.Remedy)
		}
	}
	out = unique(out)
	return out[:min(most, len(out))]
}

// unhide names the mask or the lease that hides devices, since they might have served.
func (q *question) unhide() []string {
	var out []string
	for _, u := range q.units {
		if u.reason.Code == "hidden" {
			out = append(out, u.reason.Remedy)
		}
	}
	out = unique(out)
	return out[:min(most, len(out))]
}

func (q *question) neverSummary() string {
	all := len(q.m.Devices)
	could := q.possible()
	switch {
	case all == 0:
		return fmt.Sprintf("cannot give %s: this machine has no GPU", q.what())
	case q.spec.MIG == "" && q.need > all:
		return fmt.Sprintf("cannot give %s: this machine has %d", q.what(), all)
	case q.mixed && q.need > 1 && q.fitting() >= q.need:
		return fmt.Sprintf("cannot give %s of one vendor: no vendor has more than %d here", q.what(), could)
	}
	return fmt.Sprintf("cannot give %s: %d of %d could ever serve (%s)", q.what(), could, len(q.units), q.obstacles())
}

func (q *question) fitting() int {
	n := 0
	for _, u := range q.units {
		n += ordinal(u.reason.Verdict != job.Never)
	}
	return n
}

// obstacles counts what stands in the way: "2 excluded, 1 hidden".
func (q *question) obstacles() string {
	words := []struct{ code, text string }{
		{"hidden", "hidden"}, {"excluded", "excluded"}, {"not-named", "not named"}, {"mig", "split"}, {"model", "of another model"},
		{"compute", "too old"}, {"memory", "too small"}, {"identity", "without a UUID"}, {"policy", "forbidden by " + q.forbidding()},
	}
	var parts []string
	for _, w := range words {
		n := 0
		for _, u := range q.units {
			n += ordinal(u.reason.Verdict == job.Never && u.reason.Code == w.code)
		}
		if w.code == "mig" && q.spec.MIG != "" {
			w.text = "not such a slice"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w.text))
		}
	}
	return strings.Join(parts, ", ")
}

// forbidding names the rules that keep devices from the asker.
func (q *question) forbidding() string {
	var rules []string
	for _, u := range q.units {
		if u.by != "" {
			rules = append(rules, u.by)
		}
	}
	return listed(unique(rules), "and")
}

func (q *question) neverRemedy() string {
	if len(q.m.Devices) == 0 {
		return "use --cpu to run without a GPU; gpuard status says what was looked for"
	}
	var options []string
	if could := q.possible(); could > 0 {
		options = append(options, fmt.Sprintf("ask for %s (--gpus %d)", count(could, "GPU"), could))
	}
	remedies := q.remedies(job.Never)
	for _, way := range q.unhide() {
		if !slices.ContainsFunc(remedies, func(r string) bool { return strings.Contains(r, way) }) {
			options = append(options, way)
		}
	}
	return either(append(options, remedies...))
}
