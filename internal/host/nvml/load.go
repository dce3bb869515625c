package nvml

import (
	"fmt"
	"unsafe"

	"gpuard/internal/core/gpu"
)

// readLoad reads what changes from second to second, except for memory, which readSize reads, clocks and power. The
// utilisation of a device that no program uses decides nothing: without persistence mode the driver reports up to 100 %
// for an idle one.
func (r *deviceReader) readLoad(what gpu.What) {
	d := &r.device
	if what&gpu.Deciding == 0 || !r.isEmpty() {
		var busy utilization
		if !r.isLost() && r.recordResult("nvmlDeviceGetUtilizationRates", r.lib.callDriver("nvmlDeviceGetUtilizationRates", r.handle, uintptr(unsafe.Pointer(&busy)))) {
			d.Utilization, d.MemoryLoad = new(float64(busy.gpu)/100), new(float64(busy.memory)/100)
		}
	}

	d.Temperature = r.readTemperature()
	d.TempMargin = r.readMargin()
	if what&gpu.Deciding == 0 || d.Temperature == nil || *d.Temperature >= warmTemperature {
		d.TempSlowdown = r.readNumberOf("nvmlDeviceGetTemperatureThreshold", thresholdSlowdown)
	}

	d.ClockEvents = r.readClockEvents()
}

// warmTemperature is a temperature in °C far below the one at which a device lowers its clocks, which is above 80 on
// every one whose reading is in this repository: only from here on does a decision ask where that is, which takes more
// calls than all else.
const warmTemperature = 50

func (r *deviceReader) readClocks() {
	d := &r.device
	d.ClockSM = r.readNumberOf("nvmlDeviceGetClockInfo", clockSM)
	d.ClockMemory = r.readNumberOf("nvmlDeviceGetClockInfo", clockMemory)
	d.ClockSMMax = r.readNumberOf("nvmlDeviceGetMaxClockInfo", clockSM)
}

func (r *deviceReader) readPower() {
	r.device.Power = milliwattsToWatts(r.readNumber("nvmlDeviceGetPowerUsage"))
	r.device.PowerLimit = milliwattsToWatts(r.readNumber("nvmlDeviceGetEnforcedPowerLimit"))

	// Since Volta.
	var millijoules uint64
	const energy = "nvmlDeviceGetTotalEnergyConsumption"
	if !r.isLost() && r.recordResult(energy, r.lib.callDriver(energy, r.handle, uintptr(unsafe.Pointer(&millijoules)))) {
		r.device.Energy = new(float64(millijoules) / 1000)
	}
}

func milliwattsToWatts(milliwatts *int) *float64 {
	if milliwatts == nil {
		return nil
	}
	return new(float64(*milliwatts) / 1000)
}

// readTemperature calls the older function first: every present driver has it, though NVML 13 calls it deprecated.
func (r *deviceReader) readTemperature() *int {
	if t := r.readNumberOf("nvmlDeviceGetTemperature", sensorGPU); t != nil || r.isLost() {
		return t
	}
	now := temperatureV1{version: temperatureV1Version, sensor: sensorGPU}
	if !r.recordResult("nvmlDeviceGetTemperatureV", r.lib.callDriver("nvmlDeviceGetTemperatureV", r.handle, uintptr(unsafe.Pointer(&now)))) {
		return nil
	}

	return new(int(now.celsius))
}

// readMargin returns the distance to the slowdown in °C, which newer devices report instead of a threshold.
func (r *deviceReader) readMargin() *int {
	left := marginV1{version: marginV1Version}
	const name = "nvmlDeviceGetMarginTemperature"
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&left)))) {
		return nil
	}

	return new(int(left.celsius))
}

// readClockEvents reads the reasons for the present clocks. Driver 535 renamed the function.
func (r *deviceReader) readClockEvents() []string {
	for _, name := range []string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"} {
		var bits uint64
		if r.isLost() {
			return nil
		}

		s := r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&bits)))
		if r.recordResult(name, s) {
			if bits == notAvailable || bits == notAvailable32 {
				return nil
			}
			return clockEventNames(bits)
		}

		if !s.isAbsent() {
			return nil
		}
	}
	return nil
}

// clockEventNames translates the bits nvmlClocksEventReason… of nvml.h, lowest first. The result is never nil.
func clockEventNames(bits uint64) []string {
	words := [...]string{"gpu_idle", "applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost",
		"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"}

	names := []string{}
	for i, word := range words {
		if bits&(1<<i) != 0 {
			names = append(names, word)
		}
	}

	if rest := bits >> len(words) << len(words); rest != 0 {
		names = append(names, fmt.Sprintf("unknown_%#x", rest))
	}

	return names
}
