package nvsmi

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// TestNotAvailable: numbers that no card can have are absent, as the texts are that say so.
func TestNotAvailable(t *testing.T) {
	gate.Need(t, "cc")
	const none = "4294967295"
	d := fakegpu.New(t, fakegpu.H100(0))
	for _, key := range []string{"temperature", "margin", "power_mw", "power_limit_mw", "clock_sm", "clock_sm_max", "clock_mem", "ecc_uncorrected"} {
		d.SetValue(0, key, none)
	}
	d.SetValue(0, "utilization", none+" "+none)
	d.SetValue(0, "remapped", none+" "+none+" 0 0")
	use(t, d)
	m := read(t)
	if len(m.Devices) != 1 {
		t.Fatalf("%+v", m)
	}
	got := m.Devices[0]
	for name, absent := range map[string]bool{
		"temperature": got.Temperature == nil, "margin": got.TempMargin == nil, "power": got.Power == nil, "limit": got.PowerLimit == nil, "clock": got.ClockSM == nil,
		"highest clock": got.ClockSMMax == nil, "memory clock": got.ClockMemory == nil, "utilisation": got.Utilization == nil, "rows": got.RemappedRows == nil,
		"ECC": got.ECCUncorrected == nil,
	} {
		if !absent {
			t.Errorf("%s is believed: %+v", name, got)
		}
	}
	same(t, "memory", *got.MemoryTotal, 81559*gpu.MiB)
}
