// Package timeline lays out who had which device when: a band per device over the last hours or days, with the leases on it, what
// they did, when the device was out of use, and what went wrong.
//
//	picture := timeline.NewPicture(timeline.View{Report: &report, Leases: ended, Open: open, Minutes: minutes, To: now, Span: 24 * time.Hour, Columns: 288})
//	picture.Bands[0].Spans
//
// It must not draw: how wide a column is and which colour a user has is for a view.
package timeline

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// View is what a picture is made of, and of which time.
type View struct {
	Report  *status.Report
	Leases  []trend.EndedLease // that have ended
	Open    []trend.EndedLease // that have not
	Minutes []trend.Minute     // of the last day
	To      time.Time          // the right end
	Span    time.Duration
	// How many parts of equal width the time has.
	Columns int
}

// Picture is a band for each device of the report, in its order.
type Picture struct {
	From, To time.Time
	Step     time.Duration // of a column
	Bands    []Band
}

// Band is one device. A column without a reading is nil.
type Band struct {
	UUID gpu.UUID
	// The spans by their begin; of the same begin by their lane.
	Spans []Span
	// The load of each column, 0..1.
	Load []*float64
	// The memory of each column, as a part of all.
	Memory []*float64
	// The state of each column: busy, draining or unhealthy; "" none of these.
	States []string
	Marks  []trend.Mark
}

// Span is a lease on one device, or several short ones together.
type Span struct {
	// What the span is of; of several, the user who had most, and "" where they differ.
	Lease, User, Command string
	// How many leases it is.
	Jobs         int
	Since, Until time.Time
	Open         bool // it has not ended
	// Shares lie above each other: its place, and how many there are.
	Lane, Lanes int
	// Mean, 0..1; nil not measured.
	Load        *float64
	Peak, Share gpu.Bytes
	// Its command ended with another code than 0, or by a signal.
	Failed bool

	busy, measured float64 // seconds
}

// maxSpans is how many a band has at most: short ones are put together.
const maxSpans = 48

// NewPicture lays out a picture.
func NewPicture(v View) Picture {
	p := Picture{From: v.To.Add(-v.Span), To: v.To, Step: v.Span / time.Duration(v.Columns)}

	// Of a device or a slice, the place of the device.
	whole := map[gpu.UUID]int{}
	for i := range v.Report.Devices {
		d := &v.Report.Devices[i]
		p.Bands = append(p.Bands, Band{UUID: d.UUID, Load: make([]*float64, v.Columns), Memory: make([]*float64, v.Columns), States: make([]string, v.Columns)})
		if d.UUID != "" {
			whole[d.UUID] = i
		}

		for j := range d.MIG {
			whole[d.MIG[j].UUID] = i
		}
	}

	add := func(e *trend.EndedLease, open bool) {
		if e.Unseen || !e.Since.Before(p.To) || !e.Until.After(p.From) {
			return
		}
		for j := range e.Devices {
			if i, known := whole[e.Devices[j].UUID]; known {
				p.Bands[i].Spans = append(p.Bands[i].Spans, spanOf(e, &e.Devices[j], open))
			}
		}
	}

	for i := range v.Leases {
		add(&v.Leases[i], false)
	}

	for i := range v.Open {
		add(&v.Open[i], true)
	}

	for i := range p.Bands {
		b := &p.Bands[i]
		b.Spans = mergeShort(b.Spans, p.Step)
		assignLanes(b.Spans)
		p.fillReadings(b, &v.Report.Devices[i], v.Minutes)
	}

	return p
}

func spanOf(e *trend.EndedLease, d *trend.DeviceUse, open bool) Span {
	s := Span{Lease: e.Lease, User: e.User, Command: e.Command, Jobs: 1, Since: e.Since, Until: e.Until, Open: open, Load: d.Load(), Peak: e.Peak, Share: e.Share,
		busy: d.Busy, measured: d.Busy + d.Idle}
	s.Failed = e.Exit != nil && *e.Exit != 0 || e.Signal != ""
	return s
}

// mergeShort puts together what is too short to be seen, with longer and longer limits until few enough are left.
func mergeShort(spans []Span, step time.Duration) []Span {
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Since.Compare(b.Since) })
	for width := step; len(spans) > maxSpans; width *= 2 {
		var out []Span
		var group []Span
		flush := func() {
			if len(group) > 0 {
				out = append(out, mergeSpans(group))
			}
			group = nil
		}

		for _, s := range spans {
			isShort := s.Until.Sub(s.Since) < width && !s.Open
			if len(group) > 0 && (!isShort || s.Since.Sub(group[0].Since) >= 2*width) {
				flush()
			}
			if isShort {
				group = append(group, s)
				continue
			}
			out = append(out, s)
		}

		flush()
		spans = out
	}
	return spans
}

// mergeSpans is several short spans as one.
func mergeSpans(group []Span) Span {
	if len(group) == 1 {
		return group[0]
	}

	one := Span{Since: group[0].Since, Command: group[0].Command}
	had := map[string]time.Duration{}
	for _, s := range group {
		one.Jobs += s.Jobs
		one.Peak = max(one.Peak, s.Peak)
		one.busy, one.measured = one.busy+s.busy, one.measured+s.measured
		one.Failed = one.Failed || s.Failed
		if s.Until.After(one.Until) {
			one.Until = s.Until
		}

		if s.Command != one.Command {
			one.Command = ""
		}

		had[s.User] += s.Until.Sub(s.Since)
		if had[s.User] > had[one.User] || one.User == "" {
			one.User = s.User
		}
	}

	if one.measured > 0 {
		one.Load = new(one.busy / one.measured)
	}

	return one
}

// maxOverlap is what two leases of one device may overlap without having shared it: the second begins while the first is being noted.
const maxOverlap = 15 * time.Second

// assignLanes gives lanes to spans that overlap.
func assignLanes(spans []Span) {
	for i := 0; i < len(spans); {
		// Of each lane.
		var ends []time.Time
		next, last := i, spans[i].Until
		for ; next < len(spans) && (next == i || spans[next].Since.Before(last.Add(-maxOverlap))); next++ {
			s := &spans[next]
			lane := slices.IndexFunc(ends, func(end time.Time) bool { return !s.Since.Before(end.Add(-maxOverlap)) })
			if lane < 0 {
				lane, ends = len(ends), append(ends, time.Time{})
			}

			s.Lane, ends[lane] = lane, s.Until
			if s.Until.After(last) {
				last = s.Until
			}
		}
		for ; i < next; i++ {
			spans[i].Lanes = len(ends)
		}
	}
}

// fillReadings fills in what was read of the device.
func (p *Picture) fillReadings(b *Band, d *status.Device, minutes []trend.Minute) {
	type sum struct{ load, memory, loads, memories float64 }
	sums := make([]sum, len(b.Load))
	for _, m := range minutes {
		at := int(m.At.Sub(p.From) / p.Step)
		mean, found := m.Devices[b.UUID]
		if m.At.Before(p.From) || at >= len(sums) || !found {
			continue
		}

		s := &sums[at]
		if mean.Load != nil {
			s.load, s.loads = s.load+*mean.Load, s.loads+1
		}

		if all := d.InAll(); mean.Memory != nil && all != nil && *all > 0 {
			s.memory, s.memories = s.memory+*mean.Memory/float64(*all), s.memories+1
		}

		if mean.State != "" {
			b.States[at] = mean.State
		}

		b.Marks = append(b.Marks, mean.Marks...)
	}

	for i, s := range sums {
		if s.loads > 0 {
			b.Load[i] = new(min(1, s.load/s.loads))
		}
		if s.memories > 0 {
			b.Memory[i] = new(min(1, s.memory/s.memories))
		}
	}

	b.Marks = slices.DeleteFunc(b.Marks, func(m trend.Mark) bool { return m.At.Before(p.From) || m.At.After(p.To) })
}

// FreeSince is when the last lease of a band ended; zero where one is open, or none is known.
func (b *Band) FreeSince() (at time.Time) {
	for i := range b.Spans {
		if b.Spans[i].Open {
			return time.Time{}
		}
		if b.Spans[i].Until.After(at) {
			at = b.Spans[i].Until
		}
	}
	return at
}
