package visible

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// held writes the GPUs of a container as "1,3"; a GPU with MIG devices as "0[1 2]".
func held(m gpu.Machine) string {
	var out []string
	for _, d := range devicesOf(m, gpu.NVIDIA) {
		name := fmt.Sprint(d.Index)
		if len(d.MIG) > 0 {
			var slices []string
			for _, s := range d.MIG {
				slices = append(slices, fmt.Sprint(s.Index))
			}
			name += "[" + strings.Join(slices, " ") + "]"
		}
		out = append(out, name)
	}
	return strings.Join(out, ",")
}

// given is a container's variable, and further variables.
func given(value string, more ...string) Env {
	return append(Env{"NVIDIA_VISIBLE_DEVICES=" + value}, more...)
}

type containerCase struct {
	name    string
	mark    string // D NVIDIA's documentation, S the source of the runtimes, O an issue
	env     Env
	machine gpu.Machine
	held    string
	visible string // what CUDA then shows, by the host's index
	notes   string
}

func containerCases() []containerCase {
	g4, u8, mig := same(gpu.NVIDIA, 4), eight(), split(2, 0)
	slice := string(mig.Devices[0].MIG[1].UUID)
	return []containerCase{
		{"unset", "D", nil, g4, "", "", "container"},
		{"empty", "D", given(""), g4, "", "", "container"},
		{"commas", "S", given(" , "), g4, "", "", "container"},
		{"void", "D", given("void"), g4, "", "", "container"},
		{"void in a list", "S", given("0,void"), g4, "", "", "container"},
		{"none", "D", given("none"), g4, "", "", "container"},
		{"none in a list", "S", given("1,none"), g4, "", "", "container"},
		{"all", "D", given("all"), g4, "0,1,2,3", "0,1,2,3", ""},
		{"all in a list", "S", given("1,all"), g4, "0,1,2,3", "0,1,2,3", ""},
		{"ALL", "S", given("ALL"), g4, "0,1,2,3", "0,1,2,3", "undocumented"},
		{"old image", "S", Env{"CUDA_VERSION=8.0.61"}, g4, "0,1,2,3", "0,1,2,3", "container"},
		{"newer image", "S", Env{"CUDA_VERSION=12.4", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"}, g4, "", "", "container"},
		{"old image, void", "S", given("void", "CUDA_VERSION=8.0"), g4, "", "", "container"},
		{"first", "D", given("0"), g4, "0", "0", ""},
		{"two", "D", given("0,1"), g4, "0,1", "0,1", ""},
		{"renumbered", "O", given("2,3"), g4, "2,3", "2,3", "container-renumbered"},
		{"blanks", "S", given(" 2 , 3 "), g4, "2,3", "2,3", "container-renumbered"},
		{"twice", "S", given("2,2"), g4, "2", "2", "container-renumbered"},
		{"order", "S", given("3,1"), g4, "1,3", "1,3", "container-order container-renumbered"},
		{"host numbers inside", "O", given("2,3", "CUDA_VISIBLE_DEVICES=2,3"), g4, "2,3", "", "container-renumbered invalid-index"},
		{"numbers inside", "O", given("2,3", "CUDA_VISIBLE_DEVICES=1"), g4, "2,3", "3", "container-renumbered"},
		{"order inside", "D", given("2,3", "CUDA_VISIBLE_DEVICES=1,0"), g4, "2,3", "3,2", "container-renumbered"},
		{"identifier", "D", given(string(u8.Devices[5].UUID)), u8, "5", "5", "container-renumbered"},
		{"identifier in small letters", "S", given(strings.ToLower(string(u8.Devices[0].UUID))), u8, "0", "0", ""},
		{"identifier on both sides", "D", given(string(u8.Devices[5].UUID), "CUDA_VISIBLE_DEVICES=GPU-472ea263"), u8, "5", "5", "container-renumbered"},
		{"shortened identifier", "S", given("GPU-472ea263"), u8, "", "", "container-fails undocumented"},
		{"identifier of nothing", "S", given("GPU-11111111-0000-0000-0000-000000000000"), u8, "", "", "container-fails"},
		{"no such number", "S", given("4"), g4, "", "", "container-fails"},
		{"one of them wrong", "S", given("0,9"), g4, "", "", "container-fails"},
		{"negative", "S", given("-1"), g4, "", "", "container-fails"},
		{"a word", "S", given("None"), g4, "", "", "container-fails"},
		{"range", "S", given("0-2"), g4, "", "", "container-fails"},
		{"no GPU at all", "S", given("0"), gpu.Machine{}, "", "", "container-fails"},
		{"PCI address", "S", given("0000:12:00.0"), g4, "2", "2", "undocumented container-renumbered"},
		{"long PCI address", "S", given("00000000:12:00.0"), g4, "2", "2", "undocumented container-renumbered"},
		{"slice by number", "D", given("0:1"), mig, "0[1]", "0/1", "mig-first-slice"},
		{"slices and a GPU", "S", given("0:2,0:0,1"), mig, "0[0 2],1", "0/0", "mig-first-slice mig-one-slice undocumented"},
		{"slice by identifier", "D", given(slice), mig, "0[1]", "0/1", "mig-first-slice"},
		{"slice, older form", "O", given("MIG-" + string(mig.Devices[0].UUID) + "/1/2"), mig, "0[1]", "0/1", "undocumented mig-first-slice"},
		{"no such slice", "S", given("0:7"), mig, "", "", "container-fails"},
		{"slice of a whole GPU", "S", given("1:0"), mig, "", "", "container-fails"},
		{"split GPU by number", "S", given("0"), mig, "0", "", "undocumented mig-no-slice"},
		{"all with slices", "S", given("all"), split(1, 0), "0[0 1 2]", "0/0", "mig-first-slice"},
		{"twice in the environment", "S", append(given("1"), given("2")...), g4, "1", "1", "variable-twice container-renumbered"},
	}
}

func TestContainer(t *testing.T) {
	for _, c := range containerCases() {
		t.Run(c.name, func(t *testing.T) {
			before := fmt.Sprint(c.machine)
			inside, notes := InsideContainer(c.env, c.machine)
			v := CUDA(c.env, inside)
			v.Notes = append(append([]Note{}, notes...), v.Notes...)
			wellFormed(t, inside, v)
			if got := held(inside); got != c.held {
				t.Errorf("%q: the container has %q, want %q", c.env, got, c.held)
			}
			if got := indices(inside, v); got != c.visible || codes(v) != c.notes {
				t.Errorf("%q: visible %q notes %q, want %q and %q\n%v", c.env, got, codes(v), c.visible, c.notes, v.Notes)
			}
			if fmt.Sprint(c.machine) != before {
				t.Error("the machine was changed")
			}
		})
	}
}

// TestContainerLeavesOthers: the variable does not apply to devices of other vendors.
func TestContainerLeavesOthers(t *testing.T) {
	both := bothVendors()
	inside, _ := InsideContainer(given("1"), both)
	if got := len(devicesOf(inside, gpu.AMD)); got != len(devicesOf(both, gpu.AMD)) {
		t.Errorf("%d AMD devices are left", got)
	}
}

func FuzzContainer(f *testing.F) {
	for _, c := range containerCases() {
		value, _ := c.env.Lookup("NVIDIA_VISIBLE_DEVICES")
		f.Add(value)
	}
	m := split(3, 1)
	f.Fuzz(func(t *testing.T, value string) {
		inside, notes := InsideContainer(given(value), m)
		again, _ := InsideContainer(given(value+",,"), m)
		if held(again) != held(inside) && !strings.Contains(value, "\x00") {
			t.Errorf("%q: %q, with empty entries %q", value, held(inside), held(again))
		}
		for _, d := range inside.Devices {
			whole, _, ok := m.FindDevice(d.UUID)
			if !ok || len(d.MIG) > len(whole.MIG) || d.Index != whole.Index {
				t.Errorf("%q: %+v is no part of the machine", value, d)
			}
		}
		v := CUDA(given(value), inside)
		v.Notes = append(append([]Note{}, notes...), v.Notes...)
		wellFormed(t, inside, v)
	})
}

func TestMPS(t *testing.T) {
	g4 := same(gpu.NVIDIA, 4)
	pipes := "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"
	for _, c := range []struct {
		env   Env
		notes string
	}{
		{append(set("0,2"), pipes), "mps-numbers"},
		{append(set("GPU-000000a1"), pipes), ""},
		{append(set("-1"), pipes), ""},
		{Env{pipes}, "mps-numbers"},
		{append(set("0"), "CUDA_MPS_PIPE_DIRECTORY="), ""},
		{set("0,2"), ""},
	} {
		if v := CUDA(c.env, g4); codes(v) != c.notes {
			t.Errorf("%q: notes %v, want %q", c.env, v.Notes, c.notes)
		}
	}
}

func TestGiven(t *testing.T) {
	g4, amd := same(gpu.NVIDIA, 4), same(gpu.AMD, 4)
	job := func(more ...string) Env { return append(Env{"SLURM_JOB_ID=12"}, more...) }
	for _, c := range []struct {
		name          string
		env           Env
		machine       gpu.Machine
		visible, note string
	}{
		{"no job", Env{"SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"}, g4, "0,1", ""},
		{"counted within", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"), g4, "2,3", "slurm-relative"},
		{"a step's list", job("SLURM_JOB_GPUS=0-3", "SLURM_STEP_GPUS=3", "CUDA_VISIBLE_DEVICES=0"), g4, "3", "slurm-relative"},
		{"numbers of the machine", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=2,3"), g4, "2,3", ""},
		{"the same in both", job("SLURM_JOB_GPUS=0,1", "CUDA_VISIBLE_DEVICES=0,1"), g4, "0,1", ""},
		{"no variable", job("SLURM_JOB_GPUS=1,2"), g4, "1,2", "slurm-relative"},
		{"identifiers", job("SLURM_JOB_GPUS=0", "CUDA_VISIBLE_DEVICES=GPU-000000a2"), g4, "2", ""},
		{"nothing given", job(), g4, "0,1,2,3", "slurm-no-gpus"},
		{"no fit", job("SLURM_JOB_GPUS=7", "CUDA_VISIBLE_DEVICES=0"), g4, "0", "slurm-list"},
		{"seen from inside", job("SLURM_JOB_GPUS=4,5,6,7", "CUDA_VISIBLE_DEVICES=1"), g4, "1", ""},
		{"ROCR within", job("SLURM_JOB_GPUS=2,3", "ROCR_VISIBLE_DEVICES=0"), amd, "2", "slurm-relative"},
		{"ROCR numbers of the machine", job("SLURM_JOB_GPUS=2,3", "ROCR_VISIBLE_DEVICES=3,2"), amd, "3,2", ""},
		{"HIP numbers of the machine", job("SLURM_JOB_GPUS=2,3", "HIP_VISIBLE_DEVICES=3"), amd, "3", ""},
		{"ROCR within, then HIP", job("SLURM_JOB_GPUS=1,2,3", "ROCR_VISIBLE_DEVICES=0,2", "HIP_VISIBLE_DEVICES=1"), amd, "3", "slurm-relative"},
		{"HIP within", job("SLURM_JOB_GPUS=2,3", "HIP_VISIBLE_DEVICES=1"), amd, "3", "slurm-relative"},
	} {
		inside, notes := InsideAllocation(c.env, c.machine)
		v := CUDA(c.env, inside)
		if len(devicesOf(c.machine, gpu.AMD)) > 0 {
			v = HIP(c.env, inside)
		}
		if got := indices(inside, v); got != c.visible || codes(View{Notes: notes}) != c.note {
			t.Errorf("%s: visible %q notes %q, want %q and %q", c.name, got, codes(View{Notes: notes}), c.visible, c.note)
		}
	}
}

func TestDeciding(t *testing.T) {
	for _, c := range []struct {
		runtime      string
		env          Env
		wins, beaten []string
	}{
		{"cuda", nil, nil, nil},
		{"cuda", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=2"}, []string{"CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, nil},
		{"cuda", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=GPU-1"}, []string{"CUDA_VISIBLE_DEVICES=GPU-1"}, nil},
		{"hip", Env{"CUDA_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=2"}, []string{"HIP_VISIBLE_DEVICES=2"}, []string{"CUDA_VISIBLE_DEVICES=1"}},
		{"hip", Env{"CUDA_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES=2"}, []string{"ROCR_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=1"}, nil},
		{"rocr", Env{"HIP_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES="}, []string{"ROCR_VISIBLE_DEVICES="}, nil},
		{"opencl", Env{"HIP_VISIBLE_DEVICES=1", "GPU_DEVICE_ORDINAL=0"}, []string{"GPU_DEVICE_ORDINAL=0"}, nil},
		{"level_zero", Env{"ZE_AFFINITY_MASK=0", "ONEAPI_DEVICE_SELECTOR=*:gpu"}, []string{"ZE_AFFINITY_MASK=0"}, nil},
		{"sycl", Env{"ZE_AFFINITY_MASK=0", "ONEAPI_DEVICE_SELECTOR=*:gpu"}, []string{"ZE_AFFINITY_MASK=0", "ONEAPI_DEVICE_SELECTOR=*:gpu"}, nil},
		{"ascend", Env{"ASCEND_RT_VISIBLE_DEVICES=0"}, []string{"ASCEND_RT_VISIBLE_DEVICES=0"}, nil},
		{"tinygrad", Env{"DEV=0+NV", "CUDA_VISIBLE_DEVICES=1"}, []string{"DEV=0+NV"}, nil},
		{"tinygrad", Env{"DEV=CUDA", "CUDA_VISIBLE_DEVICES=1"}, []string{"DEV=CUDA", "CUDA_VISIBLE_DEVICES=1"}, nil},
		{"tinygrad:0.12.0", Env{"HCQ_VISIBLE_DEVICES=0", "VISIBLE_DEVICES=1"}, []string{"HCQ_VISIBLE_DEVICES=0"}, nil},
		{"tinygrad:0.11", Env{"CUDA_VISIBLE_DEVICES=0", "VISIBLE_DEVICES=1"}, []string{"VISIBLE_DEVICES=1"}, []string{"CUDA_VISIBLE_DEVICES=0"}},
		{"tinygrad:0.11", Env{"CUDA_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"}, []string{"CUDA_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1"}, nil},
	} {
		wins, beaten := DecidingVariables(c.env, c.runtime, gpu.Machine{}, gpu.Machine{})
		if !slices.Equal(wins, c.wins) || !reflect.DeepEqual(beaten, c.beaten) {
			t.Errorf("%s %q: %q beat %q, want %q and %q", c.runtime, c.env, wins, beaten, c.wins, c.beaten)
		}
	}
}

// TestDecidingFromOutside: devices that a Slurm job or a container takes away are attributed to its variable, and to no
// other.
func TestDecidingFromOutside(t *testing.T) {
	g4 := same(gpu.NVIDIA, 4)
	contained := Env{"NVIDIA_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES=1"}
	job := Env{"SLURM_JOB_ID=5", "SLURM_JOB_GPUS=1,2,3", "CUDA_VISIBLE_DEVICES=0"}
	within := func(env Env, narrow ...func(Env, gpu.Machine) (gpu.Machine, []Note)) gpu.Machine {
		m := g4
		for _, f := range narrow {
			m, _ = f(env, m)
		}
		return m
	}
	both := append(job, "NVIDIA_VISIBLE_DEVICES=2")
	for _, c := range []struct {
		name    string
		runtime string
		env     Env
		inside  gpu.Machine
		want    string
	}{
		{"not in a container", "cuda", contained, g4, "CUDA_VISIBLE_DEVICES=1"},
		{"in a container", "cuda", contained, within(contained, InsideContainer), "NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=1"},
		{"in a container that was given more", "cuda", contained, within(Env{"NVIDIA_VISIBLE_DEVICES=1,2,3"}, InsideContainer), "CUDA_VISIBLE_DEVICES=1"},
		{"in a container that gives all", "cuda", Env{"NVIDIA_VISIBLE_DEVICES=all"}, g4, ""},
		{"HIP in the same container", "hip", contained, within(contained, InsideContainer), "CUDA_VISIBLE_DEVICES=1"},
		{"in the job", "cuda", job, within(job, InsideAllocation), "SLURM_JOB_GPUS=1,2,3 CUDA_VISIBLE_DEVICES=0"},
		{"seen from inside the job", "cuda", job, g4, "CUDA_VISIBLE_DEVICES=0"},
		{"in a container of the job", "cuda", both, within(both, InsideAllocation, InsideContainer), "SLURM_JOB_GPUS=1,2,3 NVIDIA_VISIBLE_DEVICES=2 CUDA_VISIBLE_DEVICES=0"},
	} {
		wins, _ := DecidingVariables(c.env, c.runtime, g4, c.inside)
		if got := strings.Join(wins, " "); got != c.want {
			t.Errorf("%s: decided by %q, want %q", c.name, got, c.want)
		}
	}
}
