package visible

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// apply makes the environment that a job starts with.
func apply(env Env, vars []Var) Env {
	out := slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.ContainsFunc(vars, func(v Var) bool { return v.Name == name })
	})
	for _, v := range vars {
		if !v.Unset {
			out = append(out, v.Name+"="+v.Value)
		}
	}
	return out
}

func target(d gpu.Device) Target { return Target{Index: d.Index, UUID: d.UUID, Vendor: d.Vendor} }

func slice(d gpu.Device, i int) Target {
	return Target{Index: d.Index, UUID: d.MIG[i].UUID, MIG: true, Vendor: d.Vendor}
}

// bothVendors has three NVIDIA devices of two models and two AMD devices.
func bothVendors() gpu.Machine {
	m := mixed()
	third := same(gpu.NVIDIA, 3).Devices[2]
	m.Devices = append(m.Devices, third)
	m.Devices = append(m.Devices, same(gpu.AMD, 2).Devices...)
	return m
}

func TestWrite(t *testing.T) {
	nvidia, amd, both, mig := same(gpu.NVIDIA, 4), same(gpu.AMD, 4), bothVendors(), split(2, 0)
	intel, ascend := same(gpu.Intel, 2), same(gpu.Ascend, 4)
	odd := same(gpu.AMD, 1)
	odd.Devices[0].UUID = "GPU-XX"
	const end = " -VISIBLE_DEVICES -HCQ_VISIBLE_DEVICES"
	for _, c := range []struct {
		name    string
		targets []Target
		ids     job.IDs
		machine gpu.Machine
		want    string
	}{
		{"numbers", []Target{target(nvidia.Devices[2]), target(nvidia.Devices[0])}, job.AutoIDs, nvidia,
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,0 NVIDIA_VISIBLE_DEVICES=GPU-000000a2-aaaa-bbbb-cccc-0123456789ab,GPU-000000a0-aaaa-bbbb-cccc-0123456789ab"},
		{"identifiers", []Target{target(nvidia.Devices[2])}, job.UUIDs, nvidia,
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-000000a2-aaaa-bbbb-cccc-0123456789ab NVIDIA_VISIBLE_DEVICES=GPU-000000a2-aaaa-bbbb-cccc-0123456789ab"},
		{"MIG is never a number", []Target{slice(mig.Devices[0], 1)}, job.IndexIDs, mig,
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=MIG-01000000-0000-5000-8000-000000000000 NVIDIA_VISIBLE_DEVICES=MIG-01000000-0000-5000-8000-000000000000"},
		{"none", nil, job.AutoIDs, nvidia,
			"NVIDIA_VISIBLE_DEVICES=void CUDA_VISIBLE_DEVICES=-1 ROCR_VISIBLE_DEVICES=-1 HIP_VISIBLE_DEVICES=-1 GPU_DEVICE_ORDINAL=-1 ZE_AFFINITY_MASK=65535 ONEAPI_DEVICE_SELECTOR=*:cpu ASCEND_RT_VISIBLE_DEVICES= -ASCEND_DEVICE_ID"},
		{"NVIDIA with AMD", []Target{target(both.Devices[1])}, job.AutoIDs, both,
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 NVIDIA_VISIBLE_DEVICES=GPU-000000a1-aaaa-bbbb-cccc-0123456789ab ROCR_VISIBLE_DEVICES=-1 HIP_VISIBLE_DEVICES=-1 GPU_DEVICE_ORDINAL=-1"},
		{"AMD alone", []Target{target(amd.Devices[3]), target(amd.Devices[1])}, job.AutoIDs, amd,
			"NVIDIA_VISIBLE_DEVICES=void ROCR_VISIBLE_DEVICES=3,1 -GPU_DEVICE_ORDINAL -HIP_VISIBLE_DEVICES -CUDA_VISIBLE_DEVICES"},
		{"AMD identifier", []Target{target(amd.Devices[0])}, job.UUIDs, amd,
			"NVIDIA_VISIBLE_DEVICES=void ROCR_VISIBLE_DEVICES=GPU-babababababababa -GPU_DEVICE_ORDINAL -HIP_VISIBLE_DEVICES -CUDA_VISIBLE_DEVICES"},
		{"AMD without identifier", []Target{target(odd.Devices[0])}, job.UUIDs, odd,
			"NVIDIA_VISIBLE_DEVICES=void ROCR_VISIBLE_DEVICES=0 -GPU_DEVICE_ORDINAL -HIP_VISIBLE_DEVICES -CUDA_VISIBLE_DEVICES"},
		{"AMD with NVIDIA", []Target{target(both.Devices[4])}, job.AutoIDs, both,
			"NVIDIA_VISIBLE_DEVICES=void CUDA_VISIBLE_DEVICES=-1 ROCR_VISIBLE_DEVICES=1 -GPU_DEVICE_ORDINAL HIP_VISIBLE_DEVICES=0"},
		{"both vendors", []Target{target(both.Devices[0]), target(both.Devices[4]), target(both.Devices[3])}, job.AutoIDs, both,
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES=GPU-000000a0-aaaa-bbbb-cccc-0123456789ab ROCR_VISIBLE_DEVICES=1,0 -GPU_DEVICE_ORDINAL HIP_VISIBLE_DEVICES=0,1"},
		{"Intel", []Target{target(intel.Devices[1])}, job.AutoIDs, intel,
			"NVIDIA_VISIBLE_DEVICES=void ZE_AFFINITY_MASK=1 -ZE_ENABLE_PCI_ID_DEVICE_ORDER -ONEAPI_DEVICE_SELECTOR"},
		{"NVIDIA with Intel", []Target{target(nvidia.Devices[0])}, job.AutoIDs, gpu.Machine{Devices: append(intel.Devices, nvidia.Devices...)},
			"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES=GPU-000000a0-aaaa-bbbb-cccc-0123456789ab ZE_AFFINITY_MASK=65535"},
		{"Ascend sorts", []Target{target(ascend.Devices[3]), target(ascend.Devices[1])}, job.AutoIDs, ascend,
			"NVIDIA_VISIBLE_DEVICES=void ASCEND_RT_VISIBLE_DEVICES=1,3 -ASCEND_DEVICE_ID"},
	} {
		vars := TargetVars(c.targets, c.ids, c.machine)
		var words []string
		for i, v := range vars {
			if slices.ContainsFunc(vars[:i], func(o Var) bool { return o.Name == v.Name }) {
				t.Errorf("%s: %s is written twice", c.name, v.Name)
			}
			if v.Unset {
				words = append(words, "-"+v.Name)
			} else {
				words = append(words, v.Name+"="+v.Value)
			}
		}
		if got := strings.Join(words, " "); got != c.want+end {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want+end)
		}
	}
}

// TestWrittenIsRead: for every choice and form, and any inherited variables, a program sees exactly the targets in
// order, and Limit leaves exactly the targets.
func TestWrittenIsRead(t *testing.T) {
	inherited := Env{"CUDA_VISIBLE_DEVICES=1,1", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "ROCR_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=9",
		"GPU_DEVICE_ORDINAL=7", "NVIDIA_VISIBLE_DEVICES=all", "VISIBLE_DEVICES=3", "HCQ_VISIBLE_DEVICES=2", "PATH=/bin"}
	random := rand.New(rand.NewPCG(1, 2))
	for _, m := range []gpu.Machine{same(gpu.NVIDIA, 1), same(gpu.NVIDIA, 16), mixed(), bothVendors(), split(2, 0, 1), eight()} {
		for range 200 {
			var all []Target
			for _, d := range m.Devices {
				switch {
				case d.Vendor == gpu.NVIDIA && d.UsesMIG():
					all = append(all, slice(d, random.IntN(len(d.MIG))))
				case d.Vendor == gpu.NVIDIA:
					all = append(all, target(d))
				}
			}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			targets := all[:random.IntN(len(all)+1)]
			if len(targets) > 0 && targets[0].MIG {
				targets = targets[:1]
			}
			for _, ids := range []job.IDs{job.AutoIDs, job.UUIDs, job.IndexIDs} {
				checkWritten(t, m, targets, apply(inherited, TargetVars(targets, ids, m)))
			}
		}
	}
}

func checkWritten(t *testing.T, m gpu.Machine, targets []Target, env Env) {
	t.Helper()
	if t.Failed() {
		return
	}
	v := CUDA(env, m)
	wellFormed(t, m, v)
	var want, got []gpu.UUID
	for _, d := range targets {
		want = append(want, d.UUID)
	}
	for _, e := range v.Visible {
		got = append(got, e.UUID)
	}
	if !slices.Equal(got, want) || len(v.Notes) > 0 {
		t.Errorf("%v: visible %v notes %v, want %v", env, got, v.Notes, want)
	}
	hidden, notes := HiddenDevices(env, m)
	for _, d := range m.Devices {
		if len(d.MIG) == 0 && (hidden[d.UUID] == "") != slices.Contains(want, d.UUID) {
			t.Errorf("%v: Limit says %q of %s, targets %v", env, hidden[d.UUID], d.UUID, want)
		}
		for _, s := range d.MIG {
			if (hidden[s.UUID] == "") != slices.Contains(want, s.UUID) {
				t.Errorf("%v: Limit says %q of %s, targets %v", env, hidden[s.UUID], s.UUID, want)
			}
		}
	}
	if len(notes) > 0 {
		t.Errorf("%v: Limit notes %v", env, notes)
	}
}

func TestVariablesCoverWhatIsWritten(t *testing.T) {
	names := Variables()
	m := bothVendors()
	for _, targets := range [][]Target{nil, {target(m.Devices[0])}, {target(m.Devices[3])}} {
		for _, v := range TargetVars(targets, job.AutoIDs, m) {
			if !slices.Contains(names, v.Name) {
				t.Errorf("%s is written but not in Variables", v.Name)
			}
		}
	}
}

// TestWriteWithASickGPU: CUDA may not count a lost or split GPU as NVML does, so numbers would mean another device.
func TestWriteWithASickGPU(t *testing.T) {
	value := func(m gpu.Machine, ids job.IDs) string {
		vars := TargetVars([]Target{target(m.Devices[1])}, ids, m)
		got, _ := apply(nil, vars).Lookup("CUDA_VISIBLE_DEVICES")
		return got
	}
	healthy, lost, divided := same(gpu.NVIDIA, 2), same(gpu.NVIDIA, 2), split(2, 0)
	lost.Devices[0].Problem = "GPU is lost"
	if got := value(healthy, job.AutoIDs); got != "1" {
		t.Errorf("with a healthy GPU: %q", got)
	}
	for name, m := range map[string]gpu.Machine{"lost": lost, "split": divided} {
		if got, want := value(m, job.AutoIDs), string(m.Devices[1].UUID); got != want {
			t.Errorf("with a %s GPU: %q, want %q", name, got, want)
		}
		if got := value(m, job.IndexIDs); got != "1" {
			t.Errorf("numbers asked for with a %s GPU: %q", name, got)
		}
	}
}

// TestWriteOver: numbers that tinygrad would take from the caller's DEV become those of the job.
func TestWriteOver(t *testing.T) {
	m, mig := bothVendors(), split(1, 0)
	nvidia, amd := []Target{target(m.Devices[2]), target(m.Devices[0])}, []Target{target(m.Devices[4])}
	for _, c := range []struct {
		name    string
		dev     string
		targets []Target
		want    string // "-" where it is removed
	}{
		{"numbers", "1+NV", nvidia, "2,0+NV"},
		{"interface and renderer", "PCI:0-1+AMD:LLVM", amd, "PCI:1+AMD:LLVM"},
		{"small letters", "0+nv", nvidia, "2,0+nv"},
		{"another vendor's", "PCI:0+AMD:LLVM", nvidia, "2,0+NV"},
		{"of both the one it named", "0+AMD", append(slices.Clone(nvidia), amd...), "1+AMD"},
		{"a vendor without a backend", "0+AMD", []Target{{Vendor: gpu.Intel}}, "-"},
		{"no GPU", "0+NV", nil, "CPU"},
		{"a MIG device has no number", "0+NV", []Target{slice(mig.Devices[0], 1)}, "CUDA"},
		{"CUDA reads the variable", "0+CUDA:PTX", nvidia, "CUDA:PTX"},
		{"CUDA for an AMD GPU", "0+CUDA", amd, "1+AMD"},
		{"no numbers", "PCI+AMD", amd, "PCI+AMD"},
		{"a backend alone", "NV", amd, "NV"},
		{"something else entirely", "/dev/sda1+x", nvidia, "/dev/sda1+x"},
		{"empty", "", nvidia, ""},
	} {
		env := apply(Env{"DEV=" + c.dev}, writeOver(Env{"DEV=" + c.dev}, c.targets, job.AutoIDs, m))
		got, there := env.Lookup("DEV")
		if !there {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s: DEV=%s becomes %s, want %s", c.name, c.dev, got, c.want)
		}
	}
	env := apply(nil, writeOver(Env{"DEV=0+NV"}, nvidia, job.AutoIDs, m))
	if v := Tinygrad(env, m, gpu.NVIDIA, ""); indices(m, v) != "2,0" {
		t.Errorf("written and read: %+v", v)
	}
}
