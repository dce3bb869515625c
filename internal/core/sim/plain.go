package sim

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// plainLine is the waiting jobs of a policy other than gpuard's own. Jobs that ask for the same are of one class, in
// which they are in the order of arrival, so that a decision looks at one of each.
type plainLine struct {
	r       *replay
	classes map[class]*[]int
	waits   int
}

type class struct {
	gpus, share int16
	estimate    time.Duration
}

func newPlainLine(r *replay) *plainLine { return &plainLine{r: r, classes: map[class]*[]int{}} }

func (l *plainLine) add(i int) {
	j := &l.r.jobs[i]
	c := class{j.GPUs, j.Share, j.Estimate}
	if l.classes[c] == nil {
		l.classes[c] = &[]int{}
	}
	*l.classes[c] = append(*l.classes[c], i)
	l.waits++
}

func (l *plainLine) len() int    { return l.waits }
func (l *plainLine) wake() int64 { return math.MaxInt64 }
func (l *plainLine) ended(run)   {}

func (l *plainLine) next() (turn, bool) {
	p := &l.r.Policy
	first, ok := l.best(p.order, func(class) bool { return p.blocked != none })
	if p.blocked == none || ok && !l.fits(first) {
		switch p.blocked {
		case all:
			return turn{}, false
		case none:
			first, ok = l.best(p.order, l.fits)
		case later:
			at, left := l.shadow(first)
			order := p.backfill
			if order == nil {
				order = p.order
			}
			first, ok = l.best(order, func(c class) bool {
				return l.fits(c) && (l.r.now+int64(c.estimate) <= at || int(c.gpus) <= left)
			})
		}
	}
	if !ok {
		return turn{}, false
	}
	return l.take(first), true
}

// best is the class whose first job goes before those of the other suitable classes.
func (l *plainLine) best(order order, suits func(class) bool) (best class, found bool) {
	for c, list := range l.classes {
		if !suits(c) {
			continue
		}
		if !found || cmp.Or(order(&l.r.jobs[(*list)[0]], &l.r.jobs[(*l.classes[best])[0]], l.r.now), cmp.Compare((*list)[0], (*l.classes[best])[0])) < 0 {
			best, found = c, true
		}
	}
	return best, found
}

func (l *plainLine) take(c class) turn {
	list := l.classes[c]
	i := (*list)[0]
	if *list = (*list)[1:]; len(*list) == 0 {
		delete(l.classes, c)
	}
	l.waits--
	return turn{job: i, time: c.estimate}
}

func (l *plainLine) fits(c class) bool {
	n, quota := 0, l.r.quota(&Job{Share: c.share})
	for k := range l.r.devices {
		if l.r.devices[k].gives(quota) {
			n++
		}
	}
	return n >= int(c.gpus)
}

// shadow is when the class will fit if all ends as estimated, and how many further devices are free then. It counts
// whole devices: a job that waits for a share waits for an unused one.
func (l *plainLine) shadow(c class) (at int64, left int) {
	ends := make([]int64, 0, len(l.r.devices)) // of each device
	quota := l.r.quota(&Job{Share: c.share})
	for k := range l.r.devices {
		if !l.r.devices[k].serves(quota) {
			continue
		}
		end := l.r.now
		if d := &l.r.devices[k]; d.leases > 0 {
			for i := range l.r.running {
				if one := &l.r.running[i]; slices.Contains(one.lease.Devices, d.id) {
					end = max(end, one.started+int64(one.lease.Time))
				}
			}
		}
		ends = append(ends, end)
	}
	slices.Sort(ends)
	at = ends[c.gpus-1]
	for _, end := range ends {
		if end <= at {
			left++
		}
	}
	return at, left - int(c.gpus)
}
