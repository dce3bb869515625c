package nvml

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

func TestProcessesOfAllKinds(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
	d.AddProcess(0, 10, 1<<30, fakegpu.Compute)
	d.AddProcess(0, 11, 2<<20, fakegpu.Graphics)
	d.AddProcess(0, 12, 3<<20, fakegpu.Both)
	d.SetValue(0, "display_active", "1")
	d.AddProcess(1, 10, 5<<20, fakegpu.Compute) // one process on two devices appears twice
	d.AddProcess(1, 13, -1, fakegpu.Compute)
	m := machine(t, d, gpu.Processes)
	a, b := m.Devices[0].UUID, m.Devices[1].UUID
	want := []gpu.Process{
		{PID: 10, GPU: a, Memory: new(gpu.GiB), Kind: gpu.ComputeProcess},
		{PID: 12, GPU: a, Memory: new(3 * gpu.MiB), Kind: gpu.BothKinds},
		{PID: 11, GPU: a, Memory: new(2 * gpu.MiB), Kind: gpu.GraphicsProcess},
		{PID: 10, GPU: b, Memory: new(5 * gpu.MiB), Kind: gpu.ComputeProcess},
		{PID: 13, GPU: b, Kind: gpu.ComputeProcess},
	}
	same(t, "the processes", m.Processes, want)
	if active := m.Devices[0].DisplayActive; active == nil || !*active || m.Devices[1].DisplayActive != nil {
		t.Errorf("displays: %v, %v", active, m.Devices[1].DisplayActive)
	}
}

func TestManyProcesses(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0))
	for pid := range 60 {
		d.AddProcess(0, 1000+pid, 1<<20, fakegpu.Compute)
	}
	m := machine(t, d, gpu.Processes)
	same(t, "the number of processes", len(m.Processes), 60)
	same(t, "the last one", m.Processes[59].PID, 1059)
}

// A list that cannot be read is not an empty list.
func TestAListThatFailsIsNamed(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0))
	d.AddProcess(0, 11, 2<<20, fakegpu.Graphics)
	d.Fail("nvmlDeviceGetComputeRunningProcesses_v3", 0, int(noPermission))
	m := machine(t, d, gpu.Processes)
	same(t, "the graphics process", len(m.Processes), 1)
	same(t, "the problems", m.Problems, []string{"GPU 0: cannot read nvmlDeviceGetComputeRunningProcesses: Insufficient Permissions"})
	same(t, "why the list is short", m.Devices[0].Unlisted, "cannot list its processes: Insufficient Permissions")
}

// driverOf makes a library that has only these functions.
func driverOf(functions map[string]any) *Library {
	l := &Library{addresses: map[string]uintptr{}}
	for _, name := range []string{"nvmlErrorString",
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
		"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
	} {
		l.addresses[name] = 0
		if f := functions[name]; f != nil {
			l.addresses[name] = purego.NewCallback(f)
		}
	}
	return l
}

// fill fills a list as the driver does: only if all of it fits.
func fill(count *uint32, infos *processInfo, list ...processInfo) uintptr {
	room := *count
	*count = uint32(len(list))
	if int(room) < len(list) {
		return uintptr(insufficientSize)
	}
	copy(unsafe.Slice(infos, room), list)
	return uintptr(success)
}

func TestOlderDriversHaveTheListsByAnOlderName(t *testing.T) {
	l := driverOf(map[string]any{
		"nvmlDeviceGetComputeRunningProcesses_v2": func(_ uintptr, count *uint32, infos *processInfo) uintptr {
			return fill(count, infos, processInfo{pid: 77, memory: 5 << 20})
		},
	})
	r := &deviceReader{lib: l, deviceAnswer: deviceAnswer{handle: 1}}
	r.device.UUID = "GPU-1"
	r.readProcesses(gpu.Processes)
	same(t, "the processes", r.processes, []gpu.Process{{PID: 77, GPU: "GPU-1", Memory: new(5 * gpu.MiB), Kind: gpu.ComputeProcess}})
	same(t, "the problems", r.problems, []string(nil))
}

func TestTheListMayGrowBetweenTwoCalls(t *testing.T) {
	calls := 0
	l := driverOf(map[string]any{
		"nvmlDeviceGetComputeRunningProcesses_v3": func(_ uintptr, count *uint32, infos *processInfo) uintptr {
			calls++
			list := make([]processInfo, 40*min(calls, 3))
			for i := range list {
				list[i] = processInfo{pid: uint32(i + 1), memory: notAvailable}
			}
			return fill(count, infos, list...)
		},
	})
	found, s := (&deviceReader{lib: l}).readProcessList(1, "nvmlDeviceGetComputeRunningProcesses")
	same(t, "the status", s, success)
	same(t, "the number of processes", len(found), 120)
	same(t, "the number of calls", calls, 3)
}

// The processes of a slice that does not answer, as under a hypervisor, are taken from the list of the whole device, and those of
// a slice without a name stay on it.
func TestASilentSliceIsFoundInTheListOfTheDevice(t *testing.T) {
	const device, first, second, unnamed = 1, 2, 3, 4
	l := driverOf(map[string]any{
		"nvmlDeviceGetComputeRunningProcesses_v3": func(handle uintptr, count *uint32, infos *processInfo) uintptr {
			one, two, three := processInfo{pid: 21, gpuInstance: 1}, processInfo{pid: 22, gpuInstance: 2}, processInfo{pid: 23, gpuInstance: 3}
			switch handle {
			case device:
				return fill(count, infos, one, two, three)
			case first:
				return fill(count, infos, one)
			}
			return uintptr(notSupported)
		},
	})
	r := &deviceReader{lib: l, slices: []uintptr{first, second}, unnamed: []uintptr{unnamed}}
	r.handle = device
	r.device.UUID = "GPU-1"
	r.device.MIG = []gpu.MIGDevice{{UUID: "MIG-1", GPUInstance: 1}, {UUID: "MIG-2", GPUInstance: 2}}
	r.readProcesses(gpu.Processes)
	var got []any
	for _, p := range r.processes {
		got = append(got, p.PID, p.GPU)
	}
	same(t, "the processes", got, []any{21, gpu.UUID("MIG-1"), 22, gpu.UUID("MIG-2"), 23, gpu.UUID("GPU-1")})
}
