package top

import (
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// readingHistory is what the screen keeps of readings before the present one.
type readingHistory struct {
	// The minutes of the last day, from before this screen began.
	before []trend.Minute
	pasts  map[gpu.UUID]*deviceHistory
	// Share of its memory by row, of the last readings.
	curves  map[string][]float64
	workers map[string][]observe.Worker
	// Processors by process.
	rates   map[processKey]float64
	counted map[processKey]time.Duration
	readAt  time.Time
	works   map[string]computerUse // by lease
	whole   observe.Computer
	// Processors of the computer; -1 not known yet.
	busy float64
}

// processKey names one process for ever.
type processKey struct {
	pid   int
	start uint64
}

// curveLength is how many readings of the memory of a job are kept.
const curveLength = 60

// applyReading takes a reading in.
func (m *model) applyReading(seen observe.Snapshot) {
	fresh := seen.At.After(m.seen.At)
	m.seen = seen
	if !fresh {
		return
	}

	if seen.At.Sub(m.saidAt) >= answerDuration {
		m.said = ""
	}

	s := &m.seen.Report
	m.answer, m.starts = glance.Summarize(s, m.me), glance.ForecastStarts(s)

	for i := range s.Devices {
		d := &s.Devices[i]
		load := -1.0
		if d.Utilization != nil {
			load = *d.Utilization
		}

		p := m.pastOf(d.UUID)
		p.addSample(loadSample{s.Taken, load})

		for _, spot := range append([]status.Device{*d}, d.MIG...) {
			p.noteStays(spot.Leases, s.Taken)
		}

		p.dropBefore(s.Taken.Add(-bandSpans()[len(bandSpans())-1]))
	}

	s.EachDevice(func(d *status.Device) {
		for i := range d.Leases {
			m.meetUser(d.Leases[i].User)
		}
	})

	m.noteCurves(m.newLister().runningRows())
}

// addEndedLeases takes leases in that have ended.
func (m *readingHistory) addEndedLeases(ended []trend.EndedLease, now time.Time) {
	longest := bandSpans()[len(bandSpans())-1]
	for i := range ended {
		e := &ended[i]
		if now.Sub(e.Until) > longest {
			continue
		}

		for _, d := range e.Devices {
			m.pastOf(d.UUID).noteStay(leaseSpan{e.Lease, e.User, e.Command, e.Since, e.Until})
		}
	}
}

func (m *readingHistory) pastOf(id gpu.UUID) *deviceHistory {
	if m.pasts == nil {
		m.pasts = map[gpu.UUID]*deviceHistory{}
	}
	if m.pasts[id] == nil {
		m.pasts[id] = &deviceHistory{}
	}
	return m.pasts[id]
}

// noteStays notes the leases that are on the device.
func (d *deviceHistory) noteStays(leases []status.Lease, now time.Time) {
	for i := range leases {
		l := &leases[i]
		if l.Parent == "" && l.Since != nil {
			d.noteStay(leaseSpan{l.ID, l.User, l.Command, *l.Since, now})
		}
	}
}

// noteCurves adds the memory of each row to its curve, and forgets the curves of those that are gone.
func (m *readingHistory) noteCurves(rows []row) {
	curves := map[string][]float64{}
	for i := range rows {
		r := &rows[i]
		share := -1.0
		if r.memory != nil && r.room != nil && *r.room > 0 {
			share = float64(*r.memory) / float64(*r.room)
		}

		list := append(m.curves[r.id], share)
		curves[r.id] = list[max(0, len(list)-curveLength):]
	}
	m.curves = curves
}

// processorRate is how many processors a process keeps busy; -1 not known yet.
func (m *readingHistory) processorRate(w observe.Worker) float64 {
	rate, known := m.rates[processKey{w.PID, w.Start}]
	if !known {
		return -1
	}
	return rate
}

// countProcesses takes a reading of processes in: what a processor did is the difference to the one before.
func (m *readingHistory) countProcesses(workers map[string][]observe.Worker, whole observe.Computer, at time.Time) {
	if !at.After(m.readAt) {
		return
	}

	passed := at.Sub(m.readAt)
	counted, rates, works := map[processKey]time.Duration{}, map[processKey]float64{}, map[string]computerUse{}
	for id, list := range workers {
		sum := computerUse{processors: -1}
		for _, w := range list {
			key := processKey{w.PID, w.Start}
			counted[key] = w.CPU
			sum.memory += w.Memory
			before, known := m.counted[key]
			if !known || m.readAt.IsZero() {
				continue
			}

			rates[key] = max(0, float64(w.CPU-before)/float64(passed))
			sum.processors = max(0, sum.processors) + rates[key]
		}
		works[id] = sum
	}

	m.busy = -1
	if m.whole.Worked > 0 && !m.readAt.IsZero() {
		m.busy = max(0, float64(whole.Worked-m.whole.Worked)/float64(passed))
	}

	m.whole = whole
	m.workers, m.counted, m.rates, m.works, m.readAt = workers, counted, rates, works, at
}

// formatSize is a size in few columns: "20.5G".
func formatSize(b gpu.Bytes) string {
	switch {
	case b == 0:
		return "0"
	case b >= 1000*gpu.GiB:
		return formatUnit("%.1fT", b, 1<<40)
	case b >= 100*gpu.GiB:
		return formatUnit("%.0fG", b, 1<<30)
	case b >= gpu.GiB:
		return formatUnit("%.1fG", b, 1<<30)
	case b >= gpu.MiB:
		return formatUnit("%.0fM", b, 1<<20)
	}
	return formatUnit("%.0fK", b, 1<<10)
}
