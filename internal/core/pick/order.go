package pick

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// The order of eligible devices of one vendor.
//
// For one device, the first of these rules that finds a difference decides:
//   - a device that is far weaker than others comes last, inside a lease that has both; elsewhere it is not eligible
//     (class.go)
//   - a device on which the caller's own lease already runs something comes last
//   - a device that the job had before comes first (Spec.Prefer), so that a service stays where its model is cached and
//     where its users find it
//   - a share goes first to devices that carry shares already, so that whole devices stay free for others
//   - with a memory need, the smallest device comes first: all that are eligible suffice
//   - a device that drives no display: there the job has all of the memory, and neither slows the other
//   - jobs are spread, idle devices first, while no job waits and at least a quarter of the devices are idle and free;
//     otherwise they are packed, onto the device with the least sufficient free memory. --place forces one of the two
//   - the cooler device, then the one that this user had last
//   - the highest index, because GPU 0 often drives a display that nothing reports
//
// Several devices are chosen as a set: first the fewest that are far weaker, then the fewest devices in use, then the
// most that the job had before, then the fewest models, then (shares) the fewest without shares, then (spread) the
// fewest busy ones, then the best worst link between any two, then the best sum of links, and only then the rules
// above, in lexical order of the devices. So memory fit and temperature never cost a faster link. The program sees the
// devices in index order or, if the job had all of them before, in the order it had then.
//
// For a slice, the GPU with the fewest free slices comes first (--place spread: the most), so that whole GPUs stay
// whole.

// rule is one comparison of two devices. Negative means that a comes first; the texts explain it for either device.
type rule struct {
	compare func(a, b *unit) int
	// Why a was taken and not b: "cooler than GPU 1 (41 C against 55 C)".
	won func(a, b *unit) string
	// Why a was not taken but b.
	lost func(a, b *unit) string
}

func (q *query) orderRules() []rule {
	rules := []rule{asideRule(), q.ownUseRule(), previousDeviceRule(), shareRule(), q.sizeRule(), q.displayRule()}
	switch {
	case q.spec.MIG != "":
		rules = append(rules, q.sliceRule())
	case q.spread:
		rules = append(rules, q.idleRule())
	default:
		rules = append(rules, q.fitRule())
	}
	return append(rules, temperatureRule(), q.lastDeviceRule(), indexRule())
}

// decideSpread counts all visible devices, not only those that would serve this spec: a demanding job must not change
// the mode.
func (q *query) decideSpread() {
	quiet, seen := 0, 0
	for _, u := range q.units {
		if q.visibilityObstacle(u) != nil || u.mig == nil && u.dev.UsesMIG() {
			continue
		}
		seen++
		if u.use.busy == nil && u.use.idle && !u.use.ours && !u.use.shared {
			quiet++
		}
	}
	switch q.spec.Place {
	case job.Spread:
		q.spread = true
	case job.Packed:
		q.spread = false
	default:
		q.spread = !q.in.Waiting && quiet*4 >= seen
	}
}

func (q *query) ownUseRule() rule {
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(boolToInt(a.use.ours), boolToInt(b.use.ours)) },
		won: func(_, b *unit) string {
			return fmt.Sprintf("not yet used inside %s, unlike %s", q.insideText(), b.label)
		},
		lost: func(_, b *unit) string {
			return fmt.Sprintf("already used inside %s, unlike %s", q.insideText(), b.label)
		},
	}
}

// previousDeviceRule decides nothing when Spec.Prefer is empty.
func previousDeviceRule() rule {
	return rule{
		compare: func(a, b *unit) int { return -cmp.Compare(boolToInt(a.had), boolToInt(b.had)) },
		won:     func(_, b *unit) string { return fmt.Sprintf("the job had it before, unlike %s", b.label) },
		lost:    func(_, b *unit) string { return fmt.Sprintf("the job had %s before", b.label) },
	}
}

func (q *query) displayRule() rule {
	isLit := func(u *unit) bool { return u.mig == nil && q.deviceScreen(u.id()).IsLit() }
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(boolToInt(isLit(a)), boolToInt(isLit(b))) },
		won:     func(_, b *unit) string { return fmt.Sprintf("drives no display, unlike %s", b.label) },
		lost:    func(_, b *unit) string { return fmt.Sprintf("drives a display, unlike %s", b.label) },
	}
}

func (q *query) idleRule() rule {
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(boolToInt(!a.use.idle), boolToInt(!b.use.idle)) },
		won:     func(_, b *unit) string { return fmt.Sprintf("idle, unlike %s", b.label) },
		lost:    func(_, b *unit) string { return fmt.Sprintf("not idle, unlike %s", b.label) },
	}
}

// shareRule decides nothing for whole devices: devices with shares are busy then.
func shareRule() rule {
	return rule{
		compare: func(a, b *unit) int { return -cmp.Compare(boolToInt(a.use.shared), boolToInt(b.use.shared)) },
		won:     func(_, b *unit) string { return fmt.Sprintf("carries shares already, unlike %s", b.label) },
		lost:    func(_, b *unit) string { return fmt.Sprintf("carries no shares yet, unlike %s", b.label) },
	}
}

// fitRule compares in whole GiB: small amounts used by a driver or another process must not decide.
func (q *query) fitRule() rule {
	what := "free"
	if q.promisedShare() > 0 {
		what = "left for shares"
	}
	against := func(a, b *unit) string {
		return fmt.Sprintf("(%s %s against %s)", memoryText(q.packingMemory(a)), what, memoryText(q.packingMemory(b)))
	}

	return rule{
		compare: func(a, b *unit) int {
			return cmp.Compare(roundToGiB(q.packingMemory(a)), roundToGiB(q.packingMemory(b)))
		},
		won: func(a, b *unit) string {
			return fmt.Sprintf("packed, it fits more closely than %s %s", b.label, against(a, b))
		},
		lost: func(a, b *unit) string { return fmt.Sprintf("packed, %s fits more closely %s", b.label, against(b, a)) },
	}
}

// packingMemory is the memory that packing compares: what remains for shares, or what is free.
func (q *query) packingMemory(u *unit) *gpu.Bytes {
	if u.use.left != nil {
		return u.use.left
	}
	return u.freeMemory()
}

func roundToGiB(b *gpu.Bytes) int64 {
	if b == nil {
		return math.MaxInt64
	}
	return int64((*b + gpu.GiB/2) / gpu.GiB)
}

// sliceRule keeps GPUs whole. Free slices count whatever their profile.
func (q *query) sliceRule() rule {
	free := map[*gpu.Device]int{}
	for _, u := range q.units {
		if u.mig != nil && u.use.busy == nil {
			free[u.dev]++
		}
	}

	sign, word := 1, "fewer"
	if q.spec.Place == job.Spread {
		sign, word = -1, "more"
	}

	opposite := map[string]string{"fewer": "more", "more": "fewer"}

	return rule{
		compare: func(a, b *unit) int { return sign * cmp.Compare(free[a.dev], free[b.dev]) },
		won: func(a, b *unit) string {
			return fmt.Sprintf("its GPU has %s free slices than that of %s (%d against %d)", word, b.label, free[a.dev], free[b.dev])
		},
		lost: func(a, b *unit) string {
			return fmt.Sprintf("its GPU has %s free slices than that of %s (%d against %d)", opposite[word], b.label, free[a.dev], free[b.dev])
		},
	}
}

func temperatureRule() rule {
	words := func(comparison string) func(a, b *unit) string {
		return func(a, b *unit) string {
			if a.dev.Temperature == nil || b.dev.Temperature == nil {
				return fmt.Sprintf("%s than %s as far as temperatures are known", comparison, b.label)
			}
			return fmt.Sprintf("%s than %s (%d C against %d C)", comparison, b.label, *a.dev.Temperature, *b.dev.Temperature)
		}
	}
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(temperatureRank(a), temperatureRank(b)) },
		won:     words("cooler"),
		lost:    words("warmer"),
	}
}

// temperatureRank sorts a device of unknown temperature after all others.
func temperatureRank(u *unit) int {
	if u.dev.Temperature == nil {
		return math.MaxInt
	}
	return *u.dev.Temperature
}

func (q *query) lastDeviceRule() rule {
	had := func(u *unit) int { return boolToInt(!slices.Contains(q.in.Last, u.id())) }
	return rule{
		compare: func(a, b *unit) int { return cmp.Compare(had(a), had(b)) },
		won:     func(_, b *unit) string { return fmt.Sprintf("you had it last, unlike %s", b.label) },
		lost:    func(_, b *unit) string { return fmt.Sprintf("you had %s last", b.label) },
	}
}

func indexRule() rule {
	return rule{
		compare: func(a, b *unit) int { return compareUnits(b, a) },
		won:     func(_, b *unit) string { return fmt.Sprintf("otherwise equal to %s, and the higher index", b.label) },
		lost: func(_, b *unit) string {
			return fmt.Sprintf("otherwise equal to %s, which has the higher index", b.label)
		},
	}
}

// compareByRules compares two devices by all rules and returns the rule that decided.
func compareByRules(rules []rule, a, b *unit) (int, rule) {
	for _, r := range rules {
		if c := r.compare(a, b); c != 0 {
			return c, r
		}
	}
	return 0, rules[len(rules)-1]
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
