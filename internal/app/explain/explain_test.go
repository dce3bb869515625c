package explain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// written is a host with the devices of m and the processes of files, which are below /proc.
func written(t *testing.T, m gpu.Machine, files map[string]string) *machine.Host {
	t.Helper()
	return &machine.Host{
		Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return m, nil }},
		Proc:    proc.New(hosts.WriteRoot(t, files)), Run: t.TempDir(), Tmp: t.TempDir(), Messages: machine.Messages{Say: func(string) {}},
	}
}

// showing writes what is visible as "cuda:0=2 hip:0=1".
func showing(v visible.View) string {
	var out []string
	for _, e := range v.Visible {
		out = append(out, fmt.Sprintf("%s:%d=%d", e.Runtime, e.Logical, e.Index))
	}
	return strings.Join(out, " ")
}

func codesOf(v visible.View) string {
	var out []string
	for _, n := range v.Notes {
		if n.Code != visible.CodeAtStart {
			out = append(out, n.Code)
		}
	}
	return strings.Join(out, " ")
}

func TestExplainProcess(t *testing.T) {
	const id = "3f1c0a5be2d94786a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718"
	docker := "0::/docker/" + id + "\n"
	four := hosts.InventMachine(t, "demo")
	amd := hosts.VendorMachine(4, gpu.AMD)
	both := hosts.VendorMachine(2, gpu.NVIDIA, gpu.AMD)
	for _, c := range []struct {
		name                    string
		machine                 gpu.Machine
		files                   map[string]string
		own                     []string // the caller's environment
		see, notes, wins, beats string
	}{
		{"all", four, hosts.ProcessFiles(nil), nil, "cuda:0=0 cuda:1=1 cuda:2=2 cuda:3=3", "", "", ""},
		{"a list", four, hosts.ProcessFiles(nil, "CUDA_VISIBLE_DEVICES=2,0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"), []string{"CUDA_VISIBLE_DEVICES=3"}, "cuda:0=2 cuda:1=0", "", "CUDA_VISIBLE_DEVICES=2,0 CUDA_DEVICE_ORDER=PCI_BUS_ID", ""},
		{"none", four, hosts.ProcessFiles(nil, "CUDA_VISIBLE_DEVICES="), nil, "", "empty-list", "CUDA_VISIBLE_DEVICES=", ""},
		{"an empty environment", four, hosts.ProcessFiles(map[string]string{"42/environ": ""}), nil, "cuda:0=0 cuda:1=1 cuda:2=2 cuda:3=3", "", "", ""},
		{"HIP wins", amd, hosts.ProcessFiles(nil, "HIP_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=1"), nil, "hip:0=2", "variable-beaten", "HIP_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=1"},
		{"HIP within ROCR", amd, hosts.ProcessFiles(nil, "HIP_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES=3,2"), nil, "hip:0=2", "filtered-twice", "ROCR_VISIBLE_DEVICES=3,2 HIP_VISIBLE_DEVICES=1", ""},
		{"each vendor counts from 0", both, hosts.ProcessFiles(nil, "CUDA_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=1"), nil, "cuda:0=1 hip:0=1", "", "CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=1", ""},

		{"a container by its variable", four, hosts.ProcessFiles(map[string]string{"42/cgroup": docker}, "NVIDIA_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES=1"), nil, "cuda:0=3", "container-renumbered", "NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=1", ""},
		{"a container's files agree", four, hosts.ProcessFiles(map[string]string{"42/cgroup": docker, "42/root/dev/nvidia2": "", "42/root/dev/nvidia3": ""}, "NVIDIA_VISIBLE_DEVICES=2,3"), nil, "cuda:0=2 cuda:1=3", "container-renumbered", "NVIDIA_VISIBLE_DEVICES=2,3", ""},
		{"a container's files decide", four, hosts.ProcessFiles(map[string]string{"42/cgroup": docker, "42/root/dev/nvidia1": "", "42/root/dev/nvidia3": "", "42/root/dev/nvidiactl": ""}, "NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=1"), nil, "cuda:0=3", "container-device-files", "CUDA_VISIBLE_DEVICES=1", ""},
		{"no variable, all files", four, hosts.ProcessFiles(map[string]string{"42/cgroup": docker, "42/root/dev/nvidia0": "", "42/root/dev/nvidia1": "", "42/root/dev/nvidia2": "", "42/root/dev/nvidia3": ""}), nil, "cuda:0=0 cuda:1=1 cuda:2=2 cuda:3=3", "container-device-files", "", ""},
		{"our own container", four, hosts.ProcessFiles(map[string]string{"42/cgroup": docker, fmt.Sprintf("%d/stat", os.Getpid()): hosts.StatText(os.Getpid(), "R"), fmt.Sprintf("%d/cgroup", os.Getpid()): docker}, "NVIDIA_VISIBLE_DEVICES=2", "CUDA_VISIBLE_DEVICES=3"), nil, "cuda:0=3", "", "CUDA_VISIBLE_DEVICES=3", ""},
		{"AMD's files", both, hosts.ProcessFiles(map[string]string{"42/cgroup": docker, "42/root/dev/dri/renderD129": ""}), nil, "hip:0=1", "container-device-files", "", ""},

		{"a Slurm job", four, hosts.ProcessFiles(nil, "SLURM_JOB_ID=12", "SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"), nil, "cuda:0=2 cuda:1=3", "slurm-relative", "SLURM_JOB_GPUS=2,3 CUDA_VISIBLE_DEVICES=0,1", ""},
		{"our own Slurm job", four, hosts.ProcessFiles(nil, "SLURM_JOB_ID=12", "SLURM_JOB_GPUS=2,3", "CUDA_VISIBLE_DEVICES=0,1"), []string{"SLURM_JOB_ID=12"}, "cuda:0=0 cuda:1=1", "", "CUDA_VISIBLE_DEVICES=0,1", ""},
		{"an MPS server", four, hosts.ProcessFiles(map[string]string{"42/root/tmp/nvidia-mps/control": ""}, "CUDA_VISIBLE_DEVICES=1"), nil, "cuda:0=1", "mps-numbers", "CUDA_VISIBLE_DEVICES=1", ""},
		{"a lease that is gone", four, hosts.ProcessFiles(nil, "CUDA_VISIBLE_DEVICES=1", "GPUARD_LEASE=k3f9"), nil, "cuda:0=1", "lease-gone", "CUDA_VISIBLE_DEVICES=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := written(t, c.machine, c.files)
			host.Env = c.own
			x, err := Explain(t.Context(), host, []string{"42"}, "", false)
			if err != nil {
				t.Fatal(err)
			}
			if got := showing(x.View); got != c.see || codesOf(x.View) != c.notes {
				t.Errorf("sees %q with notes %q, want %q and %q\n%v", got, codesOf(x.View), c.see, c.notes, x.Notes)
			}
			p := x.Process
			if wins, beats := strings.Join(p.Variables, " "), strings.Join(p.Beaten, " "); wins != c.wins || beats != c.beats {
				t.Errorf("%q beat %q, want %q and %q", wins, beats, c.wins, c.beats)
			}
			if p.PID != 42 || p.Command != "python3 train.py" || p.Lease != "" || p.MatchesLease != nil || (p.Container == id) != (c.files["42/cgroup"] == docker) {
				t.Errorf("process %+v", p)
			}
			if x.Notes[0].Code != visible.CodeAtStart {
				t.Errorf("nothing says when the environment was: %v", x.Notes)
			}
			codesKnown(t, x.Notes)
		})
	}
}

// codesKnown checks that every code is in the published list.
func codesKnown(t *testing.T, notes []visible.Note) {
	t.Helper()
	for _, n := range notes {
		if !slices.ContainsFunc(visible.Codes(), func(k visible.Note) bool { return k.Code == n.Code }) || n.Text == "" {
			t.Errorf("note %+v has no text or an unknown code", n)
		}
	}
}

func TestExplainCannot(t *testing.T) {
	files := hosts.ProcessFiles(map[string]string{"43/stat": hosts.StatText(43, "Z"), "44/stat": "44 (broken"}, "A=b")
	files["45/stat"] = hosts.StatText(45, "S")
	for _, c := range []struct {
		what  []string
		usage bool
		text  string
	}{
		{[]string{"41"}, true, "cannot explain process 41: there is no such process; for the number of a GPU write CUDA_VISIBLE_DEVICES=41"},
		{[]string{"4100"}, true, "cannot explain process 4100: there is no such process; what runs on the GPUs is in gpuard status"},
		{[]string{"43"}, true, "cannot explain process 43: [python3] has ended"},
		{[]string{"44"}, false, "cannot read process 44"},
		{[]string{"45"}, false, "cannot read the environment of process 45"},
		{[]string{"k3f9"}, true, "cannot explain k3f9: it is neither a process id nor a live lease"},
		{[]string{"9abc"}, true, "cannot explain 9abc: it is neither a process id nor a live lease"},
		{[]string{"42", "CUDA_VISIBLE_DEVICES=0"}, true, `cannot explain "42" together with something else`},
		{[]string{"CUDA_VISIBLE_DEVICES=0", "k3f9"}, true, `cannot explain "k3f9" together with something else`},
		{[]string{"0,1"}, true, "such as CUDA_VISIBLE_DEVICES=0,1"},
		{[]string{"="}, true, "such as CUDA_VISIBLE_DEVICES=0"},
		{[]string{"CUDA_VISIBLE_DEVICES"}, true, "write its value too, such as CUDA_VISIBLE_DEVICES=0; gpuard explain alone"},
		{[]string{"CUDA_VISIBLE_DEVICES", "0"}, true, "such as CUDA_VISIBLE_DEVICES=0;"},
		{[]string{"0_1"}, true, "write a process or lease id"},
		{[]string{""}, true, "write a process or lease id, or VAR=VALUE"},
		{[]string{"99999999999999999999999"}, true, "write a process or lease id"},
		{[]string{"99999999999999999999"}, true, "it is neither a process id"},
	} {
		_, err := Explain(t.Context(), written(t, hosts.InventMachine(t, "demo"), files), c.what, "", false)
		var usage *exit.Usage
		if err == nil || !strings.Contains(err.Error(), c.text) || errors.As(err, &usage) != c.usage {
			t.Errorf("%q: %v, want %q (usage %v)", c.what, err, c.text, c.usage)
		}
	}
}

func TestExplainRuntimes(t *testing.T) {
	all := hosts.VendorMachine(2, gpu.NVIDIA, gpu.AMD, gpu.Intel, gpu.Ascend)
	for _, c := range []struct {
		machine    gpu.Machine
		runtime    string
		given      string
		see, notes string
	}{
		{all, "", "", "cuda:0=0 cuda:1=1 hip:0=0 hip:1=1 level_zero:0=0 level_zero:1=1 ascend:0=0 ascend:1=1", ""},
		{all, "cuda", "CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0", "cuda:0=1", ""},
		{all, "hip", "CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0", "hip:0=0", ""},
		{hosts.VendorMachine(2, gpu.AMD), "hip", "CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0", "hip:0=0", "variable-beaten"},
		{all, "opencl", "GPU_DEVICE_ORDINAL=1 HIP_VISIBLE_DEVICES=0", "opencl:0=1", ""},
		{all, "level-zero", "ZE_AFFINITY_MASK=1", "level_zero:0=1", ""},
		{all, "Level_Zero", "ZE_AFFINITY_MASK=", "level_zero:0=0 level_zero:1=1", "no-mask"},
		{all, "sycl", "ONEAPI_DEVICE_SELECTOR=cuda:1", "sycl:0=1", ""},
		{all, "ascend", "ASCEND_RT_VISIBLE_DEVICES=1", "ascend:0=1", ""},
		{all, "tinygrad", "VISIBLE_DEVICES=1", "tinygrad:0=0 tinygrad:1=1 tinygrad:0=0 tinygrad:1=1", "other-variable"},
		{all, "tinygrad:0.11", "VISIBLE_DEVICES=1", "tinygrad:0=1 tinygrad:0=1", ""},
		{hosts.VendorMachine(2, gpu.AMD), "", "", "hip:0=0 hip:1=1", ""},
		{hosts.VendorMachine(2, gpu.AMD), "cuda", "", "", "no-such-vendor"},
		{hosts.VendorMachine(2, gpu.NVIDIA), "hip", "", "", "no-such-vendor"},
		{hosts.VendorMachine(2, gpu.NVIDIA), "", "HIP_VISIBLE_DEVICES=0", "cuda:0=0 cuda:1=1", ""},
		{gpu.Machine{}, "", "CUDA_VISIBLE_DEVICES=0", "", ""},
	} {
		host := written(t, c.machine, nil)
		host.Env = visible.Env{"CUDA_VISIBLE_DEVICES=7"}
		given := strings.Fields(c.given)
		if c.given == "" {
			host.Env = nil
		}
		x, err := Explain(t.Context(), host, given, c.runtime, false)
		if err != nil {
			t.Errorf("--runtime %s: %v", c.runtime, err)
			continue
		}
		if got := showing(x.View); got != c.see || codesOf(x.View) != c.notes {
			t.Errorf("--runtime %s %s: sees %q with notes %q, want %q and %q", c.runtime, c.given, got, codesOf(x.View), c.see, c.notes)
		}
		codesKnown(t, x.Notes)
	}
	for _, wrong := range []string{"vulkan", "cuda:12", ":", "tinygrad0.11"} {
		_, err := Explain(t.Context(), written(t, all, nil), nil, wrong, false)
		var usage *exit.Usage
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "level-zero") {
			t.Errorf("--runtime %s: %v", wrong, err)
		}
	}
}

func TestExplainGiven(t *testing.T) {
	four := hosts.InventMachine(t, "demo")
	for _, c := range []struct {
		given      string
		container  bool
		see, notes string
	}{
		{"NVIDIA_VISIBLE_DEVICES=2,3", false, "cuda:0=0 cuda:1=1 cuda:2=2 cuda:3=3", "container-variable"},
		{"NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=2", false, "cuda:0=2", ""},
		{"NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=2", true, "", "container-renumbered invalid-index"},
		{"NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=1", true, "cuda:0=3", "container-renumbered"},
		{"CUDA_VISIBLE_DEVICES=1", true, "", "container invalid-index"},
		{"SLURM_JOB_ID=1 SLURM_JOB_GPUS=3 CUDA_VISIBLE_DEVICES=0", false, "cuda:0=3", "slurm-relative"},
		{"CUDA_MPS_PIPE_DIRECTORY=/x CUDA_VISIBLE_DEVICES=0", false, "cuda:0=0", "mps-numbers"},
	} {
		x, err := Explain(t.Context(), written(t, four, nil), strings.Fields(c.given), "", c.container)
		if err != nil {
			t.Fatal(err)
		}
		if got := showing(x.View); got != c.see || codesOf(x.View) != c.notes {
			t.Errorf("%s: sees %q with notes %q, want %q and %q", c.given, got, codesOf(x.View), c.see, c.notes)
		}
		codesKnown(t, x.Notes)
		if x.Process != nil {
			t.Error("no process was asked about")
		}
	}
}
