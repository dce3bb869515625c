package gpu

import (
	"math"
	"reflect"
	"testing"
)

// TestDropImplausible: what means "not available", in each width that a driver has for it, and what no card can have, is
// absent; what the largest and the smallest cards have stays.
func TestDropImplausible(t *testing.T) {
	const none32, none64 = 1<<32 - 1, -1
	for _, value := range []float64{none32, none64, none32 / 1000., none32 / 100., math.NaN(), math.Inf(1), -1e9, 1e15} {
		n := int(max(min(value, 1e15), -1e15))
		d := Device{Utilization: &value, Power: &value, PowerLimit: &value, Temperature: new(n)}
		d.TempSlowdown, d.TempMargin, d.ClockSM, d.ClockSMMax, d.ClockMemory, d.Minor = new(n), new(n), new(n), new(n), new(n), new(n)
		d.MemoryTotal, d.MemoryReserved = new(Bytes(none64)), new(Bytes(none64))
		d.MemoryUsed = new(Bytes(math.MaxInt64))
		d.ECCCorrected, d.ECCUncorrected = new(int64(none32)), new(int64(none64))
		d.RemappedRows, d.RetiredPages, d.Compute = &RemappedRows{Correctable: none32}, &RetiredPages{DoubleBit: none32}, &Capability{none32, 0}
		d.MIG = []MIGDevice{{MemoryTotal: new(Bytes(none64)), MemoryUsed: new(Bytes(none64))}}
		if math.IsNaN(value) || value == none32/1000. || value == none32/100. {
			d.TempSlowdown, d.TempMargin, d.ClockSM, d.ClockSMMax, d.ClockMemory, d.Minor, d.Temperature = nil, nil, nil, nil, nil, nil, nil
		}
		m := Machine{Devices: []Device{d}, Processes: []Process{{PID: 7, Memory: new(Bytes(none64))}}}
		m.DropImplausible()
		if want := (Device{MIG: []MIGDevice{{}}}); !reflect.DeepEqual(m.Devices[0], want) {
			t.Errorf("%v: %+v is left", value, m.Devices[0])
		}
		if p := m.Processes[0]; p.Memory != nil || p.PID != 7 {
			t.Errorf("%v: process %+v", value, p)
		}
	}
	whole := func() Machine {
		return Machine{Devices: []Device{{
			Minor: new(0), MemoryTotal: new(288 * GiB), MemoryUsed: new(288 * GiB), MemoryReserved: new(Bytes(0)), Utilization: new(1.0), Temperature: new(-20),
			TempSlowdown: new(105), TempMargin: new(-12), Power: new(2700.0), PowerLimit: new(0.0), ClockSM: new(0), ClockSMMax: new(3105), ClockMemory: new(28000),
			ECCCorrected: new(int64(3_000_000_000)), ECCUncorrected: new(int64(0)), RemappedRows: &RemappedRows{Correctable: 512, Pending: true}, RetiredPages: &RetiredPages{DoubleBit: 64},
			Compute: &Capability{12, 1}, MIG: []MIGDevice{{MemoryTotal: new(10 * GiB), MemoryUsed: new(Bytes(0))}},
		}, {}}, Processes: []Process{{Memory: new(288 * GiB)}, {}}}
	}
	m := whole()
	if m.DropImplausible(); !reflect.DeepEqual(m, whole()) {
		t.Errorf("a plausible reading was dropped: %+v", m)
	}
}
