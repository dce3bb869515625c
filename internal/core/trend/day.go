// Package trend is what the devices did over time, from the reports of status: one mean per minute of the last day, and
// counts since somebody began to look.
//
//	day := trend.NewDay(time.Minute)
//	if minute := day.Add(&report); minute != nil { … } // it is over: keep it
package trend

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// minutesOfDay is how many minutes a Day keeps.
const minutesOfDay = 24 * 60

// Mean is what one device did in one minute. A reading that is absent is nil.
type Mean struct {
	Load        *float64 `json:"load,omitempty"`        // 0..1
	Memory      *float64 `json:"memory,omitempty"`      // bytes in use
	Temperature *float64 `json:"temperature,omitempty"` // Celsius
	Power       *float64 `json:"power,omitempty"`       // watts
	// The state at its end, where it was neither free nor leased: busy, draining or unhealthy.
	State string `json:"state,omitempty"`
	// Troubles that began in it.
	Marks []Mark `json:"marks,omitempty"`
}

// Minute is the means of all devices in one minute.
type Minute struct {
	At      time.Time         `json:"at"` // its begin
	Devices map[gpu.UUID]Mean `json:"devices"`
}

// Day keeps the minutes of the last day. The zero value is not usable.
type Day struct {
	width   time.Duration
	minutes []Minute // oldest first
	// The present one; Devices is not set.
	open Minute
	sums map[gpu.UUID]*sums
	// The states of the present minute.
	states  map[gpu.UUID]string
	marks   map[gpu.UUID][]Mark // likewise
	trouble markMemory
}

// sums add up the readings of the present minute.
type sums [4]struct {
	sum float64
	n   int
}

// NewDay is an empty day, whose minutes are as long as width.
func NewDay(width time.Duration) *Day {
	return &Day{width: width, sums: map[gpu.UUID]*sums{}, states: map[gpu.UUID]string{}, marks: map[gpu.UUID][]Mark{}}
}

// Restore puts minutes of an earlier process before those of this one.
func (d *Day) Restore(minutes []Minute) {
	d.minutes = append(slices.Clone(minutes), d.minutes...)
	d.trouble.restoreMarks(minutes)
	d.dropOldMinutes()
}

// Add takes one report in. It returns the minute that was over before it, if one was.
func (d *Day) Add(s *status.Report) *Minute {
	at := s.Taken.Truncate(d.width)
	var over *Minute
	if !d.open.At.IsZero() && !at.Equal(d.open.At) {
		over = d.closeMinute()
	}

	d.open.At = at

	for id, marks := range d.trouble.newMarks(s) {
		d.marks[id] = append(d.marks[id], marks...)
	}

	for i := range s.Devices {
		device := &s.Devices[i]
		if device.UUID == "" {
			continue
		}

		d.states[device.UUID] = stateOf(device)
		all := d.sums[device.UUID]
		if all == nil {
			all = &sums{}
			d.sums[device.UUID] = all
		}

		for j, value := range deviceReadings(device) {
			if value != nil {
				all[j].sum += *value
				all[j].n++
			}
		}
	}

	return over
}

// deviceReadings are those of a device in the order of sums.
func deviceReadings(d *status.Device) [4]*float64 {
	r := [4]*float64{0: d.Utilization, 3: d.Power}
	if d.MemoryUsed != nil {
		r[1] = new(float64(*d.MemoryUsed))
	}
	if d.Temperature != nil {
		r[2] = new(float64(*d.Temperature))
	}

	return r
}

// closeMinute ends the present minute.
func (d *Day) closeMinute() *Minute {
	m := Minute{At: d.open.At, Devices: map[gpu.UUID]Mean{}}
	for id, all := range d.sums {
		var mean [4]*float64
		for i, s := range all {
			if s.n > 0 {
				mean[i] = new(s.sum / float64(s.n))
			}
		}
		one := Mean{mean[0], mean[1], mean[2], mean[3], d.states[id], d.marks[id]}
		if mean != [4]*float64{} || one.State != "" || len(one.Marks) > 0 {
			// A device that did not answer has a gap here.
			m.Devices[id] = one
		}
	}

	clear(d.sums)
	clear(d.states)
	clear(d.marks)
	d.minutes = append(d.minutes, m)
	d.dropOldMinutes()

	return &m
}

// dropOldMinutes drops what is older than a day before the last minute.
func (d *Day) dropOldMinutes() {
	if len(d.minutes) == 0 {
		return
	}

	first := d.minutes[len(d.minutes)-1].At.Add(-(minutesOfDay - 1) * d.width)
	old := 0
	for old < len(d.minutes) && d.minutes[old].At.Before(first) {
		old++
	}

	d.minutes = slices.Delete(d.minutes, 0, old)
}

// Minutes are those of the last day that are over, oldest first. There is none for a time in which nobody looked.
func (d *Day) Minutes() []Minute { return slices.Clone(d.minutes) }
