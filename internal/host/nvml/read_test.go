package nvml

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// text shows a value with its optional readings, for comparing and for messages.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %s, want %s", what, text(got), text(want))
	}
}

func TestEverythingOfOneDevice(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	for key, value := range map[string]string{
		"utilization": "37 12", "temperature": "61", "memory_used": "1024M", "power_mw": "251500", "energy_mj": "9007199254740993", "clock_sm": "1200",
		"events": "0x24", "ecc_corrected": "3", "ecc_uncorrected": "1", "remapped": "2 1 1 0", "retired": "4 5 1",
		"recovery": "2", "persistence": "0", "compute_mode": "3", "numa": "1", "margin": "28", "minor": "7",
	} {
		d.SetValue(1, key, value)
	}
	m := machine(t, d, gpu.Everything)
	same(t, "the number of devices", len(m.Devices), 2)
	same(t, "driver and CUDA", []string{m.Driver, m.CUDA, m.Source}, []string{"550.54.15", "12.4", "nvml"})
	same(t, "the problems", m.Problems, []string(nil))
	if m.Taken.IsZero() {
		t.Error("the time is missing")
	}
	want := gpu.Device{
		Index: 1, UUID: "GPU-fa4e0000-0000-4000-8000-000000000001", Name: "NVIDIA A100-SXM4-80GB", Vendor: gpu.NVIDIA,
		PCI: "0000:11:00.0", Minor: new(7),
		MemoryTotal: new(81920 * gpu.MiB), MemoryUsed: new(1024 * gpu.MiB), MemoryReserved: new(600 * gpu.MiB),
		Utilization: new(0.37), MemoryLoad: new(0.12), Temperature: new(61), TempSlowdown: new(89), TempMargin: new(28),
		Power: new(251.5), PowerLimit: new(400.0), Energy: new(9007199254740993.0 / 1000), ClockSM: new(1200), ClockSMMax: new(1410), ClockMemory: new(1593),
		ClockEvents: []string{"sw_power_cap", "sw_thermal_slowdown"},
		ECC:         new(true), ECCCorrected: new(int64(3)), ECCUncorrected: new(int64(1)),
		RemappedRows:   &gpu.RemappedRows{Correctable: 2, Uncorrectable: 1, Pending: true},
		RetiredPages:   &gpu.RetiredPages{SingleBit: 4, DoubleBit: 5, Pending: true},
		RecoveryAction: "reboot", Persistence: new(false), ComputeMode: "exclusive_process",
		Compute: &gpu.Capability{Major: 8}, NUMA: new(1), MIGMode: new(false),
		Links: []gpu.Link{gpu.LinkSwitch, gpu.LinkSelf},
	}
	same(t, "device 1", m.Devices[1], want)
}

func TestOnlyWhatIsAskedForIsRead(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0))
	d.AddProcess(0, 4242, 1<<20, fakegpu.Compute)
	// These functions hang, so an unneeded call of one would be noticed.
	hang := func(names ...string) {
		for _, name := range names {
			d.Hang(name, fakegpu.AnyGPU)
		}
	}
	hang("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEccMode", "nvmlDeviceGetNvLinkState",
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetTopologyCommonAncestor")
	m := machine(t, d, gpu.Identity)
	got := m.Devices[0]
	same(t, "the problem", got.Problem, "")
	same(t, "memory used", got.MemoryUsed, (*gpu.Bytes)(nil))
	same(t, "memory total", got.MemoryTotal, new(81920*gpu.MiB))
	same(t, "the processes", len(m.Processes), 0)
	same(t, "events", got.ClockEvents, []string(nil))
	same(t, "links", got.Links, []gpu.Link(nil))
}

// TestSomeDevices: of a device that a query does not want only the identity is read.
func TestSomeDevices(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	d.Hang("nvmlDeviceGetTemperature", 0)
	got := child(t, append(d.Env(), childQuery+`={"Only": [1], "Known": true}`), gpu.Quick, 5*time.Second).Machine.Devices
	same(t, "the identities", []gpu.UUID{got[0].UUID, got[1].UUID}, []gpu.UUID{"GPU-fa4e0000-0000-4000-8000-000000000000", "GPU-fa4e0000-0000-4000-8000-000000000001"})
	same(t, "the problems", []string{got[0].Problem, got[1].Problem}, []string{"", ""})
	same(t, "a reading", []bool{got[0].MemoryUsed != nil, got[1].MemoryUsed != nil, got[1].Temperature != nil}, []bool{false, true, true})
}

// TestKnownDevices: what was identified before need not be asked again; what is asked shows when it is lost.
func TestKnownDevices(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	d.AddProcess(0, 4242, 1<<20, fakegpu.Compute)
	twice := machineTwice(t, d, gpu.Everything, 5*time.Second, func() { d.Hang("nvmlDeviceGetHandleByIndex_v2", fakegpu.AnyGPU) }, childQuery+`={"Only": [], "Known": true}`)
	for i, device := range twice.Machine.Devices {
		first := twice.First.Devices[i]
		same(t, "the identity", []any{device.UUID, device.Name, device.PCI, *device.MemoryTotal}, []any{first.UUID, first.Name, first.PCI, *first.MemoryTotal})
		same(t, "readings", []any{device.Problem, device.MemoryUsed == nil, device.Links == nil}, []any{"", true, true})
	}
	same(t, "the second machine", []int{len(twice.Machine.Devices), len(twice.Machine.Processes), len(twice.Machine.Problems)}, []int{2, 0, 0})

	d = fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	twice = machineTwice(t, d, gpu.Quick, 5*time.Second, func() { d.LoseGPU(0) }, childQuery+`={"Only": [1]}`)
	same(t, "the one that is lost by now", twice.Machine.Devices[0].Problem != "", true)
	same(t, "its identity", twice.Machine.Devices[0].UUID, twice.First.Devices[0].UUID)
}

const deciding = gpu.Identity | gpu.Quick | gpu.Processes | gpu.Faults | gpu.Deciding

// TestWhatADecisionNeeds: of an empty GPU little is asked, of a warm one also how hot it may be, and of one in use its load.
func TestWhatADecisionNeeds(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2), fakegpu.A100(3), fakegpu.A100(4))
	d.SetValue(0, "temperature", "49")
	d.SetValue(1, "temperature", "50")
	for i := range 5 {
		d.SetValue(i, "utilization", "37 12")
	}
	d.AddProcess(2, 4242, 1<<20, fakegpu.Compute)
	d.SetValue(3, "memory_used", "32M")
	d.SetValue(4, "memory_used", fmt.Sprint(32<<20-1))
	for name, from := range map[string]int{ // these hang, so that a call of one would be noticed
		"nvmlDeviceGetMPSComputeRunningProcesses_v3": 0, "nvmlDeviceGetTemperatureThreshold": 0, "nvmlDeviceGetUtilizationRates": 4,
		"nvmlDeviceGetPowerUsage": fakegpu.AnyGPU, "nvmlDeviceGetClockInfo": fakegpu.AnyGPU, "nvmlDeviceGetMaxClockInfo": fakegpu.AnyGPU, "nvmlDeviceGetRetiredPages": fakegpu.AnyGPU,
		"nvmlDeviceGetEccMode": fakegpu.AnyGPU, "nvmlDeviceGetPersistenceMode": fakegpu.AnyGPU,
	} {
		d.Hang(name, from)
	}
	m := machine(t, d, deciding)
	same(t, "problems", m.Problems, []string(nil))
	var load []*float64
	var slowdown []*int
	for _, d := range m.Devices {
		load, slowdown = append(load, d.Utilization), append(slowdown, d.TempSlowdown)
		same(t, "a problem", d.Problem, "")
		same(t, "faults", d.RemappedRows != nil && d.ECCUncorrected != nil, true)
	}
	same(t, "load", load, []*float64{nil, nil, new(0.37), new(0.37), nil})
	same(t, "slowdown", slowdown, []*int{nil, new(89), nil, nil, nil})
}

// TestDecisionOnOlderDevices: pages are retired where no rows are remapped, and a margin that says nothing does not hide how hot
// a device is.
func TestDecisionOnOlderDevices(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	d.SetValue(0, "remapped", "4294967295 0 0 0")
	d.SetValue(0, "retired", "0 1 1")
	d.SetValue(1, "temperature", "90")
	d.SetValue(1, "margin", "4294967295")
	m := machine(t, d, deciding)
	same(t, "pages", m.Devices[0].RetiredPages, &gpu.RetiredPages{DoubleBit: 1, Pending: true})
	same(t, "heat", []any{m.Devices[1].TempMargin, m.Devices[1].TempSlowdown}, []any{(*int)(nil), new(89)})
}

func TestSixteenDevices(t *testing.T) {
	var devices []fakegpu.GPU
	for i := range 16 {
		devices = append(devices, fakegpu.A100(i))
	}
	d := fakegpu.New(t, devices...)
	for i := range 16 {
		d.AddProcess(i, 1000+i, int64(i+1)<<20, fakegpu.Compute)
	}
	m := machine(t, d, gpu.Everything)
	same(t, "the number of devices", len(m.Devices), 16)
	same(t, "the number of processes", len(m.Processes), 16)
	for i, device := range m.Devices {
		same(t, fmt.Sprintf("index and UUID of %d", i), []any{device.Index, device.UUID},
			[]any{i, gpu.UUID(fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012x", i))})
		same(t, fmt.Sprintf("links of %d", i), len(device.Links), 16)
		same(t, "the problem", device.Problem, "")
		same(t, "the process", m.ProcessesOn(device.UUID)[0].PID, 1000+i)
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	d := fakegpu.New(t, fakegpu.GPU{"uuid": "GPU-bare", "name": "Bare", "pci": "0001:0A:00.0"})
	d.SetLinks("X")
	m := machine(t, d, gpu.Everything)
	want := gpu.Device{UUID: "GPU-bare", Name: "Bare", Vendor: gpu.NVIDIA, PCI: "0001:0a:00.0", Links: []gpu.Link{gpu.LinkSelf}}
	same(t, "the device", m.Devices[0], want)
	same(t, "the problems", m.Problems, []string(nil))
}

func TestOneFailingReadingLeavesTheOthers(t *testing.T) {
	tests := []struct {
		function string
		gone     func(d *gpu.Device) bool // the reading is absent
	}{
		{"nvmlDeviceGetTemperatureThreshold", func(d *gpu.Device) bool { return d.TempSlowdown == nil }},
		{"nvmlDeviceGetUtilizationRates", func(d *gpu.Device) bool { return d.Utilization == nil }},
		{"nvmlDeviceGetPowerUsage", func(d *gpu.Device) bool { return d.Power == nil }},
		{"nvmlDeviceGetCurrentClocksEventReasons", func(d *gpu.Device) bool { return d.ClockEvents == nil }},
		{"nvmlDeviceGetName", func(d *gpu.Device) bool { return d.Name == "" }},
		{"nvmlDeviceGetPciInfo_v3", func(d *gpu.Device) bool { return d.PCI == "" }},
		{"nvmlDeviceGetMemoryInfo_v2", func(d *gpu.Device) bool { return d.MemoryTotal == nil && d.MemoryUsed == nil }},
		{"nvmlDeviceGetTotalEccErrors", func(d *gpu.Device) bool { return d.ECCCorrected == nil && d.ECCUncorrected == nil }},
		{"nvmlDeviceGetComputeMode", func(d *gpu.Device) bool { return d.ComputeMode == "" }},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
			d.Fail(test.function, 1, int(unknown))
			m := machine(t, d, gpu.Identity|gpu.Load|gpu.Health)
			if !test.gone(&m.Devices[1]) {
				t.Errorf("the reading is there: %s", text(m.Devices[1]))
			}
			if test.gone(&m.Devices[0]) {
				t.Errorf("the other device lost it too: %s", text(m.Devices[0]))
			}
			same(t, "the device's problem", m.Devices[1].Problem, "")
			same(t, "a later reading", m.Devices[1].Persistence, new(true))
			said := strings.Join(m.Problems, "\n")
			if !strings.Contains(said, "GPU 1: cannot read "+test.function+": Unknown Error") || strings.Contains(said, "GPU 0") {
				t.Errorf("the problems are %q", m.Problems)
			}
		})
	}
}

func TestMissingSymbolsAreAbsentReadings(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0))
	d.AddProcess(0, 77, 5<<20, fakegpu.Compute)
	d.SetValue(0, "memory_used", "1024M")
	d.HideSymbols("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetFieldValues", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetTemperature", "nvmlErrorString",
		"nvmlDeviceGetPowerUsage", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows")
	m := machine(t, d, gpu.Everything)
	got := m.Devices[0]
	same(t, "total", got.MemoryTotal, new(81920*gpu.MiB))
	same(t, "reserved", got.MemoryReserved, (*gpu.Bytes)(nil))
	same(t, "used, with the reserve in it", got.MemoryUsed, new((1024+600)*gpu.MiB+5*gpu.MiB))
	same(t, "events by the old name", got.ClockEvents, []string{"gpu_idle"})
	same(t, "temperature by the new name", got.Temperature, new(30))
	same(t, "power", got.Power, (*float64)(nil))
	same(t, "MIG mode", got.MIGMode, (*bool)(nil))
	same(t, "CUDA", m.CUDA, "")
	same(t, "the device's problem", got.Problem, "")
	same(t, "the problems", m.Problems, []string{"GPU 0: cannot list its processes: error 13"})
}

func TestLostDevice(t *testing.T) {
	tests := []struct {
		how  string
		uuid gpu.UUID
	}{
		{"all", ""}, // it has no handle any more
		{"handle", "GPU-fa4e0000-0000-4000-8000-000000000001"},
	}
	for _, test := range tests {
		t.Run(test.how, func(t *testing.T) {
			d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2))
			d.SetValue(1, "lost", test.how)
			m := machine(t, d, gpu.Everything)
			same(t, "the number of devices", len(m.Devices), 3)
			same(t, "the problems of the devices", []string{m.Devices[0].Problem, m.Devices[1].Problem, m.Devices[2].Problem},
				[]string{"", "GPU is lost", ""})
			same(t, "the lost one's UUID", m.Devices[1].UUID, test.uuid)
			same(t, "the lost one's index", m.Devices[1].Index, 1)
			same(t, "the machine's problems", m.Problems, []string{"GPU 1: GPU is lost"})
			same(t, "the lost one's links", m.Devices[1].Links, []gpu.Link(nil))
			same(t, "another's links", m.Devices[2].Links, []gpu.Link{gpu.LinkBridge, "", gpu.LinkSelf})
			same(t, "another's temperature", m.Devices[2].Temperature, new(32))
		})
	}
}

func TestSlices(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1).MIG("1g.10gb", "3g.40gb", "1c.2g.20gb"))
	d.AddProcess(1, 500, 1<<30, fakegpu.Compute, 2, 0)
	d.AddProcess(0, 501, 2<<30, fakegpu.Compute)
	m := machine(t, d, gpu.Everything)
	same(t, "mode of 0", m.Devices[0].MIGMode, new(false))
	same(t, "mode of 1", m.Devices[1].MIGMode, new(true))
	same(t, "utilisation of a split device", m.Devices[1].Utilization, (*float64)(nil))
	same(t, "slices of 0", m.Devices[0].MIG, []gpu.MIGDevice(nil))
	var got []string
	for _, s := range m.Devices[1].MIG {
		got = append(got, fmt.Sprintf("%d %s %s %d %d", s.Index, s.UUID, s.Profile, s.GPUInstance, s.ComputeInstance))
	}
	same(t, "slices of 1", got, []string{
		"0 MIG-fa4e0000-0000-5000-8000-000001000000 1g.10gb 1 0",
		"1 MIG-fa4e0000-0000-5000-8000-000001000001 3g.40gb 2 0",
		"2 MIG-fa4e0000-0000-5000-8000-000001000002 1c.2g.20gb 3 0",
	})
	same(t, "memory of a slice", *m.Devices[1].MIG[0].MemoryTotal, (10*1024-512)*gpu.MiB)
	same(t, "use of a slice", *m.Devices[1].MIG[1].MemoryUsed, gpu.GiB)
	same(t, "the number of processes", len(m.Processes), 2)
	for _, p := range m.Processes {
		want := map[int]gpu.UUID{500: m.Devices[1].MIG[1].UUID, 501: m.Devices[0].UUID}[p.PID]
		same(t, fmt.Sprintf("device of process %d", p.PID), p.GPU, want)
	}
}

// Older drivers name a slice without its profile.
func TestProfileFromAttributes(t *testing.T) {
	tests := []struct {
		a      attributes
		device gpu.Bytes
		want   string
	}{
		{attributes{gpuSlices: 1, computeSlices: 1, memoryMiB: 4864}, 40536 * gpu.MiB, "1g.5gb"},
		{attributes{gpuSlices: 2, computeSlices: 1, memoryMiB: 19968}, 81920 * gpu.MiB, "1c.2g.20gb"},
		{attributes{gpuSlices: 3, computeSlices: 3, memoryMiB: 40192}, 81920 * gpu.MiB, "3g.40gb"},
		{attributes{gpuSlices: 7, computeSlices: 7, memoryMiB: 80896}, 81920 * gpu.MiB, "7g.80gb"},
		{attributes{gpuSlices: 1, computeSlices: 1, memoryMiB: 16384}, 143771 * gpu.MiB, "1g.18gb"},
		{attributes{gpuSlices: 3, computeSlices: 3, memoryMiB: 71168}, 143771 * gpu.MiB, "3g.71gb"},
	}
	for _, test := range tests {
		if got := test.a.profileName(test.device); got != test.want {
			t.Errorf("%+v of %s: %s, want %s", test.a, test.device, got, test.want)
		}
	}
}

func TestEventNames(t *testing.T) {
	same(t, "no bit", clockEventNames(0), []string{})
	same(t, "the highest known bit", clockEventNames(0x100), []string{"display_clock_setting"})
	same(t, "hardware reasons", clockEventNames(0xc8), []string{"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
	same(t, "a bit of a later driver", clockEventNames(0x402), []string{"applications_clocks", "unknown_0x400"})
}

// TestFabric: the driver's mask of what is wrong with the NVLink fabric, of devices that have one.
func TestFabric(t *testing.T) {
	for value, want := range map[string][]string{
		"":        nil,
		"0 0":     nil, // not supported
		"2 155":   nil, // not set up yet
		"3 0":     {},
		"3 1aa":   {},
		"3 1a9":   {"degraded_bandwidth"},
		"3 555":   {"degraded_bandwidth", "route_unhealthy", "incorrect_configuration"},
		"3 144":   {}, // recoveries
		"3 fff0":  {"incorrect_configuration"},
		"3 0 999": {"probe_failed"},
	} {
		d := fakegpu.New(t, fakegpu.H100(0).With("fabric", value))
		m := machine(t, d, gpu.Identity|gpu.Faults)
		same(t, value, m.Devices[0].Fabric, want)
		same(t, "problems", m.Problems, []string(nil))
	}
}

// TestSharedUUID: of two GPUs that answer with one UUID neither has an identity, so nothing is leased by it; the third is as before.
func TestSharedUUID(t *testing.T) {
	shared := "GPU-fa4e0000-0000-4000-8000-000000000001"
	m := machine(t, fakegpu.New(t, fakegpu.A100(0).With("uuid", shared), fakegpu.A100(1).With("uuid", shared), fakegpu.A100(2)), gpu.Everything)
	for i, d := range m.Devices {
		if (i < 2) != (d.UUID == "") || (i < 2) != strings.Contains(d.Problem, "answered with the same UUID "+shared) {
			t.Errorf("GPU %d is %q: %q", i, d.UUID, d.Problem)
		}
	}
}
