package nvml

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/internal/host/nvsmi"
	"gpuard/test/fakegpu"
)

// TestReadersAgree: of the same machine the two readers of NVIDIA's driver say the same, but for what only the library has.
func TestReadersAgree(t *testing.T) {
	for seed := range uint64(gate.SoakCount(200, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := randomMachine(t, rand.New(rand.NewPCG(seed, 33)))
			for _, pair := range d.Env() {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			want := machine(t, d, gpu.Everything)
			got, err := nvsmi.Read(t.Context(), gpu.Everything)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "number of devices", len(got.Devices), len(want.Devices))
			for i := range want.Devices {
				leaveOut(&want.Devices[i])
				leaveOut(&got.Devices[i])
				a, b := reflect.ValueOf(got.Devices[i]), reflect.ValueOf(want.Devices[i])
				for k := range a.NumField() {
					same(t, fmt.Sprintf("GPU %d: %s", i, a.Type().Field(k).Name), a.Field(k).Interface(), b.Field(k).Interface())
				}
			}
			same(t, "devices with slices that cannot be named", nameless(got), nameless(want))
			same(t, "processes", sorted(got.Processes), sorted(want.Processes))
		})
	}
}

// leaveOut drops what only one of the readers has, and how a failure is worded.
func leaveOut(d *gpu.Device) {
	d.NUMA, d.Links, d.TempSlowdown, d.DisplayActive = nil, nil, nil, nil
	if d.Problem != "" {
		*d = gpu.Device{Index: d.Index, Problem: "it has one"}
	}
}

// nameless lists the devices of which a problem says that some of their slices cannot be named.
func nameless(m gpu.Machine) (all []string) {
	for _, p := range m.Problems {
		if device, _, found := strings.Cut(p, ": "); found && strings.Contains(p, "cannot be named, so no job gets") {
			all = append(all, device)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func sorted(list []gpu.Process) []gpu.Process {
	for i := range list {
		list[i].Command = "" // the library has none
	}
	slices.SortFunc(list, func(a, b gpu.Process) int {
		return strings.Compare(fmt.Sprint(a.GPU, a.PID), fmt.Sprint(b.GPU, b.PID))
	})
	return list
}

// randomMachine has one to four devices with readings of all kinds.
func randomMachine(t *testing.T, r *rand.Rand) *fakegpu.Driver {
	var gpus []fakegpu.GPU
	for i := range 1 + r.IntN(4) {
		gpus = append(gpus, []func(int) fakegpu.GPU{fakegpu.A100, fakegpu.H100, fakegpu.GeForce}[r.IntN(3)](i))
	}
	split := r.IntN(len(gpus) + 1) // none, where it is the number of devices
	if split < len(gpus) {
		gpus[split] = fakegpu.A100(split).MIG("1g.10gb", "2g.20gb", "1c.2g.20gb")
	}
	d := fakegpu.New(t, gpus...)
	d.WriteFile("smi_format", "13") // the layout of tools that say what a device recovers by
	for i := range gpus {
		d.SetValue(i, "recovery", fmt.Sprint(r.IntN(7)))
		d.SetValue(i, "compute_mode", fmt.Sprint(r.IntN(5)))
		d.SetValue(i, "utilization", fmt.Sprintf("%d %d", r.IntN(101), r.IntN(101)))
		d.SetValue(i, "temperature", fmt.Sprint(20+r.IntN(70)))
		for k := range r.IntN(4) {
			if i == split {
				break
			}
			kinds := []string{"C", "G", "C+G"}
			d.AddProcess(i, 900000+k, int64(1+r.IntN(20))<<30, kinds[r.IntN(3)])
		}
	}
	if split < len(gpus) {
		for k := range 3 {
			if r.IntN(2) == 0 {
				d.UnsetValue(split, fmt.Sprintf("mig/%d/uuid", k))
			}
			if r.IntN(2) == 0 {
				d.AddProcess(split, 910000+k, int64(1+r.IntN(4))<<30, fakegpu.Compute, k+1, 0)
			}
		}
	}
	if len(gpus) > 1 && r.IntN(4) == 0 {
		d.LoseGPU(r.IntN(len(gpus)))
	}
	return d
}
