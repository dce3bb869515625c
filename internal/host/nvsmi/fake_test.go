package nvsmi

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// use makes the fake driver's nvidia-smi the one on PATH.
func use(t *testing.T, d *fakegpu.Driver) {
	t.Helper()
	for _, variable := range d.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

func read(t *testing.T) gpu.Machine {
	t.Helper()
	m, err := Read(t.Context(), gpu.Everything)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReadTheFakeDriver(t *testing.T) {
	gate.Need(t, "cc")
	// The older layout has no recovery action, only whether a reset is needed, which is always "No" in the fake.
	for format, action := range map[string]string{"12": "none", "13": "reset"} {
		d := fakegpu.New(t, fakegpu.A100(0), fakegpu.H100(1).With("temperature", "71").With("utilization", "45 10"), fakegpu.GeForce(2))
		d.WriteFile("smi_format", format)
		d.SetValue(0, "events", "0x4")
		d.SetValue(0, "remapped", "3 1 1 0")
		d.SetValue(0, "ecc_uncorrected", "2")
		d.SetValue(1, "recovery", "1")
		d.SetValue(1, "compute_mode", "3")
		d.AddProcess(0, 4242, 20<<30, fakegpu.Compute)
		d.AddProcess(2, 4243, -1, fakegpu.Both)
		use(t, d)
		m := read(t)
		if m.Driver != "550.54.15" || m.CUDA != "12.4" || len(m.Devices) != 3 || len(m.Problems) != 0 {
			t.Fatalf("format %s: %+v", format, m)
		}
		a, h, g := m.Devices[0], m.Devices[1], m.Devices[2]
		if a.Name != "NVIDIA A100-SXM4-80GB" || a.UUID != "GPU-fa4e0000-0000-4000-8000-000000000000" || a.PCI != "0000:10:00.0" || *a.Minor != 0 || a.Compute == nil || a.Compute.String() != "8.0" {
			t.Errorf("format %s: A100 %+v", format, a)
		}
		same(t, "A100 memory", [3]gpu.Bytes{*a.MemoryTotal, *a.MemoryUsed, *a.MemoryReserved}, [3]gpu.Bytes{80 * gpu.GiB, 20 * gpu.GiB, 600 * gpu.MiB})
		same(t, "A100 events", a.ClockEvents, []string{"sw_power_cap"})
		same(t, "A100 rows", a.RemappedRows, &gpu.RemappedRows{Correctable: 3, Uncorrectable: 1, Pending: true})
		same(t, "A100 ECC", []any{*a.ECC, *a.ECCCorrected, *a.ECCUncorrected}, []any{true, int64(0), int64(2)})
		same(t, "A100 heat", []any{*a.Temperature, *a.TempSlowdown, a.TempMargin, *a.Power, *a.PowerLimit}, []any{30, 89, (*int)(nil), 61.03, 400.0})
		same(t, "A100 clocks", []any{*a.ClockSM, *a.ClockSMMax, *a.ClockMemory, *a.MIGMode, *a.Persistence}, []any{210, 1410, 1593, false, true})
		same(t, "H100", []any{*h.Temperature, *h.TempMargin, h.TempSlowdown, *h.Utilization, h.RecoveryAction, h.ComputeMode}, []any{71, 54, (*int)(nil), 0.45, action, "exclusive_process"})
		if g.ECC != nil || g.ECCCorrected != nil || g.MIGMode != nil || g.RemappedRows != nil || *g.TempSlowdown != 95 || a.ComputeMode != "default" {
			t.Errorf("format %s: GeForce %+v", format, g)
		}
		for i := range m.Processes {
			m.Processes[i].Command = "" // of a PID that does not exist
		}
		same(t, "processes", m.Processes, []gpu.Process{
			{PID: 4242, GPU: a.UUID, Memory: new(20 * gpu.GiB), Kind: gpu.ComputeProcess},
			{PID: 4243, GPU: g.UUID, Kind: gpu.BothKinds},
		})
	}
}

func TestReadTheFakeDriversSlices(t *testing.T) {
	gate.Need(t, "cc")
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1).MIG("1g.10gb", "1c.2g.20gb"))
	d.AddProcess(1, 77, 1<<30, fakegpu.Compute, 2, 0)
	use(t, d)
	m := read(t)
	slices := m.Devices[1].MIG
	if len(slices) != 2 || m.Devices[0].MIG != nil || !*m.Devices[1].MIGMode || len(m.Problems) != 0 {
		t.Fatalf("%+v", m)
	}
	for i, want := range []string{"1g.10gb", "1c.2g.20gb"} {
		s := slices[i]
		if s.Profile != want || s.Index != i || s.GPUInstance != i+1 || s.ComputeInstance != 0 || s.UUID != gpu.UUID("MIG-fa4e0000-0000-5000-8000-00000100000"+strconv.Itoa(i)) {
			t.Errorf("slice %d: %+v", i, s)
		}
	}
	if *slices[0].MemoryTotal != 10*gpu.GiB-512*gpu.MiB || len(m.Processes) != 1 || m.Processes[0].GPU != slices[1].UUID {
		t.Errorf("%+v, processes %+v", slices, m.Processes)
	}
}

func TestReadTheFakeDriversFaults(t *testing.T) {
	gate.Need(t, "cc")
	for code, want := range map[int]gpu.Cause{9: gpu.DriverNotLoaded, 18: gpu.VersionMismatch, 4: gpu.NoPermission, 999: gpu.DriverError} {
		d := fakegpu.New(t, fakegpu.A100(0))
		d.FailInit(code)
		use(t, d)
		_, err := Read(t.Context(), gpu.Identity)
		if got := cause(t, err); got != want {
			t.Errorf("init answers %d: %s (%v), want %s", code, got, err, want)
		}
	}
	use(t, fakegpu.New(t))
	if _, err := Read(t.Context(), gpu.Identity); cause(t, err) != gpu.NoDevice {
		t.Errorf("no device: %v", err)
	}
}

func TestReadTheFakeDriversLostDevice(t *testing.T) {
	gate.Need(t, "cc")
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2))
	d.LoseGPU(1)
	use(t, d)
	m := read(t)
	if len(m.Devices) != 3 || m.Devices[0].Problem != "" || m.Devices[1].Problem != "GPU is lost" || m.Devices[2].Problem != "" || m.Devices[2].UUID == "" {
		t.Errorf("%+v", m)
	}
}

func TestReadTheFakeDriverHanging(t *testing.T) {
	gate.Need(t, "cc")
	d := fakegpu.New(t, fakegpu.A100(0))
	d.Hang("nvmlDeviceGetTemperature", 0)
	d.Hang("nvmlDeviceGetTemperatureV", 0)
	use(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if _, err := Read(ctx, gpu.Load); cause(t, err) != gpu.NoAnswer || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
