package visible

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// shownBy lists what Limit does not hide, written as by indices.
func shownBy(env Env, m gpu.Machine) (left, why string, notes []Note) {
	hidden, notes := HiddenDevices(env, m)
	var names []string
	for _, d := range m.Devices {
		if reason, ok := hidden[d.UUID]; ok {
			why = reason
		} else {
			names = append(names, fmt.Sprintf("%d", d.Index))
		}
		for _, s := range d.MIG {
			if _, ok := hidden[s.UUID]; !ok {
				names = append(names, fmt.Sprintf("%d/%d", d.Index, s.Index))
			}
		}
	}
	return strings.Join(names, ","), why, notes
}

func TestLimit(t *testing.T) {
	g4 := same(gpu.NVIDIA, 4)
	job := func(more ...string) Env { return append(Env{"SLURM_JOB_ID=12"}, more...) }
	for _, c := range []struct {
		name    string
		env     Env
		machine gpu.Machine
		want    string
		why     string
		notes   string
	}{
		{"nothing set", Env{"HOME=/root", "NVIDIA_VISIBLE_DEVICES=none"}, g4, "0,1,2,3", "", ""},
		{"one number", set("1"), g4, "1", "CUDA_VISIBLE_DEVICES=1 hides it", ""},
		{"none", set("-1"), g4, "", "CUDA_VISIBLE_DEVICES=-1 hides it", ""},
		{"empty", set(""), g4, "", "CUDA_VISIBLE_DEVICES= hides it", "empty-list"},
		{"duplicate", set("1,1"), g4, "", "CUDA_VISIBLE_DEVICES=1,1 hides it", "duplicate"},
		{"identifier", set("GPU-000000a2"), g4, "2", "CUDA_VISIBLE_DEVICES=GPU-000000a2 hides it", ""},
		{"split GPU by number", set("0"), split(2, 0), "0,0/0,0/1,0/2", "CUDA_VISIBLE_DEVICES=0 hides it", "undocumented"},
		{"several MIG devices", set("MIG-00000000-0000-5000-8000-000000000000,MIG-01000000-0000-5000-8000-000000000000"), split(2, 0), "0,0/0,0/1",
			"CUDA_VISIBLE_DEVICES=MIG-00000000-0000-5000-8000-000000000000,MIG-01000000-0000-5000-8000-00000000000… hides it", ""},
		{"number of the fastest", set("0"), mixed(), "1", "CUDA_VISIBLE_DEVICES=0 hides it", "fastest-first-guess"},
		{"order alone is no mask", Env{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, mixed(), "0,1", "", ""},

		{"Slurm, all devices shown", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"), g4, "2,3", "SLURM_JOB_GPUS=2,3 hides it", ""},
		{"Slurm, absolute", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=2,3"), g4, "2,3", "SLURM_JOB_GPUS=2,3 hides it", ""},
		{"Slurm, narrowed absolutely", job("SLURM_JOB_GPUS=1,2", "CUDA_VISIBLE_DEVICES=2"), g4, "2", "SLURM_JOB_GPUS=1,2 hides it", ""},
		{"Slurm, narrowed relatively", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=1"), g4, "3", "CUDA_VISIBLE_DEVICES=1 hides it", ""},
		{"Slurm, hidden by hand", job("SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=-1"), g4, "", "CUDA_VISIBLE_DEVICES=-1 hides it", ""},
		{"Slurm, step before job", job("SLURM_JOB_GPUS=2,3", "SLURM_STEP_GPUS=3"), g4, "3", "SLURM_STEP_GPUS=3 hides it", ""},
		{"Slurm, ranges", job("SLURM_JOB_GPUS=0-1,3"), g4, "0,1,3", "SLURM_JOB_GPUS=0-1,3 hides it", ""},
		{"Slurm with device cgroup", job("SLURM_JOB_GPUS=6,7", "CUDA_VISIBLE_DEVICES=1"), same(gpu.NVIDIA, 2), "1", "CUDA_VISIBLE_DEVICES=1 hides it", ""},
		{"Slurm, identifiers", job("SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=MIG-00000000-0000-5000-8000-000000000000"), split(2, 0), "0,0/0",
			"CUDA_VISIBLE_DEVICES=MIG-00000000-0000-5000-8000-000000000000 hides it", ""},
		{"Slurm without GPU variables", job(), g4, "0,1,2,3", "", "slurm-no-gpus"},
		{"Slurm, no GPU in the machine", job(), gpu.Machine{}, "", "", ""},
		{"Slurm, its old word for none", job("CUDA_VISIBLE_DEVICES=NoDevFiles"), g4, "", "CUDA_VISIBLE_DEVICES=NoDevFiles hides it", "container-word"},
		{"Slurm, list of another machine", job("SLURM_JOB_GPUS=9"), g4, "0,1,2,3", "", "slurm-list"},
		{"Slurm, unreadable list", job("SLURM_JOB_GPUS=a", "CUDA_VISIBLE_DEVICES=1"), g4, "1", "CUDA_VISIBLE_DEVICES=1 hides it", "slurm-list"},
		{"Slurm, both vendors, list for NVIDIA", job("SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "HIP_VISIBLE_DEVICES=-1"), bothVendors(), "1", "HIP_VISIBLE_DEVICES=-1 hides it", ""},
		{"Slurm, both vendors, list for AMD", job("SLURM_JOB_GPUS=1", "ROCR_VISIBLE_DEVICES=1"), bothVendors(), "0,1,2,1", "SLURM_JOB_GPUS=1 hides it", ""},
		{"Slurm, both vendors, list for either", job("SLURM_JOB_GPUS=1"), bothVendors(), "0,1,2,0,1", "", "slurm-list"},
		{"Slurm's list outside a job", Env{"SLURM_JOB_GPUS=2"}, g4, "0,1,2,3", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, why, notes := shownBy(c.env, c.machine)
			if left != c.want || why != c.why || codes(View{Notes: notes}) != c.notes {
				t.Errorf("left %q because %q notes %v\nwant %q because %q notes %q", left, why, notes, c.want, c.why, c.notes)
			}
		})
	}
}

func TestAllocation(t *testing.T) {
	for _, c := range []struct {
		env  Env
		want string
	}{
		{nil, ""},
		{Env{"SLURM_JOB_ID=1234"}, "slurm:1234"},
		{Env{"SLURM_JOBID=7"}, "slurm:7"},
		{Env{"SLURM_JOB_ID=1234_5"}, "slurm:1234_5"},
		{Env{"SLURM_JOB_ID="}, ""},
		{Env{"SLURM_JOB_ID=../../etc"}, ""},
		{Env{"SLURM_JOB_ID=" + strings.Repeat("1", 100)}, ""},
	} {
		if got := Allocation(c.env); got != c.want {
			t.Errorf("%v: got %q, want %q", c.env, got, c.want)
		}
	}
}

// TestLimitAgreesWithCUDA: on machines without MIG a mask leaves exactly what a program would see.
func TestLimitAgreesWithCUDA(t *testing.T) {
	for _, c := range cudaCases() {
		if slices.ContainsFunc(c.machine.Devices, func(d gpu.Device) bool { return d.UsesMIG() }) {
			continue
		}
		hidden, _ := HiddenDevices(c.env, c.machine)
		visible := CUDA(c.env, c.machine).Visible
		if len(hidden)+len(visible) != len(c.machine.Devices) {
			t.Errorf("%s: %d hidden and %d visible of %d", c.name, len(hidden), len(visible), len(c.machine.Devices))
		}
		for _, e := range visible {
			if hidden[e.UUID] != "" {
				t.Errorf("%s: %s is visible and hidden", c.name, e.UUID)
			}
		}
	}
}

// TestMaskOrder: the order in which variables name what they allow.
func TestMaskOrder(t *testing.T) {
	m := same(gpu.NVIDIA, 4)
	for text, want := range map[string]string{"3,0": "3 0", "": "", "-1": "", "0,1,2,3": "0 1 2 3", "GPU-000000a2,GPU-000000a0": "2 0"} {
		var got []string
		for _, id := range set(text).MaskOrder(m) {
			d, _, _ := m.FindDevice(id)
			got = append(got, fmt.Sprint(d.Index))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: %q, want %q", text, got, want)
		}
	}
	if got := Env(nil).MaskOrder(m); got != nil {
		t.Errorf("without a variable: %q", got)
	}
	amd := same(gpu.AMD, 4)
	if got := (Env{"ROCR_VISIBLE_DEVICES=3,2,0", "HIP_VISIBLE_DEVICES=2,0"}).MaskOrder(amd); len(got) != 2 || got[0] != amd.Devices[0].UUID || got[1] != amd.Devices[3].UUID {
		t.Errorf("HIP within ROCR: %q", got)
	}
}
