package pick

import (
	"cmp"
	"math"
	"slices"

	"gpuard/internal/core/gpu"
)

// grade is the value of a set of devices; earlier fields count more.
type grade struct {
	// Devices that others of the lease are far better than.
	aside int
	// Devices that the caller's own lease already uses.
	ours int
	// Devices that the job did not have before.
	strange int
	// Different models: a job that works in step waits for its slowest device.
	models int
	// Devices that carry no shares yet, for a share.
	fresh int
	// Devices that are not idle, while spreading.
	busy int
	// Class of the worst link between two of them.
	worst int
	// The sum of all link classes.
	sum int
}

// compareGrades compares two grades; the better one sorts first.
func compareGrades(a, b grade) int {
	switch {
	// Not cmp.Or: the search spends half its time here.
	case a.aside != b.aside:
		return cmp.Compare(a.aside, b.aside)
	case a.ours != b.ours:
		return cmp.Compare(a.ours, b.ours)
	case a.strange != b.strange:
		return cmp.Compare(a.strange, b.strange)
	case a.models != b.models:
		return cmp.Compare(a.models, b.models)
	case a.fresh != b.fresh:
		return cmp.Compare(a.fresh, b.fresh)
	case a.busy != b.busy:
		return cmp.Compare(a.busy, b.busy)
	case a.worst != b.worst:
		return cmp.Compare(b.worst, a.worst)
	}
	return cmp.Compare(b.sum, a.sum)
}

// bestLink is the class of NVLink, noLink that of an unknown connection.
const (
	noLink   = 0
	bestLink = 5
)

func linkClass(l gpu.Link) int {
	switch l {
	case gpu.LinkNVLink:
		return bestLink
	case gpu.LinkSwitch:
		return 4
	case gpu.LinkBridge:
		return 3
	case gpu.LinkNode:
		return 2
	case gpu.LinkSystem:
		return 1
	}
	return noLink
}

// linkBetween is the class between two devices. Where the two directions differ, the worse known one counts.
func linkBetween(a, b *unit) int {
	one, other := noLink, noLink
	if b.pos < len(a.dev.Links) {
		one = linkClass(a.dev.Links[b.pos])
	}

	if a.pos < len(b.dev.Links) {
		other = linkClass(b.dev.Links[a.pos])
	}

	if one == noLink || other == noLink {
		return max(one, other)
	}

	return min(one, other)
}

// search finds the best n of the candidates, which are sorted best first. It walks all sets in lexical order, so
// that among equal grades the set with the better single devices wins. It prunes a branch when even perfect links could
// not beat the best set so far.
type search struct {
	from   []*unit
	links  [][]int
	spread bool
	n      int
	steps  int
	picked []int
	best   []int
	top    grade
}

// maxSteps covers every set of any size among 16 devices (at most 2^16 branches). Larger machines get the best set
// found within that limit.
const maxSteps = 1 << 17

func (q *query) bestSet(sorted []*unit) []*unit {
	s := &search{from: sorted, spread: q.spread, n: q.need, top: grade{aside: math.MaxInt}}
	for _, a := range sorted {
		row := make([]int, len(sorted))
		for j, b := range sorted {
			row[j] = linkBetween(a, b)
		}
		s.links = append(s.links, row)
	}

	s.extendSet(0, grade{worst: bestLink})
	var out []*unit
	for _, i := range s.best {
		out = append(out, sorted[i])
	}

	return out
}

func (s *search) extendSet(next int, g grade) {
	if len(s.picked) == s.n {
		if compareGrades(g, s.top) < 0 {
			s.best, s.top = slices.Clone(s.picked), g
		}
		return
	}
	for i := next; len(s.from)-i >= s.n-len(s.picked) && s.steps < maxSteps; i++ {
		s.steps++
		grown := s.gradeWith(g, i)
		if compareGrades(s.bestReachableGrade(grown), s.top) < 0 {
			s.picked = append(s.picked, i)
			s.extendSet(i+1, grown)
			s.picked = s.picked[:len(s.picked)-1]
		}
	}
}

// gradeWith is the grade after candidate i joins the picked ones.
func (s *search) gradeWith(g grade, i int) grade {
	g.models++
	for _, j := range s.picked {
		g.worst = min(g.worst, s.links[i][j])
		g.sum += s.links[i][j]
	}

	if slices.ContainsFunc(s.picked, func(j int) bool { return s.from[j].dev.Name == s.from[i].dev.Name }) {
		g.models--
	}

	g.aside += boolToInt(s.from[i].aside != nil)
	g.ours += boolToInt(s.from[i].use.ours)
	g.strange += boolToInt(!s.from[i].had)
	g.fresh += boolToInt(!s.from[i].use.shared)
	if s.spread {
		g.busy += boolToInt(!s.from[i].use.idle)
	}

	return g
}

// bestReachableGrade is the best grade that the set can still reach: it has one member more than s.picked, and all
// further links are NVLink.
func (s *search) bestReachableGrade(g grade) grade {
	have := len(s.picked) + 1
	pairs := s.n*(s.n-1)/2 - have*(have-1)/2
	g.sum += pairs * bestLink

	return g
}

// gradeOf grades a whole set.
func (q *query) gradeOf(set []*unit) grade {
	g := grade{worst: bestLink}
	for i, a := range set {
		g.aside += boolToInt(a.aside != nil)
		g.ours += boolToInt(a.use.ours)
		g.strange += boolToInt(!a.had)
		g.fresh += boolToInt(!a.use.shared)
		if q.spread {
			g.busy += boolToInt(!a.use.idle)
		}

		g.models++

		for _, b := range set[:i] {
			g.worst = min(g.worst, linkBetween(a, b))
			g.sum += linkBetween(a, b)
		}

		if slices.ContainsFunc(set[:i], func(b *unit) bool { return a.dev.Name == b.dev.Name }) {
			g.models--
		}
	}
	return g
}
