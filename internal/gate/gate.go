// Package gate lets a test say what it needs. Where that is missing the test is skipped, unless
// GPUARD_GATES demands it: then it fails. With GPUARD_GATES=none it fails where a program is there that
// has to be missing. Tests that did not run in full are written into the file that GPUARD_SKIPPED names. It is
// imported by tests only.
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

// probe is the condition of a gate; its error is shown by the skipped or failed test.
type probe struct {
	name string
	here func() error
	kind kind
}

// kind says which values of GPUARD_GATES mean a probe.
type kind int

const (
	installed kind = iota // a program: all demands it, none forbids it
	granted               // a right that root has almost everywhere: all demands it
	rare                  // only a list that names it demands it
)

// probes lists every gate. Most containers mount cgroup2 read-only, and systemd keeps it for itself; most forbid fuse.
// .ci/bare reads the names of programs out of this list and removes them.
func probes() []probe {
	return []probe{
		{"cc", program("cc"), installed},
		{"root", root, granted},
		{"mountns", mountNamespace, granted},
		{"privileged", privileged, granted},
		{"pidns", namespace("--pid", "--fork", "--mount-proc"), granted},
		{"netns", namespace("--net"), granted},
		{"timens", namespace("--time", "--boottime", "1000", "--fork"), granted},
		{"userns", userNamespace, granted},
		{"bwrap", bubblewrap, installed},
		{"cgroup2", cgroup2, rare},
		{"cgroup1", file("/sys/fs/cgroup/devices/tasks"), rare},
		{"fuse", fuse, rare},
		{"ptrace", traceable, granted},
		{"python3", program("python3"), installed},
		{"torch", torch, installed},
		{"jupyter", jupyter, installed},
		{"parallel", program("parallel"), installed},
		{"podman", program("podman", "runc"), installed},
		{"slurm", program("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel"), installed},
		{"docker", program("docker", "dockerd"), installed},
		{"compose", compose, installed},
		{"tsp", program("tsp"), installed},
		{"dash", program("dash"), installed},
		{"fish", program("fish"), installed},
		{"direnv", program("direnv"), installed},
		{"zsh", program("zsh"), installed},
		{"less", program("less"), installed},
		{"procps", program("ps", "pkill"), installed},
		{"systemd", program("systemd-analyze", "systemd-tmpfiles", "systemd-socket-activate"), installed},
		{"gio", program("gio"), installed},
		{"prometheus", program("prometheus", "promtool"), installed},
		{"chromium", program("chromium"), installed},
		{"desktop-file-validate", program("desktop-file-validate"), installed},
		{"man", program("man", "groff"), installed},
		{"nfpm", nfpm, installed},
		{"dpkg", program("dpkg", "dpkg-deb"), installed},
		{"rpm", program("rpm"), installed},
		{"gpu", file("/dev/nvidiactl"), rare},
		{"traces", func() error { return file(filepath.Join(traces(), "philly_11cb48.csv.gz"))() }, rare},
	}
}

// Need skips t unless the machine has what name means; with GPUARD_GATES=all, or a list that contains name, it fails t
// instead. t must be the test that runs, not one around it and not a value that contains a test: the layout test checks
// every call.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		p, known := probeOf(name)
		if !known {
			t.Fatalf("cannot find the gate %q: the list is in internal/gate/gate.go", name)
		}
		fails, skipped := p.judge(os.Getenv("GPUARD_GATES"))
		if fails != "" {
			t.Fatal(fails)
		}
		if skipped != "" {
			leftOut(t)
			t.Skip(skipped)
		}
	}
}

// judge says why a test that needs p fails, or why it is skipped.
func (p probe) judge(wanted string) (fails, skipped string) {
	err := p.here()
	switch {
	case err == nil && wanted == "none" && p.kind == installed:
		return fmt.Sprintf("gate %s is open, and GPUARD_GATES=none says that there are no programs: remove it", p.name), ""
	case err == nil:
		return "", ""
	case p.required(wanted):
		return fmt.Sprintf("gate %s is required by GPUARD_GATES and missing: %v", p.name, err), ""
	}
	return "", fmt.Sprintf("gate %s: %v", p.name, err)
}

// Traces is the folder of the public traces, which t needs: GPUARD_TRACES, else shared/traces beside the repository.
func Traces(t testing.TB) string {
	t.Helper()
	Need(t, "traces")
	return traces()
}

func traces() string {
	if dir := os.Getenv("GPUARD_TRACES"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, lost := os.Stat(filepath.Join(dir, "go.mod")); lost == nil {
			return filepath.Join(dir, "../shared/traces")
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// Has reports whether the machine has what name means, for a part of t.
func Has(t testing.TB, name string) bool {
	t.Helper()
	p, known := probeOf(name)
	has := known && (p.here() == nil || p.required(os.Getenv("GPUARD_GATES")))
	if known && !has {
		leftOut(t)
	}
	return has
}

// leftOut writes the folder of the package and the name of the test, so that it can be run again where the gates are
// open.
func leftOut(t testing.TB) {
	t.Helper()
	path := os.Getenv("GPUARD_SKIPPED")
	if path == "" {
		return
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // the path is the caller's
	if err == nil {
		_, err = fmt.Fprintln(file, folder, name)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func probeOf(name string) (p probe, known bool) {
	i := slices.IndexFunc(probes(), func(p probe) bool { return p.name == name })
	if i < 0 {
		return probe{}, false
	}
	return probes()[i], true
}

func (p probe) required(wanted string) bool {
	if wanted == "all" {
		return p.kind != rare
	}
	return slices.Contains(strings.Split(wanted, ","), p.name)
}

func program(names ...string) func() error {
	return func() error {
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				return err
			}
		}
		return nil
	}
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

// compose is the plugin that docker compose is.
func compose() error {
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		return fmt.Errorf("docker compose version: %w; make compose installs it", err)
	}
	return nil
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

// cgroup2: this process may make cgroups of version 2 below its own, and no other manager uses those.
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
	return namespace("--mount")()
}

// privileged: root may mount, and read what belongs to the processes of others. A container gives that only where it is
// asked to (docker run --privileged).
func privileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return err
	}
	if held[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return errors.New("CAP_SYS_PTRACE is missing")
	}
	return namespace("--mount")()
}

// namespace: root may make namespaces of its own and mount in them, which some containers forbid.
func namespace(flags ...string) func() error {
	return func() error {
		if err := root(); err != nil {
			return err
		}
		return exec.Command("unshare", append(flags, "true")...).Run()
	}
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
	return namespace("--mount")()
}

// userNamespace: ordinary users may make one, which some containers and distributions forbid.
func userNamespace() error { return ordinary("unshare", "--user", "--map-current-user", "true") }

// ordinary runs a program as a user who is not root.
func ordinary(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	if os.Geteuid() == 0 {
		const daemon = 1
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: daemon, Gid: daemon}}
	}
	return cmd.Run()
}

func bubblewrap() error {
	if err := program("bwrap")(); err != nil {
		return err
	}
	return ordinary("bwrap", "--dev-bind", "/", "/", "true")
}
