// Package gate lets a test say what it needs. Where that is missing the test is skipped, unless
// GPUARD_GATES demands it: then it fails. It is imported by tests only.
package gate

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// probe is what a gate looks at; the error is what the skipped or failed test shows.
type probe struct {
	name string
	here func() error
}

// probes lists every gate. "gpu" and "kubernetes" are not part of GPUARD_GATES=all.
func probes() []probe {
	return []probe{
		{"cc", program("cc")},
		{"root", root},
		{"pidns", pidNamespace},
		{"ptrace", traceable},
		{"python3", program("python3")},
		{"torch", torch},
		{"parallel", program("parallel")},
		{"tsp", program("tsp")},
		{"fish", program("fish")},
		{"zsh", program("zsh")},
		{"less", program("less")},
		{"gpu", file("/dev/nvidiactl")},
	}
}

// Need skips t unless the machine has what name stands for; with GPUARD_GATES=all, or a list that contains name, it fails t instead.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		i := slices.IndexFunc(probes(), func(p probe) bool { return p.name == name })
		if i < 0 {
			t.Fatalf("cannot find the gate %q: the list is in internal/gate/gate.go", name)
		}
		err := probes()[i].here()
		if err == nil {
			continue
		}
		if required(name, os.Getenv("GPUARD_GATES")) {
			t.Fatalf("gate %s is required by GPUARD_GATES and missing: %v", name, err)
		}
		t.Skipf("gate %s: %v", name, err)
	}
}

// Has reports whether the machine has what name stands for, for script conditions.
func Has(name string) bool {
	i := slices.IndexFunc(probes(), func(p probe) bool { return p.name == name })
	return i >= 0 && (probes()[i].here() == nil || required(name, os.Getenv("GPUARD_GATES")))
}

func required(name, list string) bool {
	if list == "all" {
		return name != "gpu" && name != "kubernetes"
	}
	return slices.Contains(strings.Split(list, ","), name)
}

func program(name string) func() error {
	return func() error { _, err := exec.LookPath(name); return err }
}

func file(path string) func() error {
	return func() error { _, err := os.Stat(path); return err }
}

// torch is the distribution's PyTorch, for the distribution's Python.
func torch() error { return exec.Command("/usr/bin/python3", "-c", "import torch").Run() }

func root() error {
	if os.Geteuid() != 0 {
		return unix.EPERM
	}
	return nil
}

// traceable: a process may follow another one, which some containers forbid.
func traceable() error {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	return nil
}

func pidNamespace() error {
	if err := root(); err != nil {
		return err
	}
	return exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run()
}
