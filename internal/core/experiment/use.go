package experiment

import (
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// Use is what the devices of a run did. What was not read is nil, never zero.
type Use struct {
	// Mean of all devices, over the time in which it was read.
	Load *float64 `json:"load_ratio"`
	// The most that was used of one device.
	Memory *gpu.Bytes `json:"memory_bytes"`
	// Mean of the sum of all devices.
	Power *float64 `json:"power_watts"`
	// The energy of all devices: the readings of power times their intervals.
	Energy *float64 `json:"energy_joules"`
	Clock  *float64 `json:"clock_mhz"` // mean
	// The part of the time in which heat, the power supply or the hardware lowered clocks.
	Throttled *float64 `json:"throttled_ratio"`
}

// Meter adds readings up to a Use. A reading stands for the time since the one before it.
type Meter struct {
	// Sums over time, in seconds.
	time, load, energy, clock, throttled float64
	memory                               *gpu.Bytes
	// The quantities that a reading was missing of.
	blind map[string]bool
	last  []gpu.Device
	// There was a step without any reading.
	unread bool
}

// Add notes the readings of all devices of the run, which stand for that much time. For a MIG slice it is the GPU
// around it.
func (m *Meter) Add(over time.Duration, devices []gpu.Device) {
	if m.blind == nil {
		m.blind = map[string]bool{}
	}

	m.last = devices
	seconds, n := over.Seconds(), float64(len(devices))
	m.time += seconds
	throttled := false
	for i := range devices {
		d := &devices[i]
		addWeighted(&m.load, d.Utilization, seconds/n, m.blind, "load")
		addWeighted(&m.energy, d.Power, seconds, m.blind, "power")
		var clock *float64
		if d.ClockSM != nil {
			clock = new(float64(*d.ClockSM))
		}

		addWeighted(&m.clock, clock, seconds/n, m.blind, "clock")
		m.blind["events"] = m.blind["events"] || d.ClockEvents == nil
		throttled = throttled || isSlowed(d)
		if d.MemoryUsed != nil && (m.memory == nil || *m.memory < *d.MemoryUsed) {
			m.memory = d.MemoryUsed
		}
	}

	if throttled {
		m.throttled += seconds
	}
}

func addWeighted(total, reading *float64, weight float64, blind map[string]bool, what string) {
	if reading == nil {
		blind[what] = true
		return
	}
	*total += *reading * weight
}

// Rest lets the last readings stand for the time from then to the end of a step of the run. A step that was too short
// for any leaves a hole in all sums.
func (m *Meter) Rest(over time.Duration) {
	if m.last != nil {
		m.Add(over, m.last)
	} else {
		m.unread = true
	}
	m.last = nil
}

// Use is the sum. A quantity that one reading lacked is absent.
func (m *Meter) Use() Use {
	u := Use{Memory: m.memory}
	if m.time == 0 || m.unread {
		return u
	}

	mean := func(what string, total float64) *float64 {
		if m.blind[what] {
			return nil
		}
		return new(total / m.time)
	}

	u.Load, u.Power, u.Clock, u.Throttled = mean("load", m.load), mean("power", m.energy), mean("clock", m.clock), mean("events", m.throttled)
	if u.Power != nil {
		u.Energy = new(m.energy)
	}

	return u
}

// isSlowed: the reasons for a lower clock that neither idleness, a user nor the usual power limit gives. Names as in
// nvmlClocksEventReasons of NVIDIA/go-nvml gen/nvml/nvml.h.
func isSlowed(d *gpu.Device) bool {
	return slices.ContainsFunc(d.ClockEvents, func(e string) bool {
		return slices.Contains([]string{"hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown", "hw_power_brake_slowdown"}, e)
	})
}
