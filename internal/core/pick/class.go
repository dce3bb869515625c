package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// Machines of different models. A display card, or the GPU of the processor, is idle and cool because nobody wants it.
// So of the devices of one vendor that the caller may use, whether free or not, those far below the best are set aside:
//
//   - integrated GPUs, where there is another GPU
//   - those whose use cannot be read, where that of another can
//   - those without tensor cores, where another has them; not with a --min-compute that has none
//   - those whose compute capability is two generations older than another's; not with --min-compute
//   - those with less than half of another's memory; not with --mem or --share
//
// Each criterion looks only at what the ones before it have left, so that something always remains. A reading that is
// absent sets nothing aside. A device that is set aside is given only by its name, by a limit that leaves no better one
// (--model, --exclude, a mask, a rule), or inside a lease or an allocation that has it, where it comes last. A busy,
// sick or drained device still sets others aside: it may come back, and the refusal names the way to the others. One
// that MIG has split does not: it is never given whole.

// asideCriterion is one criterion.
type asideCriterion struct {
	code string
	rank func(*unit) (value int64, known bool) // more is better
	far  func(best, value int64) bool
	text func(u, best *unit) string
}

// asideCriteria are the criteria that count for this request, the most important first.
func (q *query) asideCriteria() []asideCriterion {
	less := func(best, value int64) bool { return value < best }
	all := []asideCriterion{
		{"weak", boardRank, less, func(_, best *unit) string { return "integrated into the processor, unlike " + best.label }},
		{"use-unknown", readableUseRank, less, func(_, best *unit) string {
			return "of unknown use, unlike " + best.label + ": its memory, load and processes cannot be read"
		}},
	}

	least := q.spec.MinCompute
	if least == nil || least.Major >= firstTensorMajor {
		all = append(all, asideCriterion{"weak", tensorCoreRank, less, func(_, best *unit) string {
			return "far weaker than " + best.label + ": no tensor cores"
		}})
	}

	if least == nil {
		all = append(all, asideCriterion{"weak", generationRank, func(best, value int64) bool { return best-value >= 2 }, func(u, best *unit) string {
			return fmt.Sprintf("far weaker than %s: compute capability %s against %s", best.label, u.dev.Compute, best.dev.Compute)
		}})
	}

	if q.spec.Memory <= 0 && q.promisedShare() <= 0 {
		all = append(all, asideCriterion{"weak", totalMemoryRank, func(best, value int64) bool { return value*2 < best }, func(u, best *unit) string {
			return fmt.Sprintf("far weaker than %s: %s of memory against %s", best.label, memoryText(u.totalMemory()), memoryText(best.totalMemory()))
		}})
	}

	return all
}

// firstTensorMajor is the first compute capability with tensor cores.
const firstTensorMajor = 7

func boardRank(u *unit) (int64, bool) { return int64(boolToInt(!isIntegrated(u))), true }

func isIntegrated(u *unit) bool { return u.dev.Integrated != nil && *u.dev.Integrated }

func readableUseRank(u *unit) (int64, bool) { return int64(boolToInt(!u.dev.UseUnknown(u.mig))), true }

func tensorCoreRank(u *unit) (int64, bool) {
	if u.dev.Vendor != gpu.NVIDIA {
		return 0, false
	}
	has, known := compat.HasTensorCores(*u.dev)
	return int64(boolToInt(has)), known
}

// generationRank counts from Blackwell on all as one with Hopper: NVIDIA went from 9 to 10 and 12 within one
// generation.
func generationRank(u *unit) (int64, bool) {
	if u.dev.Compute == nil {
		return 0, false
	}
	return int64(min(u.dev.Compute.Major, 9)), true
}

func totalMemoryRank(u *unit) (int64, bool) {
	if u.totalMemory() == nil {
		return 0, false
	}
	return int64(*u.totalMemory()), true
}

// setAside sets u.aside of the devices that are far below the best of their vendor. Those that are named are what is
// wanted, and slices are compared by their profile.
func (q *query) setAside() {
	if q.spec.MIG != "" || len(q.named) > 0 || !q.hasUnequalDevices() {
		return
	}
	for _, v := range gpu.Vendors() {
		left := slices.DeleteFunc(slices.Clone(q.units), func(u *unit) bool { return u.dev.Vendor != v || !q.isEverUsable(u) })
		for _, c := range q.asideCriteria() {
			left = q.keepBest(left, c)
		}
	}
	q.setAsideForOtherVendors()
}

// hasUnequalDevices saves the comparison on most machines.
func (q *query) hasUnequalDevices() bool {
	return slices.ContainsFunc(q.units, func(u *unit) bool {
		first := q.units[0].dev
		return u.dev.Name != first.Name || u.dev.Vendor != first.Vendor || isIntegrated(u) || u.dev.UseUnknown(u.mig)
	})
}

// isEverUsable reports whether the caller may use the device for this request at some time. A GPU that is split never
// serves it: nothing is waited for, because only an administrator makes it whole again.
func (q *query) isEverUsable(u *unit) bool {
	if u.excluded {
		// And not what the job leaves: that does not ask for a weaker one.
		return false
	}
	return !slices.ContainsFunc([]func(*unit) *obstacle{q.visibilityObstacle, q.policyObstacle, q.splitObstacle, q.modelObstacle, q.computeObstacle, q.totalMemoryObstacle},
		func(rule func(*unit) *obstacle) bool { return rule(u) != nil })
}

// keepBest sets aside the units that are far below the best by one criterion, and returns the others.
func (q *query) keepBest(units []*unit, c asideCriterion) []*unit {
	var best *unit
	var most int64
	for _, u := range units {
		if value, known := c.rank(u); known && (best == nil || value > most) {
			best, most = u, value
		}
	}

	return slices.DeleteFunc(units, func(u *unit) bool {
		value, known := c.rank(u)
		if !known || !c.far(most, value) {
			return false
		}
		u.aside = &obstacle{code: c.code, text: c.text(u, best), remedy: option.Sprintf("name it ({device=%s})", q.deviceNumber(u.dev))}

		return true
	})
}

// setAsideForOtherVendors sets aside integrated GPUs on a machine where only another vendor has a board: a program that
// wants that board finds nothing here, whatever keeps the board from it.
func (q *query) setAsideForOtherVendors() {
	board := slices.IndexFunc(q.units, func(u *unit) bool {
		return !isIntegrated(u) && q.policyObstacle(u) == nil && q.modelObstacle(u) == nil
	})
	if board < 0 {
		return
	}

	for _, u := range q.units {
		if isIntegrated(u) && u.aside == nil && u.dev.Vendor != q.units[board].dev.Vendor {
			u.aside = &obstacle{code: "weak", text: "integrated into the processor, unlike " + q.units[board].label,
				remedy: option.Sprintf("name it ({device=%s})", q.deviceNumber(u.dev))}
		}
	}
}

// asideObstacle is a reason of never: inside a lease or an allocation all that it has was asked for.
func (q *query) asideObstacle(u *unit) *obstacle {
	if u.aside == nil || q.in.Parent != nil || q.in.Allocation != "" {
		return nil
	}
	if b := u.use.busy; b != nil && b.code == "unhealthy" {
		both := *u.aside
		both.text += "; also " + b.text
		return &both
	}
	return u.aside
}

// asideRule puts what is set aside last, where it is given at all.
func asideRule() rule {
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(boolToInt(a.aside != nil), boolToInt(b.aside != nil)) },
		won:     func(_, b *unit) string { return b.label + " is " + b.aside.text },
		lost:    func(a, _ *unit) string { return a.aside.text },
	}
}

// sizeRule prefers the smallest device, by its whole memory in GiB, where a need is given: large ones stay free for
// those that need them.
func (q *query) sizeRule() rule {
	if q.spec.MIG != "" || q.spec.Memory <= 0 && q.spec.Share <= 0 {
		return rule{compare: func(_, _ *unit) int { return 0 }}
	}
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(roundToGiB(a.totalMemory()), roundToGiB(b.totalMemory())) },
		won: func(a, b *unit) string {
			return fmt.Sprintf("smaller than %s, and large enough (%s against %s)", b.label, memoryText(a.totalMemory()), memoryText(b.totalMemory()))
		},
		lost: func(a, b *unit) string {
			return fmt.Sprintf("larger than %s (%s against %s)", b.label, memoryText(a.totalMemory()), memoryText(b.totalMemory()))
		},
	}
}

// isAside reports whether the device is not given because others are far better.
func isAside(u *unit) bool {
	return u.aside != nil && u.reason.Verdict == job.Never && u.reason.Code == u.aside.code
}

// asideText counts what was set aside: ", and 1 more is far weaker".
func (q *query) asideText() (text string) {
	for _, kind := range []struct{ code, words string }{{"weak", "far weaker"}, {"use-unknown", "of unknown use"}} {
		n := 0
		for _, u := range q.units {
			n += boolToInt(isAside(u) && u.aside.code == kind.code && q.isOfVendor(u))
		}
		switch {
		case n == 1:
			text += ", and 1 more is " + kind.words
		case n > 1:
			text += fmt.Sprintf(", and %d more are %s", n, kind.words)
		}
	}
	return text
}

// asideRemedies is the remedy that names devices that were set aside, together with others where one is not enough; ""
// where that would not help. never: not what is free counts, but what could ever be given.
func (q *query) asideRemedies(never bool) []string {
	first := slices.IndexFunc(q.units, func(u *unit) bool { return isAside(u) && q.isOfVendor(u) })
	if first < 0 {
		return nil
	}

	var good, aside []*unit
	for _, u := range q.units {
		switch {
		case u.dev.Vendor != q.units[first].dev.Vendor:
		case isAside(u) && (never || u.use.busy == nil):
			aside = append(aside, u)
		case isEligible(u) || never && u.reason.Verdict != job.Never:
			good = append(good, u)
		}
	}

	missing := q.need - len(good)
	if missing < 1 || missing > len(aside) {
		return nil
	}

	var labels, names []string
	for _, u := range aside[:missing] {
		labels = append(labels, strings.TrimPrefix(u.label, "GPU "))
	}

	for _, u := range append(good, aside[:missing]...) {
		names = append(names, q.deviceNumber(u.dev))
	}

	return []string{option.Sprintf("take GPU %s all the same ({device=%s})", prose.JoinWords(labels, "and"), strings.Join(names, ","))}
}
