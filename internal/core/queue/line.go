package queue

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Line is the requests of one user that have no ticket yet, however many. Requests with the same estimate are of one
// Class, in which the first to arrive is next, so that Take looks only at that one. The zero value is empty.
type Line struct {
	Patience time.Duration // as in Own
	classes  map[Class]places
}

// Class is what the estimate of a request depends on.
type Class struct {
	Nice  int
	Count int // devices
	// The kind, equal for the same estimate.
	Kind uint64
}

type place struct {
	arrival int64
	id      int
}

// places are those of a class, a heap with the first to arrive in front: what comes back into the line moves no others.
type places []place

func (p places) Len() int { return len(p) }
func (p places) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(p[i].arrival, p[j].arrival), cmp.Compare(p[i].id, p[j].id)) < 0
}
func (p places) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *places) Push(one any) { *p = append(*p, one.(place)) }
func (p *places) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// Add puts a request into the line.
func (l *Line) Add(c Class, arrival int64, id int) {
	if l.classes == nil {
		l.classes = map[Class]places{}
	}
	list := l.classes[c]
	heap.Push(&list, place{arrival, id})
	l.classes[c] = list
}

// First is the request that is next; false where there is none.
func (l *Line) First(now int64, estimate func(kind uint64) time.Duration) (Own, bool) {
	_, o, _, ok := l.nextInLine(now, estimate)
	return o, ok
}

// nextInLine is the next one. One without an estimate counts as usual, like the others of the line.
func (l *Line) nextInLine(now int64, estimate func(kind uint64) time.Duration) (best Class, first Own, id int, ok bool) {
	var known []time.Duration
	for c := range l.classes {
		if e := estimate(c.Kind); e > 0 {
			known = append(known, e)
		}
	}

	usual := Median(known)
	for c, list := range l.classes {
		o := Own{c.Nice, list[0].arrival, cmp.Or(estimate(c.Kind), usual), c.Count, l.Patience}
		if order := cmp.Or(o.Compare(first, now), cmp.Compare(list[0].id, id)); !ok || order < 0 {
			best, first, id, ok = c, o, list[0].id, true
		}
	}

	return best, first, id, ok
}

// IndexToDisplace is which of the requests of its user that have a ticket has to give it to this one: the last of those
// that go behind it; -1 where none does. So it does not matter which requests came while there was a ticket left.
func (a Own) IndexToDisplace(ticketed []Own, now int64) int {
	last := -1
	for i, o := range ticketed {
		if a.Compare(o, now) < 0 && (last < 0 || ticketed[last].Compare(o, now) < 0) {
			last = i
		}
	}
	return last
}

// Take takes the request that is next out of the line; false where there is none.
func (l *Line) Take(now int64, estimate func(kind uint64) time.Duration) (id int, ok bool) {
	best, _, id, ok := l.nextInLine(now, estimate)
	if ok {
		list := l.classes[best]
		heap.Pop(&list)
		l.storeClass(best, list)
	}
	return id, ok
}

func (l *Line) storeClass(c Class, list places) {
	l.classes[c] = list
	if len(list) == 0 {
		delete(l.classes, c)
	}
}

// Reclass moves the requests of those kinds whose class has become another one.
func (l *Line) Reclass(which func(kind uint64) bool, of func(id int) Class) {
	type moved struct {
		to Class
		place
	}
	var others []moved
	for c, list := range l.classes {
		if !which(c.Kind) {
			continue
		}
		list := slices.DeleteFunc(list, func(p place) bool {
			to := of(p.id)
			if to != c {
				others = append(others, moved{to, p})
			}
			return to != c
		})
		heap.Init(&list)
		l.storeClass(c, list)
	}
	for _, m := range others {
		l.Add(m.to, m.arrival, m.id)
	}
}

// ForecastStarts is when requests may start, as far as estimates say, in ns since 1970: each, in this order, as soon as
// there are as many devices as it needs, and without a delay for those before it. free is when each device is expected
// to be free, or UnknownTime. A start that depends on an unknown time is UnknownTime too.
func ForecastStarts(free []int64, requests []ForecastRequest) (starts []int64) {
	free = slices.Clone(free)
	all := make([]int, len(free))
	for i := range all {
		all[i] = i
	}

	for _, r := range requests {
		can := all
		if r.Of != nil {
			can = slices.Clone(r.Of)
		}

		slices.SortStableFunc(can, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
		if r.Count < 1 || r.Count > len(can) {
			starts = append(starts, UnknownTime)
			continue
		}

		start := free[can[r.Count-1]]
		starts = append(starts, start)
		end := int64(UnknownTime)
		if start < UnknownTime && r.Estimate > 0 {
			end = start + int64(r.Estimate)
		}

		for _, device := range can[:r.Count] {
			free[device] = end
		}
	}

	return starts
}

// ForecastRequest is a request of a forecast.
type ForecastRequest struct {
	Count int // devices
	// Which devices can serve it, by their place in free; nil: each.
	Of       []int
	Estimate time.Duration // 0 unknown
}

// UnknownTime stands for a time that is not known.
const UnknownTime = unknownEnd
