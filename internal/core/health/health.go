// Package health turns the readings of one device into ok, degraded, unhealthy or unknown, with reasons.
// It judges one moment: no history, no XID log, no opinion about who uses the device.
package health

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// State is how fit a device is for new work.
type State string

// States from best to worst. Only OK devices are given to new jobs. Unknown means that the device
// does not answer; a device that answers but lacks health readings (consumer cards) is OK.
const (
	OK        State = "ok"
	Degraded  State = "degraded"  // works, but needs a reset or is being slowed down
	Unhealthy State = "unhealthy" // must not get work
	Unknown   State = "unknown"   // does not answer
)

// Of judges a device from its readings alone. The state is the worst that any reading asks for; the reasons come
// in order of evidence: recovery action, row remapping, retired pages, ECC, slowdown, temperature. They are
// empty exactly when the state is OK. Absent readings count for nothing.
//
// Meanings: recovery action, remapped rows and clock event reasons as in NVIDIA/go-nvml gen/nvml/nvml.h;
// severities as in NVIDIA/DCGM modules/health/DcgmHealthWatch.cpp.
func Of(d gpu.Device) (State, []string) {
	if d.Problem != "" {
		return unreachable(d.Problem), []string{d.Problem}
	}
	v := verdict{state: OK}
	v.recovery(d)
	v.memory(d)
	v.slowdown(d)
	v.heat(d)
	return v.state, v.reasons
}

// unreachable tells a device that is gone from one that is only silent: the second may answer again.
func unreachable(problem string) State {
	text := strings.ToLower(problem)
	if strings.Contains(text, "lost") || strings.Contains(text, "fallen off") {
		return Unhealthy
	}
	return Unknown
}

// verdict collects reasons; its state only gets worse.
type verdict struct {
	state   State
	reasons []string
}

func (v *verdict) add(s State, format string, args ...any) {
	if v.state == OK || s == Unhealthy {
		v.state = s
	}
	v.reasons = append(v.reasons, fmt.Sprintf(format, args...))
}

func (v *verdict) recovery(d gpu.Device) {
	switch d.RecoveryAction {
	case "", "none":
	case "reset", "reboot", "drain_and_reset":
		v.add(Unhealthy, "the driver asks for %s", recoveryWords[d.RecoveryAction])
	case "drain_p2p":
		v.add(Degraded, "the driver asks for %s", recoveryWords[d.RecoveryAction])
	default:
		v.add(Degraded, "the driver asks for the recovery action %s", d.RecoveryAction)
	}
}

// recoveryWords is a read-only table.
var recoveryWords = map[string]string{
	"reset":           "a GPU reset",
	"reboot":          "a reboot of the machine",
	"drain_and_reset": "its jobs to end and then a GPU reset",
	"drain_p2p":       "peer-to-peer traffic to end",
}

// memory judges what is known of broken memory cells. An uncorrectable error counts until the driver is loaded again,
// unless the driver itself says that nothing has to be done: then it was contained and repaired.
func (v *verdict) memory(d gpu.Device) {
	if r := d.RemappedRows; r != nil {
		if r.Failed {
			v.add(Unhealthy, "remapping a broken memory row failed: the board needs a check")
		}
		if r.Pending {
			v.add(Degraded, "a memory row waits to be remapped: the GPU needs a reset")
		}
	}
	if r := d.RetiredPages; r != nil && r.Pending {
		v.add(Degraded, "a memory page waits to be retired: the GPU needs a reset")
	}
	if e := d.ECCUncorrected; e != nil && *e > 0 && d.RecoveryAction != "none" {
		v.add(Degraded, "%d uncorrectable memory error%s since the driver was loaded", *e, plural(*e))
	}
}

// slowdown counts the two reasons that point at cooling or power supply. Idle clocks, power caps and
// application clocks are normal, and "hw_slowdown" alone also appears on healthy boards that change state.
func (v *verdict) slowdown(d gpu.Device) {
	if slices.Contains(d.ClockEvents, "hw_thermal_slowdown") {
		v.add(Degraded, "slowed down by its own hardware because of heat")
	}
	if slices.Contains(d.ClockEvents, "hw_power_brake_slowdown") {
		v.add(Degraded, "slowed down because the power supply asks for it")
	}
}

// How close to the slowdown temperature counts as too hot, in degrees Celsius. Relative to the device's own
// limit: a fixed temperature gives false alarms on cards that are built to run hotter.
const (
	closeToSlowdown = 3
	smallestMargin  = 2
)

func (v *verdict) heat(d gpu.Device) {
	switch {
	case d.TempMargin != nil:
		if *d.TempMargin <= smallestMargin {
			v.add(Degraded, "%d C left before it slows down", *d.TempMargin)
		}
	case d.Temperature != nil && d.TempSlowdown != nil && *d.TempSlowdown > 0:
		if *d.Temperature >= *d.TempSlowdown-closeToSlowdown {
			v.add(Degraded, "at %d C; it slows down at %d C", *d.Temperature, *d.TempSlowdown)
		}
	}
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
