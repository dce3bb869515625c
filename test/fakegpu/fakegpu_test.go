package fakegpu

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

func exportedSymbols(t *testing.T, library string) []string {
	t.Helper()
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF {
			out = append(out, s.Name)
		}
	}
	return out
}

func TestLibraryExportsOnlyWhatTheHeaderDeclares(t *testing.T) {
	t.Parallel()
	paths := Build(t)
	header, err := os.ReadFile(filepath.Join(Header(t), "nvml.h"))
	if err != nil {
		t.Fatal(err)
	}
	have := exportedSymbols(t, paths.Library)
	if len(have) < 50 {
		t.Errorf("the library exports %d functions, want the 50 and more that a reader calls", len(have))
	}
	for _, name := range have {
		if !regexp.MustCompile(`\b` + name + `\(`).Match(header) {
			t.Errorf("the library exports %s, which nvml.h does not declare", name)
		}
	}
}

func TestWithoutHidesSymbols(t *testing.T) {
	t.Parallel()
	d := New(t, A100(0))
	if !slices.Contains(exportedSymbols(t, d.Library()), "nvmlDeviceGetMemoryInfo_v2") {
		t.Fatal("nvmlDeviceGetMemoryInfo_v2 is missing from the full library")
	}
	d.HideSymbols("nvmlDeviceGetMemoryInfo_v2", "nvmlEventSetWait_v2")
	have := exportedSymbols(t, d.Library())
	for _, gone := range []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlEventSetWait_v2"} {
		if slices.Contains(have, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	if !slices.Contains(have, "nvmlDeviceGetMemoryInfo") {
		t.Error("a symbol whose name is the beginning of a hidden one was hidden too")
	}
}

func TestBuildIsShared(t *testing.T) {
	first, second := Build(t), Build(t)
	if first != second {
		t.Errorf("two builds of the same sources: %v and %v", first, second)
	}
	other := Build(t, "nvmlShutdown")
	if other.Library == first.Library {
		t.Error("a library without a symbol has the path of the full one")
	}
	if other.SMI != first.SMI || other.Job != first.Job {
		t.Error("only the library loses a symbol, but the programs were built again")
	}
}

func TestMachineIsTheSameEveryTime(t *testing.T) {
	a, b := New(t, A100(0), H100(1)), New(t, A100(0), H100(1))
	for _, gpu := range []string{"0", "1"} {
		x, err1 := os.ReadFile(filepath.Join(a.Dir, "gpus", gpu, "values"))
		y, err2 := os.ReadFile(filepath.Join(b.Dir, "gpus", gpu, "values"))
		if err1 != nil || err2 != nil || string(x) != string(y) || !strings.Contains(string(x), "uuid ") {
			t.Errorf("gpus/%s: %q %v and %q %v", gpu, x, err1, y, err2)
		}
	}
	if A100(0)["uuid"] == A100(1)["uuid"] || A100(0)["pci"] == A100(1)["pci"] {
		t.Error("two devices have one identity")
	}
}

func TestOtherUsersCanReadTheMachine(t *testing.T) {
	d := New(t, A100(0))
	for dir := d.Dir; dir != filepath.Dir(os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 != 0o005 {
			t.Errorf("%s has mode %v: another user cannot enter it", dir, info.Mode())
		}
	}
	info, err := os.Stat(filepath.Join(d.Dir, "gpus", "0", "procs.d"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("procs.d has mode %v: jobs of another user cannot put themselves on the device", info.Mode())
	}
}

// The C sources are what a person reads to know what the fake does, so they keep the limits of the Go files.
func TestSourcesAreShort(t *testing.T) {
	files, err := sources.ReadDir("c")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := sources.ReadFile("c/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > 500 {
			t.Errorf("c/%s has %d lines, at most 500", f.Name(), n)
		}
	}
}

// machineCommand runs a program of the machine with nothing of this process's environment but PATH.
func machineCommand(d *Driver, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.Dir, "bin", name), args...)
	cmd.Env = d.Env()
	return cmd
}

// TestHeaderIsFetched: nvml.h is there also where the module cache is empty, as on a machine on which only one package
// is tested. It comes from the cache that this machine has.
func TestHeaderIsFetched(t *testing.T) {
	gate.Need(t, "cc") // else this machine may have no such module
	Header(t)
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, value := range map[string]string{"GOMODCACHE": empty, "GOFLAGS": "-modcacherw", "GOPROXY": "file://" + filepath.Join(strings.TrimSpace(string(modules)), "cache/download")} {
		t.Setenv(name, value)
	}
	header := filepath.Join(Header(t), "nvml.h")
	if info, err := os.Stat(header); err != nil || info.Size() == 0 || !strings.HasPrefix(header, empty+"/") {
		t.Errorf("%s: %v", header, err)
	}
}
