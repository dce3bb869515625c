// Package health turns the readings of one device into ok, degraded, unhealthy or unknown, with reasons, and advises
// when a job should leave its device (Drift):
//
//	state, reasons := health.StateOf(device, now)
//	for _, cure := range health.Cures(device, now) {
//		fmt.Println(cure) // what an administrator has to do
//	}
//
// It judges only the readings and driver errors (XIDs) that it is given. It must not read hardware, and does not know
// which process or user has the device.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// State is how fit a device is for new work.
type State string

// States from best to worst. Only OK devices are given to new jobs. Unknown means that the device does not answer. A
// device that answers but lacks health readings (consumer cards) is OK.
const (
	OK State = "ok"
	// Works, but needs a reset or is being slowed down.
	Degraded  State = "degraded"
	Unhealthy State = "unhealthy" // must not get work
	Unknown   State = "unknown"   // does not answer
)

// Cure is what repairs a cause. Of several, one that includes the others is listed alone.
type Cure string

// Cures, one for each kind of cause.
const (
	// Find out why the device does not answer.
	Ask Cure = "ask"
	// Lost to the bus: seating and power, then a reboot.
	Recover Cure = "recover"
	// The board is broken: the vendor's diagnosis, an exchange.
	Inspect Cure = "inspect"
	Reboot  Cure = "reboot" // the machine
	// Its jobs end first, then a reset.
	Drain Cure = "drain"
	// The device, when idle.
	Reset Cure = "reset"
	// Jobs that use peer-to-peer traffic end.
	Unlink Cure = "unlink"
	// The NVLink fabric: cables, switches, the fabric manager.
	Relink Cure = "relink"
	// The driver asks for an action that this version does not know.
	Consult Cure = "consult"
	Cool    Cure = "cool"  // air and fans
	Power   Cure = "power" // supply and cables
	// An administrator confirms the repair (gpuard undrain): only that ends the driver's error.
	Confirm Cure = "confirm"
)

// MayPass reports whether the cause may go away without anybody's help.
func (c Cure) MayPass() bool { return c == Cool || c == Ask || c == Unlink }

// Cures lists what repairs the device, each once, in the order of the reasons of StateOf; empty exactly when it is OK.
// A broken board is not reset. A reboot includes a reset and forgets the driver's errors. A device that does not answer
// cannot be confirmed.
func Cures(d gpu.Device, now time.Time) []Cure {
	v := judgeDevice(d, now)
	if v.confirm {
		// After the repair.
		v.cures = append(v.cures, Confirm)
	}

	var out []Cure
	for _, c := range v.cures {
		reset := c == Reset || c == Drain || c == Unlink
		covered := reset && (slices.Contains(v.cures, Reboot) || slices.Contains(v.cures, Inspect)) ||
			c == Reset && slices.Contains(v.cures, Drain) ||
			c == Confirm && (slices.Contains(v.cures, Reboot) || d.Problem != "")
		if !covered && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}

	return out
}

// StateOf judges a device from its readings and the driver's errors. The state is the worst of all; the reasons come in
// order of evidence: recovery action, NVLink fabric, row remapping, retired pages, ECC, XIDs, slowdown, temperature.
// They are empty exactly when the state is OK. Absent readings are ignored. A program's fault (XID 13, 31, 43) does not
// count against the device. An error of the classes Stuck and Host counts until it is removed from the device's list,
// because a device that answers again may still be broken. XID 94 counts for ten minutes before now.
//
// Meanings: recovery action, remapped rows and clock event reasons as in NVIDIA/go-nvml gen/nvml/nvml.h;
// severities as in NVIDIA/DCGM modules/health/DcgmHealthWatch.cpp; XIDs as in docs.nvidia.com/deploy/xid-errors.
func StateOf(d gpu.Device, now time.Time) (State, []string) {
	v := judgeDevice(d, now)
	return v.state, v.reasons
}

func judgeDevice(d gpu.Device, now time.Time) verdict {
	if d.Problem != "" {
		v := unreachableVerdict(d.Problem)
		v.judgeXIDs(d, now)
		return v
	}

	v := verdict{state: OK}
	v.judgeRecovery(d)
	v.judgeFabric(d)
	v.judgeMemory(d)
	v.judgeXIDs(d, now)
	v.judgeSlowdown(d)
	v.judgeHeat(d)

	return v
}

// unreachableVerdict distinguishes a device that is gone from one that is silent, which may answer again.
func unreachableVerdict(problem string) verdict {
	text := strings.ToLower(problem)
	if strings.Contains(text, "lost") || strings.Contains(text, "fallen off") {
		return verdict{state: Unhealthy, reasons: []string{problem}, cures: []Cure{Recover}}
	}
	if strings.Contains(text, "needs a reset") {
		return verdict{state: Unhealthy, reasons: []string{problem}, cures: []Cure{Reset}}
	}

	return verdict{state: Unknown, reasons: []string{problem}, cures: []Cure{Ask}}
}

// verdict collects reasons; its state only gets worse.
type verdict struct {
	state   State
	reasons []string
	// The cures of the reasons, one each.
	cures []Cure
	// An error of the driver counts until an administrator confirms the repair.
	confirm bool
}

func (v *verdict) addReason(s State, c Cure, format string, args ...any) {
	if v.state == OK || s == Unhealthy {
		v.state = s
	}
	v.reasons = append(v.reasons, fmt.Sprintf(format, args...))
	v.cures = append(v.cures, c)
}

func (v *verdict) judgeRecovery(d gpu.Device) {
	switch d.RecoveryAction {
	case "", "none":
	case "reset":
		v.addReason(Unhealthy, Reset, "the driver asks for a GPU reset")
	case "reboot":
		v.addReason(Unhealthy, Reboot, "the driver asks for a reboot of the machine")
	case "drain_and_reset":
		v.addReason(Unhealthy, Drain, "the driver asks for its jobs to end and then a GPU reset")
	case "drain_p2p":
		v.addReason(Degraded, Unlink, "the driver asks for peer-to-peer traffic to end")
	default:
		v.addReason(Degraded, Consult, "the driver asks for the recovery action %s", d.RecoveryAction)
	}
}

// judgeFabric: jobs on several devices are slowed down or ended by links that are not in order.
func (v *verdict) judgeFabric(d gpu.Device) {
	if len(d.Fabric) > 0 {
		v.addReason(Degraded, Relink, "NVLink fabric: %s", strings.ReplaceAll(strings.Join(d.Fabric, ", "), "_", " "))
	}
}

// judgeMemory judges broken memory cells. An uncorrectable error counts until the driver is reloaded, unless the driver
// reports that no action is needed: then it was contained and repaired.
func (v *verdict) judgeMemory(d gpu.Device) {
	if r := d.RemappedRows; r != nil {
		if r.Failed {
			v.addReason(Unhealthy, Inspect, "remapping a broken memory row failed: the board needs a check")
		}
		if r.Pending {
			v.addReason(Degraded, Reset, "a memory row waits to be remapped: the GPU needs a reset")
		}
	}
	if r := d.RetiredPages; r != nil && r.Pending {
		v.addReason(Degraded, Reset, "a memory page waits to be retired: the GPU needs a reset")
	}
	if e := d.ECCUncorrected; e != nil && *e > 0 && d.RecoveryAction != "none" {
		v.addReason(Degraded, Reset, "%d uncorrectable memory error%s since the driver was loaded", *e, pluralEnding(*e))
	}
}

// judgeSlowdown judges the two reasons that indicate cooling or power supply. Idle clocks, power caps and application
// clocks are normal, and "hw_slowdown" alone also appears on healthy boards that change state.
func (v *verdict) judgeSlowdown(d gpu.Device) {
	if slices.Contains(d.ClockEvents, "hw_thermal_slowdown") {
		v.addReason(Degraded, Cool, "slowed down by its own hardware because of heat")
	}
	if slices.Contains(d.ClockEvents, "hw_power_brake_slowdown") {
		v.addReason(Degraded, Power, "slowed down because the power supply asks for it")
	}
}

// How close to the slowdown temperature counts as too hot, in degrees Celsius. Relative to the device's own
// limit: a fixed temperature gives false alarms on cards that are built to run hotter.
const (
	closeToSlowdown = 3
	smallestMargin  = 2
)

func (v *verdict) judgeHeat(d gpu.Device) {
	switch {
	case d.TempMargin != nil:
		if *d.TempMargin <= smallestMargin {
			v.addReason(Degraded, Cool, "%d C left before it slows down", *d.TempMargin)
		}
	case d.Temperature != nil && d.TempSlowdown != nil && *d.TempSlowdown > 0:
		if *d.Temperature >= *d.TempSlowdown-closeToSlowdown {
			v.addReason(Degraded, Cool, "at %d C; it slows down at %d C", *d.Temperature, *d.TempSlowdown)
		}
	}
}

func pluralEnding(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
