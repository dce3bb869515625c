package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/test/fakegpu"
)

// doctorMachine is a whole machine for doctor: the fake driver, and the system's files written down below root.
type doctorMachine struct {
	*fakegpu.Driver
	t    *testing.T
	root string
	env  []string
}

// newDoctorMachine is a healthy machine: driver, libraries, device files and cards fit together.
func newDoctorMachine(t *testing.T, gpus ...fakegpu.GPU) *doctorMachine {
	t.Helper()
	w := &doctorMachine{Driver: fakegpu.New(t, gpus...), t: t, root: t.TempDir()}
	w.env = []string{"SITE=" + w.root, "HOME=" + t.TempDir(), "GPUARD_STATE=" + stateFolder(t), raceOptions(), "LC_ALL=C.UTF-8", "COLUMNS=120"}
	w.makeFolders("dev/shm", "etc", "proc", "usr/bin", "tmp")
	w.writeFile("dev/kmsg", "<6>[    1.000000] Linux version 6.8.0\n")
	w.writeFile("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	w.setModuleVersion("550.54.15")
	w.setLibraryVersion("550.54.15")
	w.writeFile("dev/nvidiactl", "")
	w.writeFile("dev/nvidia-uvm", "")
	for i, g := range gpus {
		w.addCard(g["pci"], "0x10de", "nvidia")
		w.writeFile("proc/driver/nvidia/gpus/"+g["pci"]+"/information", fmt.Sprintf("Model: \t\t %s\nDevice Minor: \t %d\n", g["name"], i))
		w.writeFile(fmt.Sprintf("dev/nvidia%d", i), "")
	}
	return w
}

// clearPath is a file of the machine. What the tree has of it before is removed.
func (w *doctorMachine) clearPath(name string) string {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *doctorMachine) writeFile(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.clearPath(name), []byte(text), 0o666); err != nil {
		w.t.Fatal(err)
	}
}

func (w *doctorMachine) writeLink(name, target string) {
	w.t.Helper()
	if err := os.Symlink(target, w.clearPath(name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *doctorMachine) makeFolders(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(w.root, name), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *doctorMachine) removePaths(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.clearPath(name)
	}
}

// setModuleVersion is the kernel module that is loaded.
func (w *doctorMachine) setModuleVersion(version string) {
	w.t.Helper()
	w.writeFile("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "+version+"  Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc version 12.3.0\n")
	w.writeFile("sys/module/nvidia/version", version+"\n")
}

// setLibraryVersion is the driver's part that programs load.
func (w *doctorMachine) setLibraryVersion(version string) {
	w.t.Helper()
	for _, name := range []string{"libnvidia-ml.so.", "libcuda.so."} {
		w.writeFile("usr/lib/"+name+version, "")
		w.writeLink("usr/lib/"+name+"1", name+version)
	}
}

// addCard is one on the PCI bus, with a driver or "".
func (w *doctorMachine) addCard(pci, vendor, driver string) {
	w.t.Helper()
	folder := "sys/bus/pci/devices/" + pci + "/"
	w.writeFile(folder+"class", "0x030200\n")
	w.writeFile(folder+"vendor", vendor+"\n")
	w.writeFile(folder+"device", "0x20b2\n")
	if w.removePaths(folder + "driver"); driver != "" {
		w.writeLink(folder+"driver", "../../../bus/pci/drivers/"+driver)
	}
}

// addPythonVenv is a Python environment with packages, each "name version", and torch/version.py where torch is one of them.
func (w *doctorMachine) addPythonVenv(packages ...string) string {
	w.t.Helper()
	w.writeFile("usr/bin/python3.11", "")
	w.writeFile("home/ann/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.4\n")
	w.writeLink("home/ann/venv/bin/python", "/usr/bin/python3.11")
	site := "home/ann/venv/lib/python3.11/site-packages/"
	for _, p := range packages {
		name, version, _ := strings.Cut(p, " ")
		w.writeFile(site+strings.ReplaceAll(name, "-", "_")+"-"+version+".dist-info/METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: "+version+"\n")
		if plain, cuda, built := strings.Cut(version, "+cu"); name == "torch" && built {
			w.writeFile(site+"torch/version.py", fmt.Sprintf("__version__ = '%s+cu%s'\ndebug = False\ncuda: Optional[str] = '%s.%s'\nhip: Optional[str] = None\n", plain, cuda, cuda[:2], cuda[2:]))
		}
	}
	return "/home/ann/venv"
}

// doctorAnswer is doctor's answer.
type doctorAnswer struct {
	Runs          *bool
	Summary, Next string
	Findings      []struct{ Code, Severity, Seen, Why, Do string }
	code          int
	took          time.Duration
}

func (w *doctorMachine) runDoctor(env []string, args ...string) (o doctorAnswer) {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), self, append([]string{"doctor", "--json"}, args...)...)
	cmd.Args[0] = "surveyed"
	cmd.Env = slices.Concat(w.Env(), w.env, env)
	began := time.Now()
	got := runCommand(w.t, cmd)
	if err := json.Unmarshal([]byte(got.out), &o); err != nil {
		w.t.Fatalf("exit %d: %v\n%s%s", got.code, err, got.out, got.err)
	}
	o.code, o.took = got.code, time.Since(began)
	return o
}

// checkFindings fails unless the codes of warnings and errors are exactly these, each "severity code", in any order.
func (w *doctorMachine) checkFindings(o doctorAnswer, want ...string) {
	w.t.Helper()
	got := map[string]bool{}
	for _, f := range o.Findings {
		if f.Severity == "warning" || f.Severity == "error" {
			got[f.Severity+" "+f.Code] = true
		}
	}
	if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("found %q, want %q", all, want)
		for _, f := range o.Findings {
			if f.Severity != "ok" {
				w.t.Logf("%s %s: %s\n%s\n%s", f.Severity, f.Code, f.Seen, f.Why, f.Do)
			}
		}
	}
	if bad := len(want) > 0; (o.code == 1) != bad {
		w.t.Errorf("exit code %d", o.code)
	}
}

func (o doctorAnswer) runsText() string {
	if o.Runs == nil {
		return "unknown"
	}
	return fmt.Sprint(*o.Runs)
}

// TestDoctor: on each machine exactly what is wrong with it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	pascal := fakegpu.A100(0)
	for key, value := range map[string]string{"name": "NVIDIA GeForce GTX 1080 Ti", "compute": "6.1"} {
		pascal[key] = value
	}
	tests := []struct {
		name    string
		gpus    []fakegpu.GPU
		prepare func(w *doctorMachine) (env, args []string)
		want    []string
		runs    string
		says    []string // in summary and next
	}{
		{"healthy", makeA100s(2), func(*doctorMachine) (env, args []string) { return }, nil, "true", []string{"GPU programs will run here", "2 NVIDIA A100-SXM4-80GB, driver 550.54.15"}},
		{"driver too old for the wheel", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			return nil, []string{"--for", w.addPythonVenv("torch 2.12.0+cu130")}
		}, []string{"error torch-driver"}, "true", []string{"580"}},
		{"Pascal card and a CUDA 13 wheel", []fakegpu.GPU{pascal}, func(w *doctorMachine) (env, args []string) {
			w.WriteFile("driver", "580.95.05")
			w.WriteFile("cuda", "13.0")
			w.setModuleVersion("580.95.05")
			w.setLibraryVersion("580.95.05")
			return nil, []string{"--for", w.addPythonVenv("torch 2.12.0+cu130")}
		}, []string{"error torch-cards"}, "true", nil},
		{"both onnxruntime packages", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			return nil, []string{"--for", w.addPythonVenv("onnxruntime 1.20.1", "onnxruntime-gpu 1.20.1", "nvidia-cudnn-cu12 9.1.0.70", "nvidia-cublas-cu12 12.4.5.8", "nvidia-cuda-runtime-cu12 12.4.127")}
		}, []string{"warning onnxruntime-both"}, "true", nil},
		{"onnxruntime for the CPU alone", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			return nil, []string{"--for", w.addPythonVenv("onnxruntime 1.20.1")}
		}, []string{"warning onnxruntime-build"}, "true", []string{"but not every one", "onnxruntime 1.20.1 is the build for the CPU", "install 'onnxruntime-gpu==1.26.*'"}},
		{"TensorFlow for the CPU by name", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			return nil, []string{"--for", w.addPythonVenv("tensorflow-cpu 2.18.0")}
		}, []string{"warning tensorflow-build"}, "true", []string{"but not every one", "tensorflow-cpu 2.18.0 uses the CPU alone"}},
		{"llama-cpp-python for the CPU", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.writeFile("home/ann/venv/lib/python3.11/site-packages/llama_cpp/lib/libllama.so", "")
			return nil, []string{"--for", w.addPythonVenv("llama-cpp-python 0.3.9")}
		}, []string{"warning llama-cpp-build"}, "true", []string{"but not every one", "llama-cpp-python 0.3.9 is built for the CPU alone", "whl/cu124"}},
		{"accelerate with GPUs of its own", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.writeFile("hf/accelerate/default_config.yaml", "compute_environment: LOCAL_MACHINE\ngpu_ids: '1'\n")
			return []string{"HF_HOME=" + filepath.Join(w.root, "hf")}, []string{"--for", w.addPythonVenv("accelerate 1.2.0")}
		}, []string{"warning accelerate-gpu-ids"}, "true", []string{"set gpu_ids to all: gpuard already gives the job its GPUs"}},
		{"nouveau", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.FailInit(9)
			w.removePaths("proc/driver/nvidia", "sys/module/nvidia", "usr/lib", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0", "dev/nvidia1")
			w.makeFolders("sys/module/nouveau")
			for _, g := range makeA100s(2) {
				w.addCard(g["pci"], "0x10de", "nouveau")
			}
			return nil, nil
		}, []string{"error driver-bound"}, "false", []string{"nouveau", "blacklist"}},
		{"after suspend", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.Fail("cuInit", fakegpu.AnyGPU, 999)
			return nil, nil
		}, []string{"error cuda-starts"}, "false", []string{"cuInit answers 999", "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm"}},
		{"XID 79", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.writeFile("dev/kmsg", "<3>[  100.000000] NVRM: Xid (PCI:"+strings.TrimSuffix(makeA100s(2)[1]["pci"], ".0")+"): 79, pid=4242, name=python, GPU has fallen off the bus.\n")
			return nil, nil
		}, []string{"error xid-errors"}, "true", []string{"XID 79"}},
		{"lost after XID 79", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.LoseGPU(1)
			w.writeFile("dev/kmsg", "<3>[  100.000000] NVRM: Xid (PCI:"+strings.TrimSuffix(makeA100s(2)[1]["pci"], ".0")+"): 79, pid=4242, name=python, GPU has fallen off the bus.\n")
			return nil, nil
		}, []string{"error gpu-answers", "error xid-errors"}, "true", []string{"GPU 1"}},
		{"hidden by -1", makeA100s(2), func(*doctorMachine) (env, args []string) {
			return []string{"CUDA_VISIBLE_DEVICES=-1"}, nil
		}, []string{"error env-mask-hides-all"}, "false", []string{"CUDA_VISIBLE_DEVICES"}},
		{"library and driver of two versions", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.FailInit(18)
			w.setLibraryVersion("560.35.03")
			return nil, nil
		}, []string{"error library-version"}, "false", []string{"550.54.15", "560.35.03", "reboot"}},
		{"no driver", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.FailInit(9)
			w.removePaths("proc/driver/nvidia", "sys/module/nvidia", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0")
			w.addCard(makeA100s(1)[0]["pci"], "0x10de", "")
			return nil, nil
		}, []string{"error driver-loaded"}, "false", []string{"modprobe nvidia"}},
		{"a new kernel without the driver's module", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.FailInit(9)
			w.removePaths("proc/driver/nvidia", "sys/module/nvidia", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0")
			w.addCard(makeA100s(1)[0]["pci"], "0x10de", "nouveau")
			w.writeFile("lib/modules/6.8.0-45-generic/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko:\n")
			return nil, nil
		}, []string{"error driver-bound"}, "false", []string{"has no module for the kernel 6.8.0-45-generic", "dkms autoinstall"}},
		{"a Jetson", nil, func(w *doctorMachine) (env, args []string) {
			w.RemoveFile("lib/libnvidia-ml.so.1")
			w.RemoveFile("bin/nvidia-smi")
			w.removePaths("proc/driver/nvidia", "sys/module/nvidia", "usr/lib", "dev/nvidiactl", "dev/nvidia-uvm")
			w.makeFolders("sys/module/nvgpu", "sys/bus/pci/devices")
			return nil, nil
		}, nil, "unknown", []string{"Jetson", "doctor --run"}},
		{"where only the programs of NixOS look", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.RemoveFile("lib/libnvidia-ml.so.1")
			w.RemoveFile("bin/nvidia-smi")
			w.removePaths("usr/lib")
			w.writeFile("run/opengl-driver/lib/libcuda.so.1", "")
			return nil, nil
		}, []string{"error driver-library"}, "false", []string{"export LD_LIBRARY_PATH=/run/opengl-driver/lib"}},
		{"container without GPUs", makeA100s(1), func(w *doctorMachine) (env, args []string) {
			w.writeFile(".dockerenv", "")
			w.RemoveFile("lib/libnvidia-ml.so.1")
			w.RemoveFile("bin/nvidia-smi")
			w.removePaths("usr/lib", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0")
			return nil, nil
		}, []string{"error device-nodes"}, "false", []string{"this container was given no GPU", "--gpus all"}},
		{"a card that the driver cannot start", nil, func(w *doctorMachine) (env, args []string) {
			w.addCard("0000:c1:00.0", "0x10de", "nvidia")
			return nil, nil
		}, []string{"error devices-shown"}, "false", []string{"the driver does not show the GPU at 0000:c1:00.0", "dmesg"}},
		{"a card that is not shown", makeA100s(2), func(w *doctorMachine) (env, args []string) {
			w.addCard("0000:c1:00.0", "0x10de", "nvidia")
			return nil, nil
		}, []string{"warning devices-shown"}, "true", []string{"0000:c1:00.0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newDoctorMachine(t, test.gpus...)
			env, args := test.prepare(w)
			o := w.runDoctor(env, args...)
			w.checkFindings(o, test.want...)
			if o.runsText() != test.runs {
				t.Errorf("runs: %s, want %s (%s)", o.runsText(), test.runs, o.Summary)
			}
			checkContains(t, o.Summary+"\n"+o.Next, test.says...)
		})
	}
}

// TestDoctorZombie: memory of a process that has ended and was not reaped.
func TestDoctorZombie(t *testing.T) {
	t.Parallel()
	w := newDoctorMachine(t, makeA100s(2)...)
	dead := exec.Command("true")
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dead.Wait() })
	waitUntil(t, "the process is a zombie", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", dead.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
	w.AddProcess(1, dead.Process.Pid, 20<<30, fakegpu.Compute)
	o := w.runDoctor(nil)
	w.checkFindings(o, "warning memory-holders")
	checkContains(t, o.Next, fmt.Sprintf("ps -fp $(ps -o ppid= -p %d)", dead.Process.Pid))
}

// TestDoctorNothingInstalled: a machine without a GPU, a driver, Python or anything else gets an answer in 2 seconds,
// with one thing that is wrong.
func TestDoctorNothingInstalled(t *testing.T) {
	t.Parallel()
	w := newDoctorMachine(t, fakegpu.A100(0))
	w.RemoveFile("lib/libnvidia-ml.so.1")
	w.RemoveFile("bin/nvidia-smi")
	for _, name := range []string{"proc", "sys", "dev", "usr", "home"} {
		w.removePaths(name)
	}
	w.makeFolders("proc", "dev/shm", "sys/bus/pci/devices")
	w.addCard("0000:00:02.0", "0x1234", "bochs-drm")
	w.writeFile("dev/kmsg", "")
	o := w.runDoctor(nil)
	for try := 1; o.took > 2*time.Second && try < 5; try++ { // that the machine is busy for a while says nothing
		o = w.runDoctor(nil)
	}
	w.checkFindings(o, "error gpu-present")
	if o.runsText() != "false" || o.took > 2*time.Second {
		t.Errorf("runs: %s, after %v", o.runsText(), o.took)
	}
	for _, f := range o.Findings {
		if f.Severity == "unknown" {
			t.Errorf("%s could not look: %s", f.Code, f.Seen)
		}
	}
}
