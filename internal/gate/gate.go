// Package gate lets a test say what it needs. Where that is missing the test is skipped, unless
// GPUARD_GATES demands it: then it fails. It is imported by tests only.
package gate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/proc"
)

// probe is what a gate looks at; the error is what the skipped or failed test shows.
type probe struct {
	name string
	here func() error
}

// probes lists every gate. "gpu" and "kubernetes" are not part of GPUARD_GATES=all, nor is "cgroup2": most containers mount
// it read-only, and under systemd it belongs to systemd; nor "fuse", which most containers forbid.
func probes() []probe {
	return []probe{
		{"cc", program("cc")},
		{"root", root},
		{"pidns", pidNamespace},
		{"netns", networkNamespace},
		{"mntns", mountNamespace},
		{"userns", userNamespace},
		{"bwrap", bubblewrap},
		{"cgroup2", cgroup2},
		{"fuse", fuse},
		{"ptrace", traceable},
		{"python3", program("python3")},
		{"torch", torch},
		{"jupyter", jupyter},
		{"parallel", program("parallel")},
		{"tsp", program("tsp")},
		{"fish", program("fish")},
		{"direnv", program("direnv")},
		{"zsh", program("zsh")},
		{"less", program("less")},
		{"systemd", program("systemd-analyze")},
		{"gio", program("gio")},
		{"desktop-file-validate", program("desktop-file-validate")},
		{"man", program("man")},
		{"nfpm", nfpm},
		{"dpkg", program("dpkg")},
		{"rpm", program("rpm")},
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
		return !slices.Contains([]string{"gpu", "kubernetes", "cgroup2", "fuse"}, name)
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

// jupyter is the distribution's Jupyter client with its kernel, for the distribution's Python.
func jupyter() error {
	return exec.Command("/usr/bin/python3", "-c", "import jupyter_client, ipykernel").Run()
}

// nfpm is what make release makes packages with, at the place where make installs it.
func nfpm() error {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, lost := os.Stat(filepath.Join(dir, "go.mod")); lost == nil {
			if _, err = os.Stat(filepath.Join(dir, ".cache/bin/nfpm")); err != nil {
				err = fmt.Errorf("%w; make .cache/bin/nfpm installs it", err)
			}
			return err
		}
		dir = filepath.Dir(dir)
	}
	return errors.Join(err, errors.New("this is not in the repository"))
}

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

// cgroup2: we may make cgroups of version 2 below our own, and nobody else manages those here.
func cgroup2() error {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return errors.New("systemd manages them")
	}
	const find = `own=$(sed -n s/^0:://p /proc/self/cgroup) && for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do
test -w "$at$own/cgroup.procs" && test -z "$(cat "$at$own/cgroup.subtree_control")" && exit 0; done; exit 1`
	return exec.Command("sh", "-c", find).Run()
}

// fuse: root may mount file systems that a process answers for.
func fuse() error {
	if err := root(); err != nil {
		return err
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close() //nolint:errcheck // nothing was written
	return exec.Command("unshare", "--mount", "true").Run()
}

// networkNamespace: root may make networks of its own, which some containers forbid.
func networkNamespace() error {
	if err := root(); err != nil {
		return err
	}
	return exec.Command("unshare", "--net", "true").Run()
}

// mountNamespace: root may make one, and is in the machine's own.
func mountNamespace() error {
	if err := root(); err != nil {
		return err
	}
	if initial, err := proc.New("/proc").InitialMountNamespace(); err != nil {
		return err
	} else if !initial {
		return errors.New("this is not the machine's own mount namespace")
	}
	return exec.Command("unshare", "--mount", "true").Run()
}

// userNamespace: ordinary users may make one, which some containers and distributions forbid.
func userNamespace() error { return ordinary("unshare", "--user", "--map-current-user", "true") }

func bubblewrap() error { return ordinary("bwrap", "--dev-bind", "/", "/", "true") }

// ordinary runs a program as a user who is not root.
func ordinary(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	if os.Geteuid() == 0 {
		const daemon = 1
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: daemon, Gid: daemon}}
	}
	return cmd.Run()
}

func pidNamespace() error {
	if err := root(); err != nil {
		return err
	}
	return exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run()
}
