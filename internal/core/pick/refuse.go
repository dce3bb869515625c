package pick

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// buildRefusal says what was asked, how many devices could serve it, and what would have to change.
func (q *query) buildRefusal() *job.Refusal {
	r := &job.Refusal{Never: q.countPossible() < q.need, Reasons: q.collectReasons()}
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

	// busyRemedy changes some reasons.
	r.Reasons = q.collectReasons()

	return r
}

// countPossible is how many devices of one vendor could serve the spec if nothing else used them.
func (q *query) countPossible() int {
	return q.largestVendorCount(func(u *unit) bool { return u.reason.Verdict != job.Never })
}

func (q *query) largestVendorCount(fits func(*unit) bool) int {
	byVendor, most := map[gpu.Vendor]int{}, 0
	for _, u := range q.units {
		if fits(u) {
			byVendor[u.dev.Vendor]++
			most = max(most, byVendor[u.dev.Vendor])
		}
	}
	return most
}

func isEligible(u *unit) bool { return u.reason.Verdict == job.Eligible }

// refuseNamed starts with the named device that decides: one that never fits, else the first busy one.
func (q *query) refuseNamed(r *job.Refusal) {
	var first *unit
	var remedies []string
	for _, u := range q.named {
		if isEligible(u) || r.Never && u.reason.Verdict != job.Never {
			continue
		}
		if first == nil {
			first = u
		}
		remedies = append(remedies, u.reason.Remedy)
	}

	r.Summary = fmt.Sprintf("cannot give %s: %s", first.label, first.reason.Text)
	remedies = uniqueStrings(slices.DeleteFunc(remedies, func(s string) bool { return s == "" }))
	r.Remedy = strings.Join(append(remedies, "name another device, or none to have one chosen"), ", or ")
	if len(remedies) > 1 {
		r.Remedy = prose.JoinWords(remedies, "and") + ", or name other devices"
	}
}

// demandText is the request in words: "2 GPUs", "a 1g.10gb slice", "a share of 8 GiB".
func (q *query) demandText() string {
	text := prose.CountNoun(q.need, "GPU")
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

// freeWord describes n devices that could be given: "is free", or "has room" for a share.
func (q *query) freeWord(n int) string {
	words := []string{"is free", "are free"}
	if q.spec.Share > 0 {
		words = []string{"has room", "have room"}
	}
	return words[boolToInt(n > 1)]
}

// isOfVendor reports whether the device is of the vendor to choose from. Every vendor is when none has enough devices.
func (q *query) isOfVendor(u *unit) bool { return q.vendor == "" || u.dev.Vendor == q.vendor }

func (q *query) busySummary() string {
	free, all, others := 0, 0, false
	for _, u := range q.units {
		if !q.isOfVendor(u) {
			others = true
			continue
		}
		free += boolToInt(isEligible(u))
		if isAside(u) {
			continue
		}
		if q.spec.MIG == "" || u.mig != nil && strings.EqualFold(u.mig.Profile, q.spec.MIG) {
			all++
		}
	}

	what := q.demandText()
	if others {
		what += " of " + q.vendor.Name()
	}

	text := fmt.Sprintf("cannot give %s: none of %d %s", what, all, q.freeWord(1))
	if free > 0 {
		text = fmt.Sprintf("cannot give %s: %d of %d %s", what, free, all, q.freeWord(free))
	}

	return text + q.asideText()
}

// busyRemedy lists what frees a device, in index order; several may be needed together.
func (q *query) busyRemedy() string {
	free := q.largestVendorCount(func(u *unit) bool { return isEligible(u) && q.isOfVendor(u) })
	var options []string
	if free > 0 {
		options = append(options, option.Sprintf("ask for %s ({gpus=%d})", prose.CountNoun(free, "GPU"), free))
	}

	for _, u := range q.units {
		if isEligible(u) && !q.isOfVendor(u) {
			u.reason.Text = fmt.Sprintf("free, but of %s: a program for %s finds nothing on it", u.dev.Vendor.Name(), q.vendor.Name())
			u.reason.Remedy = option.Sprintf("name it ({device=%s}) if the program is made for %s", q.deviceNumber(u.dev), u.dev.Vendor.Name())
			options = append(options, u.reason.Remedy)
		}
	}

	busy := q.remediesFor(job.Busy)
	switch {
	case q.spec.Share > 0:
		options, busy = append(options, q.smallerShare()...), q.shareRemedies()
	case q.need == 1:
		options = append(options, q.offerShare()...)
	}

	if missing := q.need - free; missing > 1 && len(busy) > 1 {
		busy = []string{fmt.Sprintf("free %d more: %s", missing, strings.Join(busy, "; "))}
	}

	options = append(append(options, busy...), q.asideRemedies(false)...)

	return joinAlternatives(append(options, q.unhideRemedies()...))
}

// smallerShare offers the largest share for which enough devices of one vendor have room now.
func (q *query) smallerShare() []string {
	var most gpu.Bytes
	for _, u := range q.units {
		if room := u.use.left; room != nil && q.isOfVendor(u) && u.reason.Verdict == job.Busy && u.use.lacksRoom() && *room > most && *room < q.spec.Share &&
			q.largestVendorCount(func(v *unit) bool {
				return isEligible(v) || v.reason.Verdict == job.Busy && v.use.lacksRoom() && *v.use.left >= *room
			}) >= q.need {
			most = *room
		}
	}
	if most < gpu.MiB {
		return nil
	}

	return []string{option.Sprintf("ask for a smaller share ({share=%s})", formatSizeFlag(most))}
}

// shareRemedies lists what must end on the busy devices to make room for a share.
func (q *query) shareRemedies() []string {
	var out []string
	for _, u := range q.units {
		switch {
		case u.reason.Verdict != job.Busy:
		case u.use.lacksRoom() && u.use.wait != "":
			out = append(out, u.use.wait)
		case u.reason.Remedy != "":
			out = append(out, u.reason.Remedy)
		}
	}
	out = uniqueStrings(out)

	return out[:min(maxNamesInText, len(out))]
}

// offerShare offers a share to a request for a whole device when the leased devices carry shares.
func (q *query) offerShare() []string {
	if q.spec.MIG != "" || q.parentPool() != nil || q.in.Allocation != "" {
		return nil
	}

	in := q.in
	part := newQuery(job.Spec{GPUs: 1, Share: 1}, *q.m, q.held, in)
	var room gpu.Bytes
	for _, u := range q.units {
		if u.reason.Verdict == job.Busy && u.reason.Code == "leased" {
			if use := part.usageOf(u); use.busy == nil && use.shared && *use.left > room {
				room = *use.left
			}
		}
	}

	if room < gpu.MiB || room < q.spec.Memory {
		return nil
	}

	return []string{option.Sprintf("share one ({share=%s})", formatSizeFlag(room))}
}

// joinAlternatives joins alternatives. A refusal always says what to do.
func joinAlternatives(options []string) string {
	if len(options) == 0 {
		return option.Expand("look at {gpuard status}, or use {cpu} to run without a GPU")
	}
	return strings.Join(options, ", or ")
}

// remediesFor lists those of all devices with the verdict, each once, at most maxNamesInText.
func (q *query) remediesFor(v job.Verdict) []string {
	var out []string
	for _, u := range q.units {
		if u.reason.Verdict == v && u.reason.Remedy != "" && u.reason.Code != "hidden" && !isAside(u) {
			out = append(out, u.reason.Remedy)
		}
	}
	out = uniqueStrings(out)

	return out[:min(maxNamesInText, len(out))]
}

// unhideRemedies says how to reach the devices that a mask or a lease hides, since they might serve.
func (q *query) unhideRemedies() []string {
	var out, masks []string
	for _, u := range q.units {
		if mask, past := strings.CutPrefix(u.reason.Remedy, lookPastRemedy()); u.reason.Code == "hidden" && past {
			masks = append(masks, mask)
		} else if u.reason.Code == "hidden" {
			out = append(out, u.reason.Remedy)
		}
	}

	if len(masks) > 0 {
		out = append(out, lookPastRemedy()+prose.JoinWords(uniqueStrings(masks), "and"))
	}

	out = uniqueStrings(out)

	return out[:min(maxNamesInText, len(out))]
}

// lookPastRemedy begins the remedy of a device that a mask hides.
func lookPastRemedy() string { return option.Expand("add {any} to look past ") }

func (q *query) neverSummary() string {
	all := len(q.m.Devices)
	could := q.countPossible()
	switch {
	case all == 0:
		return fmt.Sprintf("cannot give %s: this machine has no GPU", q.demandText())
	case q.spec.MIG == "" && q.need > all:
		return fmt.Sprintf("cannot give %s: this machine has %d", q.demandText(), all)
	case q.mixed && q.need > 1 && q.countFitting() >= q.need:
		return fmt.Sprintf("cannot give %s of one vendor: no vendor has more than %d here", q.demandText(), could)
	}

	return fmt.Sprintf("cannot give %s: %d of %d could ever serve (%s)", q.demandText(), could, len(q.units), q.obstacleCounts())
}

func (q *query) countFitting() int {
	n := 0
	for _, u := range q.units {
		n += boolToInt(u.reason.Verdict != job.Never)
	}
	return n
}

// obstacleCounts counts the reasons: "2 excluded, 1 hidden".
func (q *query) obstacleCounts() string {
	words := []struct{ code, text string }{
		{"hidden", "hidden"}, {"excluded", "excluded"}, {"not-named", "not named"}, {"mig", "split"}, {"model", "of another model"},
		{"compute", "too old"}, {"memory", "too small"}, {"identity", "without a UUID"}, {"weak", "far weaker"}, {"use-unknown", "of unknown use"}, {"policy", "forbidden by " + q.forbiddingRules()},
	}
	var parts []string
	for _, w := range words {
		n := 0
		for _, u := range q.units {
			n += boolToInt(u.reason.Verdict == job.Never && u.reason.Code == w.code)
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

// forbiddingRules names the rules that keep devices from the caller.
func (q *query) forbiddingRules() string {
	var rules []string
	for _, u := range q.units {
		if u.forbiddenBy != "" {
			rules = append(rules, u.forbiddenBy)
		}
	}
	return prose.JoinWords(uniqueStrings(rules), "and")
}

func (q *query) neverRemedy() string {
	if len(q.m.Devices) == 0 {
		return option.Expand("use {cpu} to run without a GPU; {gpuard status} says what was looked for")
	}

	var options []string
	if could := q.countPossible(); could > 0 {
		options = append(options, option.Sprintf("ask for %s ({gpus=%d})", prose.CountNoun(could, "GPU"), could))
	}

	remedies := q.remediesFor(job.Never)
	for _, way := range q.unhideRemedies() {
		if !slices.ContainsFunc(remedies, func(r string) bool { return strings.Contains(r, way) }) {
			options = append(options, way)
		}
	}

	return joinAlternatives(append(append(options, remedies...), q.asideRemedies(true)...))
}
