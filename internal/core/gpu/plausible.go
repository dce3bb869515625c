package gpu

import "cmp"

// Bounds of readings. A driver that has no value may return one that means "not available" as if it were one
// (NVML_VALUE_NOT_AVAILABLE in nvml.h, -1 in 32 or 64 bits), and a defective one anything. What no device can have is
// absent: a card without a sensor is not hot. Each bound is far from what any card has.
const (
	// Silicon is damaged from about 125 on.
	mostCelsius = 150
	mostWatts   = 10_000 // of a board
	// Of a board in 30 years.
	mostJoules    = 1e13
	mostMegahertz = 100_000 // of a clock
	// Bytes of one device.
	mostMemory = 64 << 40
	// Errors since the driver was loaded.
	mostCount = 1<<32 - 2
	// Remapped or retired.
	mostRows = 1 << 20
	// Minor numbers have 20 bits.
	mostMinor = 1<<20 - 1
	// Of a compute capability.
	mostVersion = 99
	// As degrees: a card that is at -1 degrees is without a reading for that moment.
	notAvailable = -1
)

// DropImplausible makes the readings absent that no device can have.
func (m *Machine) DropImplausible() {
	for i := range m.Devices {
		m.Devices[i].dropImplausible()
	}
	for i := range m.Processes {
		keepWithin(&m.Processes[i].Memory, 0, mostMemory)
	}
}

func (d *Device) dropImplausible() {
	keepWithin(&d.Minor, 0, mostMinor)
	keepWithin(&d.MemoryTotal, 1, mostMemory)
	most := Bytes(mostMemory)
	if d.MemoryTotal != nil {
		most = *d.MemoryTotal
	}

	keepWithin(&d.MemoryUsed, 0, most)
	keepWithin(&d.MemoryReserved, 0, most)
	keepWithin(&d.Utilization, 0, 1)
	keepWithin(&d.MemoryLoad, 0, 1)
	keepWithin(&d.Temperature, -mostCelsius, mostCelsius)
	keepWithin(&d.TempSlowdown, 1, mostCelsius)
	keepWithin(&d.TempMargin, -mostCelsius, 2*mostCelsius)

	for _, celsius := range []**int{&d.Temperature, &d.TempMargin} {
		if *celsius != nil && **celsius == notAvailable {
			*celsius = nil
		}
	}

	keepWithin(&d.Power, 0, mostWatts)
	keepWithin(&d.PowerLimit, 0, mostWatts)
	keepWithin(&d.Energy, 0, mostJoules)
	keepWithin(&d.ClockSM, 0, mostMegahertz)
	keepWithin(&d.ClockSMMax, 1, mostMegahertz)
	keepWithin(&d.ClockMemory, 0, mostMegahertz)
	keepWithin(&d.ECCCorrected, 0, mostCount)
	keepWithin(&d.ECCUncorrected, 0, mostCount)
	if r := d.RemappedRows; r != nil && (!isWithin(r.Correctable, 0, mostRows) || !isWithin(r.Uncorrectable, 0, mostRows)) {
		d.RemappedRows = nil
	}

	if p := d.RetiredPages; p != nil && (!isWithin(p.SingleBit, 0, mostRows) || !isWithin(p.DoubleBit, 0, mostRows)) {
		d.RetiredPages = nil
	}

	if c := d.Compute; c != nil && (!isWithin(c.Major, 1, mostVersion) || !isWithin(c.Minor, 0, mostVersion)) {
		d.Compute = nil
	}

	for i := range d.MIG {
		keepWithin(&d.MIG[i].MemoryTotal, 1, most)
		keepWithin(&d.MIG[i].MemoryUsed, 0, most)
	}
}

func keepWithin[T cmp.Ordered](reading **T, low, high T) {
	if *reading != nil && !isWithin(**reading, low, high) {
		*reading = nil
	}
}

// isWithin is false for what is not a number.
func isWithin[T cmp.Ordered](value, low, high T) bool { return low <= value && value <= high }
