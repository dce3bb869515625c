package gpu

import (
	"reflect"
	"slices"
	"testing"
)

// TestCompletedBy: a reading of some devices and one before it make a whole machine, and never one of two.
func TestCompletedBy(t *testing.T) {
	device := func(i int, used Bytes) Device {
		return Device{Index: i, UUID: UUID("GPU-" + string(rune('a'+i))), Vendor: NVIDIA, MemoryUsed: &used, Links: []Link{LinkSelf}}
	}
	process := func(pid int, id UUID) Process { return Process{PID: pid, GPU: id} }
	earlier := Machine{Source: "nvml", Devices: []Device{device(0, 1), device(1, 1), device(2, 1), {Index: 0, UUID: "GPU-amd", Vendor: AMD, Name: "old"}},
		Processes: []Process{process(1, "GPU-a"), process(2, "GPU-b"), process(3, "MIG-c"), process(4, "GPU-amd")}}
	earlier.Devices[2].MIG = []MIGDevice{{UUID: "MIG-c"}}
	earlier.Devices[0].Drained = "by root"
	now := Machine{Source: "nvml", Devices: []Device{{Index: 0, UUID: "GPU-a", Vendor: NVIDIA, XIDs: []XID{{Code: 79}}}, device(1, 2), {Index: 2, UUID: "GPU-c", Vendor: NVIDIA},
		{Index: 0, UUID: "GPU-amd", Vendor: AMD, Name: "new"}}, Processes: []Process{process(5, "GPU-b")}}
	now.Devices[1].Links = nil
	now.Devices[2].MIG = []MIGDevice{{UUID: "MIG-c"}}
	query := Query{Only: []int{1}}

	whole, same := now.FillFromEarlier(earlier, query)
	want := Machine{Source: "nvml", Devices: slices.Clone(earlier.Devices), Processes: []Process{process(5, "GPU-b"), process(1, "GPU-a"), process(3, "MIG-c")}}
	want.Devices[0].Drained, want.Devices[0].XIDs = "", []XID{{Code: 79}}
	want.Devices[1] = device(1, 2)
	want.Devices[3].Name = "new"
	if !same || !reflect.DeepEqual(whole, want) {
		t.Errorf("%v, %+v\nwant %+v", same, whole, want)
	}
	if now.Devices[0].MemoryUsed != nil || earlier.Devices[0].Drained == "" {
		t.Error("the machines themselves have changed")
	}
	lost := now
	lost.Devices = slices.Clone(now.Devices)
	lost.Devices[0].Problem = "GPU is lost"
	whole, same = lost.FillFromEarlier(earlier, query)
	if !same || !reflect.DeepEqual(whole.Devices[0], lost.Devices[0]) || slices.ContainsFunc(whole.Processes, func(p Process) bool { return p.GPU == "GPU-a" }) {
		t.Errorf("lost meanwhile: %v, %+v", same, whole)
	}
	for name, other := range map[string]func(m *Machine){
		"another device":  func(m *Machine) { m.Devices[2].UUID = "GPU-x" },
		"another number":  func(m *Machine) { m.Devices[2].Index = 3 },
		"one device less": func(m *Machine) { m.Devices = m.Devices[:3] },
		"split":           func(m *Machine) { m.Devices[0].MIGMode = new(true) },
		"another reader":  func(m *Machine) { m.Source = "nvidia-smi" },
	} {
		changed := now
		changed.Devices = slices.Clone(now.Devices)
		other(&changed)
		if _, same := changed.FillFromEarlier(earlier, query); same {
			t.Errorf("%s: taken for the same machine", name)
		}
	}
}

func TestModel(t *testing.T) {
	for in, want := range map[string]string{"NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB", "AMD Instinct MI300X": "Instinct MI300X", "NVIDIA ": "NVIDIA ", "Tesla T4": "Tesla T4", "": ""} {
		if got := ModelName(in); got != want {
			t.Errorf("Model(%q) = %q, want %q", in, got, want)
		}
	}
}
