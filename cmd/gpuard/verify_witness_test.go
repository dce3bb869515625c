package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/proof"
	"gpuard/internal/gate"
)

// fakeTorchProgram is a Python program that seems to have PyTorch, and the PyTorch that it would import.
type fakeTorchProgram struct {
	program, said string // said is where the module writes to
	env           []string
}

// newFakeTorchProgram writes the program, which does then after "ready", and its module.
func newFakeTorchProgram(t *testing.T, module, then string) fakeTorchProgram {
	t.Helper()
	gate.Need(t, "python3")
	dir, err := os.MkdirTemp("/tmp", "gpuard-torchlike") // where other users may read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := fakeTorchProgram{program: filepath.Join(dir, "train.py"), said: filepath.Join(dir, "said"), env: []string{"PYTHONPATH=" + dir}}
	library := filepath.Join(dir, "libtorch_python.so")
	for name, text := range map[string]string{
		p.program: "import mmap, os, subprocess, time\nhere = os.path.dirname(__file__) + '/'\nmapped = mmap.mmap(os.open(\"" + library + "\", os.O_RDONLY), 0, prot=mmap.PROT_READ)\nprint('ready', flush=True)\n" + then,
		library:   "not a library", p.said: "",
		filepath.Join(dir, "torch.py"): fmt.Sprintf("import os, time\nprint(os.getpid(), os.getuid(), file=open(%q, 'a'), flush=True)\n%s", p.said, module),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = os.Chmod(dir, 0o755), os.Chmod(p.said, 0o666) //nolint:gosec // the importing process writes there, as any user
	return p
}

const cpuTorchModule = "__version__ = '2.5.1'\nclass version: cuda = hip = None\n"

// TestVerifyWitnessEnds: the process that asks the framework is gone when verify is, however that ended.
func TestVerifyWitnessEnds(t *testing.T) {
	t.Parallel()
	p := newFakeTorchProgram(t, "time.sleep(300)", `
while not os.path.exists(here + "go"):
    time.sleep(0.01)
subprocess.run(["fakegpu-job", "--gpu", "0"])
`)
	r := newFakeDriverMachine(t, makeA100s(1)...)
	pid := r.startUnleased(append(p.env, "CUDA_VISIBLE_DEVICES=-1"), "exec python3 "+p.program)
	for _, how := range []string{"SIGINT", "SIGTERM", "SIGKILL", "an answer"} {
		if err := os.Truncate(p.said, 0); err != nil {
			t.Fatal(err)
		}
		cmd := r.cmd("verify", "--json", fmt.Sprint(pid))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		asking := 0
		waitUntil(t, "the framework is asked", func() bool {
			text, _ := os.ReadFile(p.said)
			first, _, _ := strings.Cut(string(text), " ")
			asking, _ = strconv.Atoi(first)
			return asking > 0
		})
		if sig := unix.SignalNum(how); sig != 0 {
			_ = cmd.Process.Signal(sig)
		} else if err := os.WriteFile(filepath.Join(filepath.Dir(p.said), "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		waitUntil(t, "the one that asks is gone after "+how, func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", asking))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// TestRunVerifyPatience: a program that imports a framework for the CPU and computes in a child later is not ended for
// that.
func TestRunVerifyPatience(t *testing.T) {
	t.Parallel()
	p := newFakeTorchProgram(t, cpuTorchModule, `
for _ in range(3000):
    if os.path.getsize(here + "said"):
        break
    time.sleep(0.01)
time.sleep(1)
subprocess.run(["fakegpu-job", "--gpu", "0", "--seconds", "2"], check=True)
`)
	r := newFakeDriverMachine(t, makeA100s(1)...)
	got := runCommand(t, withEnv(r.cmd("run", "-q", "--verify=20s,stop", "--device", "0", "--", "python3", p.program), p.env...))
	checkEqual(t, "exit", got.code, 0)
	checkContains(t, got.err, "gpuard: proven: fakegpu-job")
	if said, _ := os.ReadFile(p.said); len(said) == 0 {
		t.Error("the framework was not asked")
	}
}

// TestVerifyHidden: what stands between gpuard and a program may hide the GPU from it. The line names the variable and the program that
// the command has become, and not a driver that would be too old.
func TestVerifyHidden(t *testing.T) {
	t.Parallel()
	p := newFakeTorchProgram(t, `
__version__ = "2.11.0"
class version:
    cuda = "13.0"
    hip = None
class cuda:
    @staticmethod
    def is_available(): return False
    @staticmethod
    def device_count(): return 0
    @staticmethod
    def current_device(): raise RuntimeError("No CUDA GPUs are available")
`, "time.sleep(300)")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	for how, text := range map[string]string{
		"sleep 1; CUDA_VISIBLE_DEVICES= exec": "PyTorch 2.11.0 (CUDA 13.0) finds no GPU: CUDA_VISIBLE_DEVICES= hides them all in process ", // its environment was read before
		"CUDA_VISIBLE_DEVICES= exec":          "CUDA_VISIBLE_DEVICES=",
	} {
		got := runCommand(t, withEnv(r.cmd("run", "-q", "--verify=5s,stop", "--", "sh", "-c", how+" python3 "+p.program), p.env...))
		checkContains(t, got.err, "not on any GPU (CPU fallback): python3 (process ", text, "; find what sets it between gpuard and the program, such as a script or a file of settings, and leave it to gpuard; told it to end (SIGTERM)")
	}
}

// TestVerifyOfAnother: root's verify never starts a user's program, which could do anything.
func TestVerifyOfAnother(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	p := newFakeTorchProgram(t, cpuTorchModule, "time.sleep(300)")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := exec.Command("/usr/bin/python3", p.program) // one that every user may read
	cmd.Env, cmd.Dir = append(os.Environ(), p.env...), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	startToFirstLine(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	v := r.mustVerify(proof.TooEarly, 123, "--for", "1s", fmt.Sprint(cmd.Process.Pid))
	if len(v.Frameworks) != 1 || v.Frameworks[0].Error != "not asked: the process belongs to nobody" {
		t.Errorf("%+v", v.Frameworks)
	}
	if said, _ := os.ReadFile(p.said); len(said) > 0 {
		t.Errorf("a module of the user nobody ran, as process and user %s", said)
	}
}
