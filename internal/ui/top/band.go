package top

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
)

// loadSample is one reading of a device.
type loadSample struct {
	at   time.Time
	load float64 // 0..1; -1 not read
}

// maxSamples are kept of each device: as many seconds as the shortest band is wide, and some.
const maxSamples = 1200

// leaseSpan is one lease on a device.
type leaseSpan struct {
	lease, user, command string
	since, until         time.Time // until: seen last
}

// bandCell is one column of a band.
type bandCell struct {
	// Mean, 0..1; -1 not known.
	load float64
	// Who had the device in it, each once.
	users []string
	// The lease of the first of them; "" none.
	lease string
}

// bandWindow is the time that a band shows: n cells, the last of which is the present one.
type bandWindow struct {
	from time.Time
	step time.Duration
	n    int
}

// bandSpans are the times that a band can show.
func bandSpans() []time.Duration {
	return []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}
}

// windowOf ends now. Its cells begin at multiples of their width, so that a picture moves by whole cells.
func windowOf(now time.Time, span time.Duration, n int) bandWindow {
	step := max(time.Second, (span / time.Duration(max(1, n))).Round(time.Second))
	last := now.Truncate(step)
	return bandWindow{last.Add(-time.Duration(n-1) * step), step, n}
}

// cellAt is the cell of a time; it may be outside.
func (b bandWindow) cellAt(t time.Time) int {
	d := t.Sub(b.from)
	if d < 0 {
		return -1
	}
	return int(d / b.step)
}

// deviceHistory is what is known of one device before now.
type deviceHistory struct {
	samples []loadSample
	stays   []leaseSpan
}

// addSample takes one reading in.
func (d *deviceHistory) addSample(s loadSample) {
	d.samples = append(d.samples, s)
	if n := len(d.samples); n > maxSamples {
		d.samples = slices.Delete(d.samples, 0, n-maxSamples)
	}
}

// noteStay notes a lease that is on the device at a time.
func (d *deviceHistory) noteStay(s leaseSpan) {
	i := slices.IndexFunc(d.stays, func(o leaseSpan) bool { return o.lease == s.lease && o.since.Equal(s.since) })
	if i >= 0 {
		if s.until.After(d.stays[i].until) {
			d.stays[i].until = s.until
		}
		return
	}
	d.stays = append(d.stays, s)
	slices.SortStableFunc(d.stays, func(a, b leaseSpan) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.lease, b.lease)) })
}

// dropBefore drops what ended before.
func (d *deviceHistory) dropBefore(before time.Time) {
	d.stays = slices.DeleteFunc(d.stays, func(s leaseSpan) bool { return s.until.Before(before) })
}

// windowCells are those of a window. Minutes fill the cells that no sample fills.
func (d *deviceHistory) windowCells(w bandWindow, id gpu.UUID, minutes []trend.Minute, width time.Duration) []bandCell {
	sums, counts := make([]float64, w.n), make([]int, w.n)
	add := func(i int, load float64) {
		if i >= 0 && i < w.n && load >= 0 {
			sums[i] += load
			counts[i]++
		}
	}

	for _, s := range d.samples {
		add(w.cellAt(s.at), s.load)
	}

	sampled := slices.Clone(counts)
	for _, m := range minutes {
		mean, known := m.Devices[id]
		if !known || mean.Load == nil || m.At.Add(width).Before(w.from) {
			continue
		}
		first, last := w.cellAt(m.At), w.cellAt(m.At.Add(width-1))
		for i := max(0, first); i <= min(last, w.n-1); i++ {
			if sampled[i] == 0 {
				add(i, *mean.Load)
			}
		}
	}

	out := make([]bandCell, w.n)
	for i := range out {
		out[i].load = -1
		if counts[i] > 0 {
			out[i].load = sums[i] / float64(counts[i])
		}
	}

	for _, s := range d.stays {
		first, last := w.cellAt(s.since), w.cellAt(s.until)
		for i := max(0, first); i <= min(last, w.n-1); i++ {
			if !slices.Contains(out[i].users, s.user) {
				out[i].users = append(out[i].users, s.user)
			}
			out[i].lease = cmp.Or(out[i].lease, s.lease)
		}
	}

	return out
}

// timeTick is a time that is written below or above a band.
type timeTick struct {
	place int
	text  string
}

// roundTicks are round times, with room between them, and at the right for the word now.
func (b bandWindow) roundTicks(zone *time.Location) (out []timeTick) {
	const room, forNow = 7, 4
	form, every := "15:04", time.Duration(0)
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
		every = d
		if int(d/b.step) >= room {
			break
		}
	}

	local := b.from.In(zone)
	midnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, zone)
	for t := midnight; b.cellAt(t) < b.n; t = t.Add(every) {
		if i := b.cellAt(t); i >= 0 && i+len(form)+1 < b.n-forNow {
			out = append(out, timeTick{i, t.Format(form)})
		}
	}

	return out
}
