package pick

import (
	"cmp"
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// chooseUnits returns the devices of the plan in the order in which the program sees them, and writes the reasons of
// all candidates.
func (q *query) chooseUnits(candidates []*unit) []*unit {
	if len(q.named) > 0 && q.spec.MIG == "" {
		for _, u := range q.named {
			u.reason.Verdict, u.reason.Text = job.Chosen, option.Expand("chosen: named by {device}")+blindText(u)
		}
		return q.named
	}

	rules := q.orderRules()
	sorted := slices.Clone(candidates)
	slices.SortFunc(sorted, func(a, b *unit) int { c, _ := compareByRules(rules, a, b); return c })
	chosen := q.bestSet(sorted)
	var others []*unit
	for _, u := range sorted {
		if !slices.Contains(chosen, u) {
			others = append(others, u)
		}
	}

	for _, u := range chosen {
		u.reason.Verdict, u.reason.Text = job.Chosen, "chosen"+q.restOfSetText(chosen, u)+q.whyThis(rules, u, chosen, others)+blindText(u)
	}

	for _, u := range others {
		u.reason.Text = freeText(u) + ", but " + q.whyNot(rules, u, chosen)
	}

	q.explainOtherVendors(chosen)
	slices.SortFunc(chosen, q.programOrder(chosen))

	return chosen
}

// programOrder is the order in which the program sees the chosen devices: index order; or, if the job had all of them
// before, the order it had then; or, if they are all that the caller's variables allow, the order in which these name
// them.
func (q *query) programOrder(chosen []*unit) func(a, b *unit) int {
	by := func(list []gpu.UUID) func(a, b *unit) int {
		return func(a, b *unit) int { return cmp.Compare(slices.Index(list, a.id()), slices.Index(list, b.id())) }
	}
	unlisted := func(u *unit) bool { return !slices.Contains(q.in.MaskOrder, u.id()) }
	switch {
	case !slices.ContainsFunc(chosen, func(u *unit) bool { return !u.had }):
		return by(q.spec.Prefer)
	case len(chosen) == len(q.in.MaskOrder) && !slices.ContainsFunc(chosen, unlisted):
		return by(q.in.MaskOrder)
	}

	return compareUnits
}

// restOfSetText names the other devices of the set and its worst link.
func (q *query) restOfSetText(chosen []*unit, u *unit) string {
	if len(chosen) == 1 {
		return ""
	}

	var rest []string
	byIndex := slices.Clone(chosen)
	slices.SortFunc(byIndex, compareUnits)

	for _, c := range byIndex {
		if c != u {
			rest = append(rest, c.label)
		}
	}

	text := " with " + prose.JoinWords(rest, "and")
	if worst := q.gradeOf(chosen).worst; worst > noLink {
		text += fmt.Sprintf(" (linked by %s)", linkWords(worst))
	}

	return text
}

func linkWords(class int) string {
	return []string{"an unknown way", "the bus between CPU sockets", "the bus of one NUMA node", "a PCIe host bridge", "a PCIe switch", "NVLink"}[class]
}

// whyThis compares a chosen device with the best one that was not chosen. It returns "" for a device that is worse
// by itself but part of a better set.
func (q *query) whyThis(rules []rule, u *unit, chosen, others []*unit) string {
	if len(others) == 0 {
		class := ""
		if slices.ContainsFunc(q.units, isAside) {
			class = "of its class "
		}
		if len(chosen) == 1 {
			return ": the only one " + class + "that " + q.freeWord(1)
		}

		return ": no other " + class + q.freeWord(1)
	}

	next := others[0]
	if swapped := compareGrades(q.gradeOf(chosen), q.gradeOf(swapUnit(chosen, u, next))); len(chosen) > 1 && swapped < 0 {
		return ": " + q.setWords(q.gradeOf(swapUnit(chosen, u, next)), q.gradeOf(chosen), next.label)
	}

	c, r := compareByRules(rules, u, next)
	if c >= 0 {
		return ""
	}

	return ": " + r.won(u, next)
}

// setWords says why a set with the other device would be worse; name is that device, or "it".
func (q *query) setWords(other, ours grade, name string) string {
	switch {
	case other.aside != ours.aside:
		return name + " is far weaker than the others"
	case other.ours != ours.ours:
		return fmt.Sprintf("%s is already used inside %s", name, q.insideText())
	case other.strange != ours.strange:
		return fmt.Sprintf("the job did not have %s before", name)
	case other.models != ours.models:
		return fmt.Sprintf("with %s the GPUs would be of %d models", name, other.models)
	case other.fresh != ours.fresh:
		return name + " carries no shares yet"
	case other.busy != ours.busy:
		return name + " is not idle"
	case other.worst != ours.worst:
		return fmt.Sprintf("with %s the worst link would be %s", name, linkWords(other.worst))
	}
	return fmt.Sprintf("with %s the links would be slower on the whole", name)
}

// whyNot compares the device with the chosen one that it could replace at the least loss.
func (q *query) whyNot(rules []rule, u *unit, chosen []*unit) string {
	ours := q.gradeOf(chosen)
	var closest grade
	var instead *unit
	for _, c := range chosen {
		g := q.gradeOf(swapUnit(chosen, c, u))
		if instead == nil {
			closest, instead = g, c
			continue
		}
		worse, _ := compareByRules(rules, instead, c)
		if d := compareGrades(g, closest); d < 0 || d == 0 && worse < 0 {
			closest, instead = g, c
		}
	}

	if len(chosen) > 1 && compareGrades(ours, closest) < 0 {
		return q.setWords(closest, ours, "it")
	}

	c, r := compareByRules(rules, instead, u)
	if c >= 0 {
		return "the chosen set is better as a whole"
	}

	return r.lost(u, instead)
}

func swapUnit(set []*unit, out, in *unit) []*unit {
	clone := slices.Clone(set)
	clone[slices.Index(clone, out)] = in
	return clone
}

// explainOtherVendors explains free devices that were not considered because another vendor is tried first.
func (q *query) explainOtherVendors(chosen []*unit) {
	for _, u := range q.units {
		if u.reason.Verdict != job.Eligible || u.reason.Text != "" {
			continue
		}

		first := chosen[0].dev.Vendor
		if vendorRank(u.dev.Vendor) < vendorRank(first) {
			u.reason.Text = fmt.Sprintf("free, but too few of %s are", u.dev.Vendor.Name())
			continue
		}

		u.reason.Text = fmt.Sprintf("free, but devices of %s are tried first", first.Name())
		u.reason.Remedy = option.Sprintf("name it ({device=%s})", q.deviceNumber(u.dev))
	}
}
