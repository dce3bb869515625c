package visible

import (
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

func TestLevelZero(t *testing.T) {
	i4 := same(gpu.Intel, 4)
	for _, c := range []struct {
		env         Env
		want, notes string
	}{
		{nil, "0,1,2,3", ""},
		{Env{"ZE_AFFINITY_MASK="}, "0,1,2,3", "no-mask"},
		{Env{"ZE_AFFINITY_MASK=default"}, "0,1,2,3", "no-mask"},
		{Env{"ZE_AFFINITY_MASK=3,1"}, "1,3", ""},
		{Env{"ZE_AFFINITY_MASK=0,9,2"}, "0,2", "entry-skipped"},
		{Env{"ZE_AFFINITY_MASK=-1"}, "", "entry-skipped"},
		{Env{"ZE_AFFINITY_MASK=1,1"}, "1", ""},
		{Env{"ZE_AFFINITY_MASK=65535"}, "", ""},
		{Env{"ZE_AFFINITY_MASK=0x1, 02x"}, "1,2", ""},
		{Env{"ZE_AFFINITY_MASK=1,"}, "1", ""},
		{Env{"ZE_AFFINITY_MASK=a,1"}, "", "program-fails"},
		{Env{"ZE_AFFINITY_MASK=99999999999999999999"}, "", "program-fails"},
		{Env{"ZE_AFFINITY_MASK=0.0,2", "ZE_FLAT_DEVICE_HIERARCHY=FLAT"}, "2", "tile-ignored"},
		{Env{"ZE_AFFINITY_MASK=0.0,2", "ZE_FLAT_DEVICE_HIERARCHY=COMBINED"}, "2", "tile-ignored"},
		{Env{"ZE_AFFINITY_MASK=0.0,2", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"}, "0,2", ""},
		{Env{"ZE_AFFINITY_MASK=0.1", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"}, "0", "undocumented"},
		{Env{"ZE_AFFINITY_MASK=0.0,2"}, "2", "tile-ignored undocumented"},
	} {
		v := LevelZero(c.env, i4)
		wellFormed(t, i4, v)
		if got := indices(i4, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%v: visible %q notes %q, want %q and %q", c.env, got, codes(v), c.want, c.notes)
		}
	}
	turned := same(gpu.Intel, 2)
	turned.Devices[0].PCI, turned.Devices[1].PCI = turned.Devices[1].PCI, turned.Devices[0].PCI
	for _, c := range []struct {
		env  Env
		want string
	}{
		{nil, "0,1"},
		{Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER=0"}, "0,1"},
		{Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER="}, "0,1"},
		{Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"}, "1,0"},
		{Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER=1", "ZE_AFFINITY_MASK=1,0"}, "1,0"},
		{Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER=1", "ZE_AFFINITY_MASK=0"}, "1"},
	} {
		if got := indices(turned, LevelZero(c.env, turned)); got != c.want {
			t.Errorf("%v: visible %q, want %q", c.env, got, c.want)
		}
	}
	written := apply(Env{"ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"}, TargetVars([]Target{target(turned.Devices[1])}, job.AutoIDs, turned))
	if got := indices(turned, LevelZero(written, turned)); got != "1" {
		t.Errorf("written and read: %q", got)
	}
	if left, why, _ := shownBy(Env{"ZE_AFFINITY_MASK=2"}, i4); left != "2" || why != "ZE_AFFINITY_MASK=2 hides it" {
		t.Errorf("Limit leaves %q because %q", left, why)
	}
}

func TestSYCL(t *testing.T) {
	m := same(gpu.Intel, 3)
	m.Devices = append(m.Devices, same(gpu.NVIDIA, 2).Devices...)
	for i := range 3 {
		m.Devices[i].UUID = gpu.UUID("intel-" + string(rune('a'+i)))
	}
	for _, c := range []struct {
		env         Env
		want, notes string
	}{
		{nil, "0,1,2,0,1", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:*"}, "0,1,2", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:gpu"}, "0,1,2", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:0,2"}, "0,2", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=Level_Zero:1;CUDA:GPU"}, "1,0,1", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=*:0"}, "0,0", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=*:cpu"}, "", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=opencl:*"}, "", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:*;!level_zero:1"}, "0,2", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=!cuda:*"}, "0,1,2", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:1.0"}, "1", ""},
		{Env{"ONEAPI_DEVICE_SELECTOR=!level_zero:1.0"}, "0,1,2,0,1", "undocumented"},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:*;!level_zero:1.0,2"}, "0,1", "undocumented"},
		{Env{"SYCL_DEVICE_FILTER=level_zero:gpu:0"}, "0,1,2,0,1", "other-variable"},
		{Env{"SYCL_DEVICE_FILTER=cuda", "ONEAPI_DEVICE_SELECTOR=level_zero:0"}, "0", "other-variable"},
		{Env{"ONEAPI_DEVICE_SELECTOR=!cuda:*;level_zero:0"}, "", "selector-invalid"},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:gpu:0"}, "", "selector-invalid"},
		{Env{"ONEAPI_DEVICE_SELECTOR=gpu"}, "", "selector-invalid"},
		{Env{"ONEAPI_DEVICE_SELECTOR=metal:0"}, "", "selector-invalid"},
		{Env{"ONEAPI_DEVICE_SELECTOR=cuda:first"}, "", "selector-invalid"},
		{Env{"ONEAPI_DEVICE_SELECTOR="}, "0,1,2,0,1", "no-mask undocumented"},
		{Env{"ONEAPI_DEVICE_SELECTOR=level_zero:0;cuda:0", "ZE_AFFINITY_MASK=2", "CUDA_VISIBLE_DEVICES=1"}, "2,1", ""},
	} {
		v := SYCL(c.env, m)
		wellFormed(t, m, v)
		if got := indices(m, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%v: visible %q notes %q, want %q and %q", c.env, got, codes(v), c.want, c.notes)
		}
	}
	both := bothVendors()
	if got := indices(both, SYCL(Env{"ONEAPI_DEVICE_SELECTOR=hip:1"}, both)); got != "1" {
		t.Errorf("hip:1 shows %q", got)
	}
	if v := SYCL(apply(nil, TargetVars(nil, job.AutoIDs, m)), m); len(v.Visible) > 0 {
		t.Errorf("a job without GPU sees %v", v.Visible)
	}
}

func TestAscend(t *testing.T) {
	a8 := same(gpu.Ascend, 8)
	for _, c := range []struct{ value, want, notes string }{
		{"1, 2,3", "1", "not-a-number"},
		{"1,3,8", "1,3", "invalid-index"},
		{"0,2,7", "0,2,7", ""},
		{"", "", "empty-list"},
		{"3,1", "3", "undocumented"},
		{"1,1", "1", "duplicate undocumented"},
		{"1x,2", "1", "not-a-number"},
		{"-1", "", "not-a-number"},
		{"0,", "0", "not-a-number"},
		{"99999999999999999999", "", "invalid-index"},
	} {
		v := Ascend(Env{"ASCEND_RT_VISIBLE_DEVICES=" + c.value}, a8)
		wellFormed(t, a8, v)
		if got := indices(a8, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%q: visible %q notes %q, want %q and %q", c.value, got, codes(v), c.want, c.notes)
		}
	}
	for _, c := range []struct {
		env         Env
		want, notes string
	}{
		{Env{"ASCEND_RT_VISIBLE_DEVICES=1,3", "ASCEND_DEVICE_ID=1"}, "1,3", ""},
		{Env{"ASCEND_RT_VISIBLE_DEVICES=1,3", "ASCEND_DEVICE_ID=3"}, "1,3", "invalid-index"},
		{Env{"ASCEND_RT_VISIBLE_DEVICES=1,3", "ASCEND_DEVICE_ID=x"}, "1,3", "not-a-number"},
		{Env{"ASCEND_RT_VISIBLE_DEVICES=", "ASCEND_DEVICE_ID=3"}, "", "empty-list"},
		{Env{"ASCEND_DEVICE_ID=7"}, "0,1,2,3,4,5,6,7", ""},
		{Env{"ASCEND_DEVICE_ID=8"}, "0,1,2,3,4,5,6,7", "invalid-index"},
	} {
		v := Ascend(c.env, a8)
		wellFormed(t, a8, v)
		if got := indices(a8, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%v: visible %q notes %q, want %q and %q", c.env, got, codes(v), c.want, c.notes)
		}
	}
	if got := indices(a8, Ascend(nil, a8)); got != "0,1,2,3,4,5,6,7" {
		t.Errorf("unset shows %q", got)
	}
	if left, _, _ := shownBy(Env{"ASCEND_RT_VISIBLE_DEVICES=1,3"}, a8); left != "1,3" {
		t.Errorf("Limit leaves %q", left)
	}
	written := apply(nil, TargetVars([]Target{target(a8.Devices[5]), target(a8.Devices[2])}, job.AutoIDs, a8))
	if got := indices(a8, Ascend(written, a8)); got != "2,5" {
		t.Errorf("written and read: %q", got)
	}
}

func TestTinygrad(t *testing.T) {
	m := bothVendors() // NVIDIA 0, 1, 2 and AMD 0, 1
	for _, c := range []struct {
		version     string
		vendor      gpu.Vendor
		env         Env
		want, notes string
	}{
		{"0.9.2", gpu.NVIDIA, set("2,0"), "2,0", ""},
		{"v0.11.0", gpu.NVIDIA, append(set("2"), "VISIBLE_DEVICES=1"), "1", ""},
		{"0.11.0", gpu.AMD, Env{"HIP_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=0"}, "1", ""},
		{"0.11.0", gpu.NVIDIA, set("GPU-000000a1"), "", "program-fails"},
		{"0.11.0", gpu.NVIDIA, set(""), "0,1,2", ""},
		{"0.11.0", gpu.NVIDIA, set("-1"), "2", "undocumented"},
		{"0.11.0", gpu.NVIDIA, set("7"), "", "program-fails"},
		{"0.11.0", gpu.NVIDIA, set("1,1"), "1", "duplicate"},
		{"0.12.0", gpu.NVIDIA, Env{"HCQ_VISIBLE_DEVICES=1"}, "1", ""},
		{"0.12.0", gpu.AMD, Env{"HIP_VISIBLE_DEVICES=1"}, "0,1", "other-variable"},
		{"0.13.0", gpu.NVIDIA, Env{"HCQ_VISIBLE_DEVICES=1"}, "", "program-fails"},
		{"0.13.0", gpu.AMD, Env{"DEV=1+AMD"}, "1", ""},
		{"0.13.0", gpu.AMD, Env{"DEV=PCI:1,0+AMD:LLVM"}, "1,0", ""},
		{"0.13.0", gpu.NVIDIA, Env{"DEV=0-1+nv"}, "0,1", ""},
		{"0.13.0", gpu.NVIDIA, Env{"DEV=0-9+NV"}, "", "program-fails"},
		{"0.13.0", gpu.NVIDIA, Env{"DEV=1+AMD"}, "0,1,2", ""},
		{"0.13.0", gpu.AMD, Env{"DEV=PCI+AMD"}, "0,1", ""},
		{"", gpu.AMD, Env{"DEV=AMD"}, "0,1", ""},
		{"1.0.0", gpu.NVIDIA, set("1"), "0,1,2", "other-variable"},
		{"0.13.0", gpu.NVIDIA, Env{"NV=1"}, "", "program-fails"},
		{"0.13.0", gpu.AMD, Env{"CUDA=01"}, "", "program-fails"},
		{"0.13.0", gpu.AMD, Env{"AMD=1", "DEV=1+AMD"}, "1", ""},
		{"0.13.0", gpu.AMD, Env{"AMD=0"}, "0,1", ""},
		{"0.12.0", gpu.AMD, Env{"AMD=1"}, "0,1", ""},
		{"", gpu.NVIDIA, append(set("2,0"), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "DEV=CUDA"), "2,0", "other-variable"},
		{"", gpu.NVIDIA, append(set("1"), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "DEV=0+cuda:PTX"), "1", "other-variable undocumented"},
		{"0.11.0", gpu.NVIDIA, append(set("GPU-000000a1"), "CUDA=1"), "1", "other-variable"},
		{"", gpu.AMD, Env{"DEV=CUDA"}, "0,1", ""},
	} {
		v := Tinygrad(c.env, m, c.vendor, c.version)
		wellFormed(t, m, v)
		if got := indices(m, v); got != c.want || codes(v) != c.notes {
			t.Errorf("%s %v: visible %q notes %q, want %q and %q", c.version, c.env, got, codes(v), c.want, c.notes)
		}
	}
}

func FuzzOthers(f *testing.F) {
	for _, s := range []string{"", "0", "0x1,-1, 2", "0.1,2", "level_zero:0;!cuda:*", "1-2+NV", "PCI:0+AMD", "*:*", "!", "-9-9", ";", "0-9223372036854775807+AMD"} {
		f.Add(s, uint8(len(s)))
	}
	f.Fuzz(func(t *testing.T, value string, shape uint8) {
		m := bothVendors()
		intel := same(gpu.Intel, 2)
		for i := range intel.Devices {
			intel.Devices[i].UUID = gpu.UUID("intel-" + string(rune('a'+i)))
		}
		m.Devices = append(m.Devices, intel.Devices...)
		hierarchy := []string{"FLAT", "COMPOSITE", ""}[shape%3]
		env := Env{"ZE_AFFINITY_MASK=" + value, "ZE_FLAT_DEVICE_HIERARCHY=" + hierarchy, "ONEAPI_DEVICE_SELECTOR=" + value,
			"ASCEND_RT_VISIBLE_DEVICES=" + value, "VISIBLE_DEVICES=" + value, "DEV=" + value}
		wellFormed(t, m, LevelZero(env, m))
		wellFormed(t, m, SYCL(env, m))
		wellFormed(t, same(gpu.Ascend, 3), Ascend(env, same(gpu.Ascend, 3)))
		for _, version := range []string{"0.11", "0.12", "0.13", value} {
			wellFormed(t, m, Tinygrad(env, m, gpu.NVIDIA, version))
			wellFormed(t, m, Tinygrad(env, m, gpu.AMD, version))
		}
		Allocation(Env{"SLURM_JOB_ID=" + value})
		HiddenDevices(Env{"SLURM_JOB_ID=1", "SLURM_JOB_GPUS=" + value, "CUDA_VISIBLE_DEVICES=" + value}, m)
	})
}
