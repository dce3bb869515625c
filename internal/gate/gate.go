// Package gate lets a test say what it needs. Where that is missing the test is skipped, unless
// GPUARD_GATES demands it: then it fails. With GPUARD_GATES=none it fails where a program is there that
// has to be missing. Tests that did not run in full are written into the file that GPUARD_SKIPPED names. It is
// imported by tests only.
package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/isolation"
	"gpuard/internal/host/loader"
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
	// A program: all demands it, none forbids it.
	installed kind = iota
	// A right that root has almost everywhere: all demands it.
	granted
	// Only a list that names it demands it.
	rare
)

// gates ask whether the thing works, each at its first use in a process: a program that is there may be another of that
// name, or the stub of a distribution.
var gates = askOnce(probes())

func askOnce(list []probe) []probe {
	for i := range list {
		list[i].here = sync.OnceValue(list[i].here)
	}
	return list
}

// probes lists every gate. Most containers mount cgroup2 read-only, and systemd keeps it for itself; most forbid fuse.
// .ci/bare reads the names of programs out of this list and removes them.
func probes() []probe {
	return []probe{
		{"cc", bothProbes(program("cc --version"), checkCompiler), installed},
		{"root", checkRoot, granted},
		{"mountns", mountNamespace, granted},
		{"privileged", checkPrivileged, granted},
		{"pidns", namespaceProbe("--pid", "--fork", "--mount-proc"), granted},
		{"netns", namespaceProbe("--net"), granted},
		{"timens", namespaceProbe("--time", "--boottime", "1000", "--fork"), granted},
		{"userns", userNamespace, granted},
		{"isolation", bothProbes(noObstacle(isolation.NamespaceObstacle), noObstacle(isolation.LandlockObstacle)), granted},
		{"devicefilter", noObstacle(isolation.Cgroup), rare},
		{"bwrap", bothProbes(program("bwrap --version"), checkBubblewrap), installed},
		{"cgroup2", cgroup2, rare},
		{"cgroup1", cgroup1, rare},
		{"fuse", checkFuse, rare},
		{"ptrace", checkTraceable, granted},
		{"python3", program("python3 -m ctypes._endian"), installed},
		{"torch", checkTorch, installed},
		{"jupyter", checkJupyter, installed},
		{"parallel", program("parallel --minversion 1"), installed},
		{"podman", program("podman --version", "runc --version"), installed},
		{"slurm", program("slurmctld -V", "slurmd -V", "munged --version", "sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel"), installed},
		{"docker", program("docker --version", "dockerd --version"), installed},
		{"compose", checkCompose, installed},
		{"tsp", program("tsp -V"), installed},
		{"dash", program("dash -c :"), installed},
		{"fish", program("fish --version"), installed},
		{"direnv", program("direnv version"), installed},
		{"zsh", program("zsh -fc :"), installed},
		{"less", program("less --version"), installed},
		{"tmux", program("tmux -V"), installed},
		{"procps", program("ps --version", "pkill --version"), installed},
		{"systemd", program("systemd-analyze --version", "systemd-tmpfiles --version", "systemd-socket-activate --version"), installed},
		{"gio", program("gio version"), installed},
		{"prometheus", program("prometheus --version", "promtool --version"), installed},
		{"chromium", program("chromium --version"), installed},
		{"desktop-file-validate", program("desktop-file-validate --help"), installed},
		{"man", program("man --version", "groff --version"), installed},
		{"nfpm", checkNFPM, installed},
		{"dpkg", program("dpkg --version", "dpkg-deb --version"), installed},
		{"rpm", program("rpm --version"), installed},
		{"gpu", checkDriver, rare},
		{"no nvidia libraries", checkNoLibraries, rare},
		{"traces", func() error { return fileProbe(filepath.Join(tracesFolder(), "philly_11cb48.csv.gz"))() }, rare},
		{"captures", func() error { return fileProbe(capturesFolder())() }, rare},
		{"nvidia", findLibrary("nvidia", "libcuda.so.1"), rare},
		{"amd", findLibrary("amd", "libhsa-runtime64.so.1"), rare},
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
		p.enforceGate(t)
	}
}

// NeedStart is Need for what only its start tells, as of a daemon that a container does not let start: failure says why it
// did not, nil that it did.
func NeedStart(t testing.TB, name string, failure error) {
	t.Helper()
	p, known := probeOf(name)
	if !known {
		t.Fatalf("cannot find the gate %q: the list is in internal/gate/gate.go", name)
	}
	if failure != nil {
		p.here = func() error { return failure }
		p.enforceGate(t)
	}
}

func (p probe) enforceGate(t testing.TB) {
	t.Helper()
	fails, skipped := p.judgeProbe(os.Getenv("GPUARD_GATES"))
	if fails != "" {
		t.Fatal(fails)
	}
	if skipped != "" {
		recordSkipped(t)
		t.Skip(skipped)
	}
}

// judgeProbe says why a test that needs p fails, or why it is skipped.
func (p probe) judgeProbe(wanted string) (fails, skipped string) {
	err := p.here()
	switch {
	case err == nil && wanted == "none" && p.kind == installed:
		return fmt.Sprintf("gate %s is open, and GPUARD_GATES=none says that there are no programs: remove it", p.name), ""
	case err == nil:
		return "", ""
	case p.isRequired(wanted):
		return fmt.Sprintf("gate %s is required by GPUARD_GATES and missing: %v", p.name, err), ""
	}
	return "", fmt.Sprintf("gate %s: %v", p.name, err)
}

// SoakCount is how often a test tries something: the usual number, or the large one with GPUARD_SOAK=1 (make soak).
func SoakCount(large, usual int) int {
	if os.Getenv("GPUARD_SOAK") == "1" {
		return large
	}
	return usual
}

// TracesFolder is the folder of the public traces, which t needs: GPUARD_TRACES, else shared/traces beside the repository.
func TracesFolder(t testing.TB) string {
	t.Helper()
	Need(t, "traces")
	return tracesFolder()
}

// CapturesFolder is the folder of what others have recorded of real cards, which t needs: GPUARD_CAPTURES, else shared/captures
// beside the repository.
func CapturesFolder(t testing.TB) string {
	t.Helper()
	Need(t, "captures")
	return capturesFolder()
}

func capturesFolder() string { return folderOf("GPUARD_CAPTURES", "../shared/captures") }

func tracesFolder() string { return folderOf("GPUARD_TRACES", "../shared/traces") }

// LibrariesFolder is the folder of a vendor's own libraries, nvidia or amd, which t needs: GPUARD_NVIDIA or GPUARD_AMD, else the one
// into which make nvidia or make amd puts them. Each version has a folder in it.
func LibrariesFolder(t testing.TB, vendor string) string {
	t.Helper()
	Need(t, vendor)
	return librariesFolder(vendor)
}

func librariesFolder(vendor string) string {
	return folderOf("GPUARD_"+strings.ToUpper(vendor), ".cache/"+vendor)
}

// findLibrary fails where no version of the vendor's libraries is there.
func findLibrary(vendor, library string) func() error {
	return func() error {
		if found, _ := filepath.Glob(filepath.Join(librariesFolder(vendor), "*", library)); len(found) == 0 {
			return fmt.Errorf("there is no %s/VERSION/%s; make %s fetches it", librariesFolder(vendor), library, vendor)
		}
		return nil
	}
}

// folderOf is what a variable names, else path in the repository.
func folderOf(variable, path string) string {
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, lost := os.Stat(filepath.Join(dir, "go.mod")); lost == nil {
			return filepath.Join(dir, path)
		}
		dir = filepath.Dir(dir)
	}

	return filepath.Join("/nowhere", path)
}

// Has reports whether the machine has what name means, for a part of t.
func Has(t testing.TB, name string) bool {
	t.Helper()
	p, known := probeOf(name)
	has := known && (p.here() == nil || p.isRequired(os.Getenv("GPUARD_GATES")))
	if known && !has {
		recordSkipped(t)
	}

	return has
}

// recordSkipped writes the folder of the package and the name of the test, so that it can be run again where the gates are
// open.
func recordSkipped(t testing.TB) {
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
	i := slices.IndexFunc(gates, func(p probe) bool { return p.name == name })
	if i < 0 {
		return probe{}, false
	}
	return gates[i], true
}

func (p probe) isRequired(wanted string) bool {
	names := strings.Split(wanted, ",")
	return slices.Contains(names, p.name) || slices.Contains(names, "all") && p.kind != rare
}

// program: these command lines end with 0. The first word of each is the name of the program; where there is only that, it is
// looked for and not run.
func program(lines ...string) func() error {
	return func() error {
		for _, line := range lines {
			words := strings.Fields(line)
			if _, err := exec.LookPath(words[0]); err != nil {
				return err
			}
			if len(words) == 1 {
				// Slurm's own say nothing, not even their version, without a cluster.
				continue
			}
			if err := runBriefly(words[0], words[1:]...); err != nil {
				return err
			}
		}
		return nil
	}
}

// runBriefly runs a program that answers at once where it works.
func runBriefly(name string, args ...string) error {
	// On a loaded machine.
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}

	return nil
}

// bothProbes: the one, and then the other.
func bothProbes(one, other func() error) func() error {
	return func() error {
		if err := one(); err != nil {
			return err
		}
		return other()
	}
}

func fileProbe(path string) func() error {
	return func() error { _, err := os.Stat(path); return err }
}

// checkTorch is the distribution's PyTorch, for the distribution's Python.
func checkTorch() error { return runBriefly("/usr/bin/python3", "-c", "import torch") }

// checkJupyter is the distribution's Jupyter client with its kernel, for the distribution's Python.
func checkJupyter() error {
	return runBriefly("/usr/bin/python3", "-c", "import jupyter_client, ipykernel")
}

// checkCompose is the plugin that docker compose is.
func checkCompose() error {
	if err := runBriefly("docker", "compose", "version"); err != nil {
		return fmt.Errorf("%w; make compose installs it", err)
	}
	return nil
}

// checkNFPM is what make release makes packages with, at the place where make installs it.
func checkNFPM() error {
	if err := fileProbe(folderOf("", ".cache/bin/nfpm"))(); err != nil {
		return fmt.Errorf("%w; make .cache/bin/nfpm installs it", err)
	}
	return nil
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return unix.EPERM
	}
	return nil
}

// checkTraceable: a process may follow another one, which some containers forbid.
func checkTraceable() error {
	// The tracer is a thread.
	runtime.LockOSThread()
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

// checkFuse: root may mount file systems that a process answers for.
func checkFuse() error {
	if err := checkRoot(); err != nil {
		return err
	}

	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}

	defer device.Close() //nolint:errcheck // nothing was written

	return namespaceProbe("--mount")()
}

// checkPrivileged: root may mount, and read what belongs to the processes of others. A container gives that only where it is
// asked to (docker run --privileged).
func checkPrivileged() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return err
	}
	if held[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return errors.New("CAP_SYS_PTRACE is missing")
	}

	return namespaceProbe("--mount")()
}

// namespaceProbe: root may make namespaces of its own and mount in them, which some containers forbid.
func namespaceProbe(flags ...string) func() error {
	return func() error {
		if err := checkRoot(); err != nil {
			return err
		}
		return exec.Command("unshare", append(flags, "true")...).Run()
	}
}

// mountNamespace: root may make one, and is in the machine's own.
func mountNamespace() error {
	if err := checkRoot(); err != nil {
		return err
	}
	if initial, err := proc.New("/proc").InitialMountNamespace(); err != nil {
		return err
	} else if !initial {
		return errors.New("this is not the machine's own mount namespace")
	}
	return namespaceProbe("--mount")()
}

// noObstacle is for what says why it is not.
func noObstacle(why func() string) func() error {
	return func() error {
		if text := why(); text != "" {
			return errors.New(text)
		}
		return nil
	}
}

// userNamespace: ordinary users may make one, which some containers and distributions forbid.
func userNamespace() error { return runAsUser("unshare", "--user", "--map-current-user", "true") }

// runAsUser runs a program as a user who is not root.
func runAsUser(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	if os.Geteuid() == 0 {
		const daemon = 1
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: daemon, Gid: daemon}}
	}
	return cmd.Run()
}

func checkBubblewrap() error { return runAsUser("bwrap", "--dev-bind", "/", "/", "true") }

// checkCompiler: it makes a library. Some machines have it without the headers of C.
func checkCompiler() error {
	dir, err := os.MkdirTemp("", "gpuard-cc")
	if err != nil {
		return err
	}

	source := filepath.Join(dir, "a.c")
	err = os.WriteFile(source, []byte("#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n"), 0o600)
	if err == nil {
		err = runBriefly("cc", "-o", filepath.Join(dir, "a"), source)
	}

	return errors.Join(err, os.RemoveAll(dir))
}

// Driver says why there is no NVIDIA driver that works. A TestMain sets it to that of test/hardware: the tests of what asks the
// driver import this package.
var Driver = func() error { return errors.New("no test of this package asks for a GPU") }

func checkDriver() error { return Driver() }

// checkNoLibraries: what a test takes away, the loader does not find elsewhere.
func checkNoLibraries() error {
	found, err := loader.Search{Root: "/", Path: os.Getenv("LD_LIBRARY_PATH")}.Libraries()
	if err != nil {
		return err
	}

	for _, name := range []string{"libnvidia-ml.so.1", "libcuda.so.1"} {
		if library, ok := loader.FirstNamed(found, name); ok {
			return fmt.Errorf("there is %s", library.Path)
		}
	}

	return nil
}

// cgroup1: root may make cgroups of the first version that hide devices.
func cgroup1() error {
	const own = "/sys/fs/cgroup/devices/gpuard-gate"
	err := os.Mkdir(own, 0o755) //nolint:gosec // as its parent
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := fileProbe(own + "/tasks")(); err != nil {
		return err
	}

	// Another process may ask the same.
	_ = os.Remove(own)

	return nil
}
