package check

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func TestJudge(t *testing.T) {
	machine := func(devices ...gpu.Device) hostinfo.Answer[gpu.Machine] {
		return hostinfo.AnswerOf(gpu.Machine{Driver: "550.54.15", Devices: devices})
	}
	a100, l4, lost := gpu.Device{Name: "NVIDIA A100"}, gpu.Device{Name: "NVIDIA L4"}, gpu.Device{Name: "NVIDIA L4", Problem: "GPU is lost"}
	none := hostinfo.Answer[gpu.Machine]{Problem: "cannot find the NVIDIA driver's library", Do: "install NVIDIA's driver"}
	cards := func(vendors ...uint16) (a hostinfo.Answer[[]hostinfo.Card]) {
		for _, v := range vendors {
			a.Found = append(a.Found, hostinfo.Card{Vendor: v})
		}
		return a
	}
	broken, cause := Finding{"broken", Error, "it is broken", "w", "mend it"}, Finding{"cause", Error, "nouveau has the GPU", "w", "unload it"}
	wrong, slow := Finding{"wrong", Error, "torch needs a newer driver", "w", "pip install"}, Finding{"slow", Warning, "GPU 0 is hot", "w", "cool it"}
	fine, blind := Finding{"broken", OK, "well", "", ""}, Finding{"cause", Unknown, "cannot see", "", "sudo"}
	yes, no := new(true), new(false)
	for _, c := range []struct {
		name     string
		s        hostinfo.Site
		findings []Finding
		want     Verdict
	}{
		{"healthy", hostinfo.Site{Machine: machine(a100, a100)}, []Finding{fine, blind}, Verdict{yes, "GPU programs will run here: 2 NVIDIA A100, driver 550.54.15", ""}},
		{"a mask", hostinfo.Site{Env: []string{"CUDA_VISIBLE_DEVICES=1"}, Machine: machine(
			gpu.Device{Index: 0, UUID: "GPU-a", Vendor: gpu.NVIDIA, Name: "NVIDIA L4"}, gpu.Device{Index: 1, UUID: "GPU-b", Vendor: gpu.NVIDIA, Name: "NVIDIA L4"})},
			nil, Verdict{yes, "GPU programs will run here: 1 NVIDIA L4, driver 550.54.15; CUDA_VISIBLE_DEVICES=1 hides 1 more", ""}},
		{"recorded", hostinfo.Site{Machine: hostinfo.AnswerOf(gpu.Machine{Source: "file", Devices: []gpu.Device{l4}})}, nil, Verdict{yes, "GPU programs will run on the recorded machine: 1 NVIDIA L4", ""}},
		{"two models", hostinfo.Site{Machine: machine(a100, l4, a100)}, nil, Verdict{yes, "GPU programs will run here: 2 NVIDIA A100 and 1 NVIDIA L4, driver 550.54.15", ""}},
		{"one of two is lost", hostinfo.Site{Machine: machine(a100, lost)}, []Finding{slow}, Verdict{yes, "GPU programs will run here: 1 NVIDIA A100, driver 550.54.15", "cool it"}},
		{"all are lost", hostinfo.Site{Machine: machine(lost)}, []Finding{slow, wrong}, Verdict{no, "GPU programs will not run here: GPU is lost", "pip install"}},
		{"a warning", hostinfo.Site{Machine: machine(a100)}, []Finding{slow}, Verdict{yes, "GPU programs will run here: 1 NVIDIA A100, driver 550.54.15", "cool it"}},
		{"an error of one program", hostinfo.Site{Machine: machine(a100)}, []Finding{slow, wrong}, Verdict{yes, "GPU programs will run here (1 NVIDIA A100, driver 550.54.15), but not every one: torch needs a newer driver", "pip install"}},
		{"a library for the CPU", hostinfo.Site{Machine: machine(a100)}, []Finding{slow, {"onnxruntime-build", Warning, "in /venv, onnxruntime is the build for the CPU", "w", "pip install onnxruntime-gpu"}},
			Verdict{yes, "GPU programs will run here (1 NVIDIA A100, driver 550.54.15), but not every one: in /venv, onnxruntime is the build for the CPU", "pip install onnxruntime-gpu"}},
		{"what stops all has the last word", hostinfo.Site{Machine: machine(a100)}, []Finding{wrong, broken}, Verdict{no, "GPU programs will not run here: it is broken", "mend it"}},
		{"the cause, not its consequence", hostinfo.Site{Machine: none}, []Finding{cause, broken}, Verdict{no, "GPU programs will not run here: nouveau has the GPU", "unload it"}},
		{"no card at all", hostinfo.Site{Machine: none, Cards: cards(0x1234, 0x8086)}, nil, Verdict{no, "GPU programs will not run here: this machine has no GPU that gpuard knows", "use a machine with a GPU, or run on the CPU: gpuard run --cpu -- COMMAND"}},
		{"nothing is shown", hostinfo.Site{Machine: machine(), Cards: cards(0x1002)}, nil, Verdict{no, "GPU programs will not run here: this machine has no GPU that gpuard knows", "use a machine with a GPU, or run on the CPU: gpuard run --cpu -- COMMAND"}},
		{"a card without a reader", hostinfo.Site{Machine: none, Cards: cards(0x10de)}, nil, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
		{"a card of AMD without a reader", hostinfo.Site{Machine: none, Cards: cards(0x1002)}, []Finding{wrong}, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
		{"no answer, and what may be the reason", hostinfo.Site{Machine: hostinfo.NoAnswer[gpu.Machine]("no answer within 20s"), Cards: cards(0x10de)}, []Finding{slow, wrong}, Verdict{nil, "cannot tell whether GPU programs will run here: no answer within 20s", "pip install"}},
		{"a warning is no reason", hostinfo.Site{Machine: none, Cards: cards(0x10de)}, []Finding{{"driver-bound", Warning, "odd", "w", "rebind it"}}, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
		{"under WSL no GPU is on the bus", hostinfo.Site{Machine: none, Cards: cards(0x1234), Driver: hostinfo.AnswerOf(hostinfo.Driver{WSL: true})}, nil, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
		{"a driver without a card", hostinfo.Site{Machine: none, Cards: cards(0x1234), Driver: hostinfo.AnswerOf(hostinfo.Driver{Module: "550.54.15"})}, nil, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
		{"nothing could be read", hostinfo.Site{Machine: none, Cards: hostinfo.NoAnswer[[]hostinfo.Card]("no sysfs")}, nil, Verdict{nil, "cannot tell whether GPU programs will run here: cannot find the NVIDIA driver's library", "install NVIDIA's driver"}},
	} {
		got := judgeFindings(c.s, c.findings, []string{"cause", "broken"})
		if (got.Runs == nil) != (c.want.Runs == nil) || got.Runs != nil && *got.Runs != *c.want.Runs || got.Summary != c.want.Summary || got.Next != c.want.Next {
			t.Errorf("%s: %+v\nand not %+v", c.name, got, c.want)
		}
	}
}

// TestVerdictOfMachines runs every check on whole machines: one fault of all GPUs is reported as such, with its remedy.
func TestVerdictOfMachines(t *testing.T) {
	for name, c := range map[string]struct {
		site       hostinfo.Site
		runs       string
		says, next string
	}{
		"every GPU is split and has no instance": {all(func(d *gpu.Device) { d.MIGMode = new(true) }), "false", "MIG mode and has no instance", "make instances"},
		"every GPU is closed":                    {all(func(d *gpu.Device) { d.ComputeMode = "prohibited" }), "false", "compute mode prohibited", "-c DEFAULT"},
		"nothing answers, and the log knows why": {change(logged(79), func(s *hostinfo.Site) {
			s.Machine = hostinfo.Answer[gpu.Machine]{Problem: "no answer within 5s", Do: "see what the driver says"}
		}), "unknown", "no answer within 5s", "reboot"},
		"the only GPU that answers has fallen off the bus": {change(xid(79, time.Hour), func(s *hostinfo.Site) { s.Machine.Found.Devices[0].Problem = "GPU is lost" }), "false", "GPU 1 reported XID 79", "then reboot the machine"},
		"every GPU is stuck until it is reset":             {all(func(d *gpu.Device) { d.RecoveryAction = "reset" }), "false", "asks for a reset of GPU 0", "--gpu-reset"},
		"every GPU wants a reboot":                         {all(func(d *gpu.Device) { d.RecoveryAction = "reboot" }), "false", "asks for a reboot because of GPU 0", "sudo reboot"},
		"what was mended already":                          {all(func(d *gpu.Device) { d.XIDs = []gpu.XID{{Code: 62}} }), "false", "XID 62", "where that is done already: sudo gpuard undrain 0"},
		"the mask leaves the one that is stuck":            {change(second(func(d *gpu.Device) { d.RecoveryAction = "reset" }), func(s *hostinfo.Site) { s.Env = []string{"CUDA_VISIBLE_DEVICES=1"} }), "false", "reset of GPU 1", "--gpu-reset"},
		"one of two is stuck":                              {second(func(d *gpu.Device) { d.RecoveryAction = "reset" }), "true", "(2 NVIDIA A100-SXM4-80GB, driver 550.54.15), but not every one", "--gpu-reset"},
		"an error of a program on every GPU":               {all(func(d *gpu.Device) { d.XIDs = []gpu.XID{{Code: 13}} }), "true", "2 NVIDIA A100", ""},
		"every GPU is hot":                                 {all(func(d *gpu.Device) { d.TempMargin = new(1) }), "true", "2 NVIDIA A100", "fans"},
		"no fabric manager":                                {switches(8, false, func(*hostinfo.Site) {}), "false", "no nv-fabricmanager runs", "enable --now nvidia-fabricmanager"},
		"no fabric manager, which may have run":            {switches(9, false, func(*hostinfo.Site) {}), "true", "2 NVIDIA A100", "enable --now nvidia-fabricmanager"},
		"a Jetson":                                         {jetsonBoard(), "unknown", "this is a Jetson", "gpuard doctor --run"},
		"WSL without NVIDIA's GPU":                         {wslBare(), "false", "Windows gives this system no driver", "install NVIDIA's driver in Windows"},
		"a kernel update":                                  {half(false, false, "nouveau", "nouveau"), "false", "no module for the kernel", "dkms autoinstall"},
		"one of two is closed":                             {second(func(d *gpu.Device) { d.ComputeMode = "prohibited" }), "true", "2 NVIDIA A100", "-c DEFAULT"},
	} {
		got := Diagnose(c.site)
		runs := "unknown"
		if got.Runs != nil {
			runs = strconv.FormatBool(*got.Runs)
		}
		if runs != c.runs || !strings.Contains(got.Summary, c.says) || !strings.Contains(got.Next, c.next) {
			t.Errorf("%s: %s, %q, %q", name, runs, got.Summary, got.Next)
		}
	}
}

// TestCheckThatPanics: a bug in a check gives an unknown finding.
func TestCheckThatPanics(t *testing.T) {
	c := Check{Page: Page{Code: "oops"}, Look: func(hostinfo.Site) []Finding { panic("no driver") }}
	if got := c.lookWithRecover(hostinfo.Site{}); len(got) != 1 || got[0].Code != "oops" || got[0].Severity != Unknown || got[0].Do == "" {
		t.Errorf("%+v", got)
	}
}

// TestEmptySite: nothing is claimed about a machine that could not be read, and no check returns another's code.
func TestEmptySite(t *testing.T) {
	const why = "not looked"
	s := hostinfo.Site{Machine: hostinfo.NoAnswer[gpu.Machine](why), Driver: hostinfo.NoAnswer[hostinfo.Driver](why), Cards: hostinfo.NoAnswer[[]hostinfo.Card](why), Nodes: hostinfo.NoAnswer[[]hostinfo.Node](why),
		Libraries: hostinfo.NoAnswer[[]hostinfo.Library](why), Toolkits: hostinfo.NoAnswer[[]hostinfo.Toolkit](why), Pythons: hostinfo.NoAnswer[[]hostinfo.Python](why), Containers: hostinfo.NoAnswer[hostinfo.Containers](why),
		Limits: hostinfo.NoAnswer[hostinfo.Limits](why), NCCL: hostinfo.NoAnswer[[]hostinfo.NCCLFile](why), State: hostinfo.NoAnswer[hostinfo.State](why), Log: hostinfo.NoAnswer[[]hostinfo.Error](why)}
	s.Leftovers.Problem = why
	for _, c := range Checks() {
		found := c.Look(s)
		if len(found) == 0 {
			t.Errorf("%s says nothing", c.Code)
		}
		for _, f := range found {
			if f.Code != c.Code || f.Severity.Bad() || f.Seen == "" {
				t.Errorf("%s finds %+v where nothing was read", c.Code, f)
			}
		}
	}
	if d := Diagnose(s); d.Runs != nil {
		t.Errorf("the verdict on nothing is %+v", d.Verdict)
	}
}
