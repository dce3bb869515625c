// Package gate lets a test say what it needs. Where that is missing the test is skipped, unless
// GPUARD_GATES demands it: then it fails. With GPUARD_GATES=none it fails where a program is there that
// has to be missing. Tests that did not run in full are written into the file that GPUARD_SKIPPED names. It is
// imported by tests only.
package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gpuard/internal/host/isolation"
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

// NeedStart is Need for what only its start tells, as of a daemon that a container does not let start: failure says why
// it did not, nil that it did.
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

// TracesFolder is the folder of the public traces, which t needs: GPUARD_TRACES, else shared/traces beside the
// repository.
func TracesFolder(t testing.TB) string {
	t.Helper()
	Need(t, "traces")
	return tracesFolder()
}

// CapturesFolder is the folder of what others have recorded of real cards, which t needs: GPUARD_CAPTURES, else
// shared/captures beside the repository.
func CapturesFolder(t testing.TB) string {
	t.Helper()
	Need(t, "captures")
	return capturesFolder()
}

func capturesFolder() string { return folderOf("GPUARD_CAPTURES", "../shared/captures") }

func tracesFolder() string { return folderOf("GPUARD_TRACES", "../shared/traces") }

// LibrariesFolder is the folder of a vendor's own libraries, nvidia or amd, which t needs: GPUARD_NVIDIA or GPUARD_AMD,
// else the one into which make nvidia or make amd puts them. Each version has a folder in it.
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

// recordSkipped writes the folder of the package and the name of the test, so that it can be run again where the gates
// are open.
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
	if err != nil {
		t.Fatal(err)
	}

	_, err = fmt.Fprintln(file, folder, name)
	err = errors.Join(err, file.Close())
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

// Driver says why there is no NVIDIA driver that works. A TestMain sets it to that of test/hardware: the tests of what
// asks the driver import this package.
var Driver = func() error { return errors.New("no test of this package asks for a GPU") }
