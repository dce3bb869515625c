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
	classes map[requestClass]*[]int
	waits   int
}

type requestClass struct {
	gpus, share int16
	estimate    time.Duration
}

func newPlainLine(r *replay) *plainLine { return &plainLine{r: r, classes: map[requestClass]*[]int{}} }

func (l *plainLine) addJob(i int) {
	j := &l.r.jobs[i]
	c := requestClass{j.GPUs, j.Share, j.Estimate}
	if l.classes[c] == nil {
		l.classes[c] = &[]int{}
	}

	*l.classes[c] = append(*l.classes[c], i)
	l.waits++
}

func (l *plainLine) waitingCount() int  { return l.waits }
func (l *plainLine) wakeTime() int64    { return math.MaxInt64 }
func (l *plainLine) noteEnd(runningJob) {}

func (l *plainLine) nextTurn() (startableJob, bool) {
	p := &l.r.Policy
	first, ok := l.bestClass(p.order, func(requestClass) bool { return p.blocked != blockNone })
	if p.blocked == blockNone || ok && !l.fitsNow(first) {
		switch p.blocked {
		case blockAll:
			return startableJob{}, false
		case blockNone:
			first, ok = l.bestClass(p.order, l.fitsNow)
		case blockDelaying:
			at, left := l.shadowTime(first)
			order := p.backfill
			if order == nil {
				order = p.order
			}
			first, ok = l.bestClass(order, func(c requestClass) bool {
				return l.fitsNow(c) && (l.r.now+int64(c.estimate) <= at || int(c.gpus) <= left)
			})
		}
	}

	if !ok {
		return startableJob{}, false
	}

	return l.takeFirst(first), true
}

// bestClass is the class whose first job goes before those of the other suitable classes.
func (l *plainLine) bestClass(order jobOrder, suits func(requestClass) bool) (best requestClass, found bool) {
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

func (l *plainLine) takeFirst(c requestClass) startableJob {
	list := l.classes[c]
	i := (*list)[0]
	*list = (*list)[1:]
	if len(*list) == 0 {
		delete(l.classes, c)
	}

	l.waits--

	return startableJob{job: i, time: c.estimate}
}

func (l *plainLine) fitsNow(c requestClass) bool {
	n, quota := 0, l.r.quotaOf(&Job{Share: c.share})
	for k := range l.r.devices {
		if l.r.devices[k].canGive(quota) {
			n++
		}
	}
	return n >= int(c.gpus)
}

// shadowTime is when the class will fit if all ends as estimated, and how many further devices are free then. It counts
// whole devices: a job that waits for a share waits for an unused one.
func (l *plainLine) shadowTime(c requestClass) (at int64, left int) {
	// Of each device.
	ends := make([]int64, 0, len(l.r.devices))
	quota := l.r.quotaOf(&Job{Share: c.share})
	for k := range l.r.devices {
		if !l.r.devices[k].canServe(quota) {
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
