package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

// place is a machine and a state folder of its own.
type place struct {
	driver *fakegpu.Driver // nil for an invented machine
	env    []string
	leases string
	flags  []string // what run needs where the benchmarks run in a container
}

// run is the command line that starts a command there.
func (p place) run(gpuard string, command ...string) []string {
	return slices.Concat([]string{gpuard, "run", "--quiet", "--no-wait"}, p.flags, []string{"--"}, command)
}

func newPlace(b testing.TB, env ...string) place {
	state := filepath.Join(memory(b), "state")
	return place{env: append(env, "GPUARD_STATE="+state, "XDG_STATE_HOME="+b.TempDir()), leases: state}
}

// memory is a folder on a tmpfs, as /run is where the leases of real hardware lie; on a disk the file system's own work
// would be measured. Where there is none, a folder on disk has to do.
func memory(b testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "gpuard-bench-")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func overDemo(b testing.TB) place { return newPlace(b) }

// overFake is a machine with n idle devices of the fake driver, read as a real one is.
func overFake(b *testing.B, n int) place {
	var devices []fakegpu.GPU
	for i := range n {
		devices = append(devices, fakegpu.A100(i))
	}
	driver := fakegpu.New(b, devices...)
	p := newPlace(b, driver.Env()...)
	p.driver = driver
	processes := proc.New("/proc")
	pids, err := processes.InitialPIDNamespace()
	mounts, merr := processes.InitialMountNamespace()
	if err != nil || merr != nil || !pids || !mounts {
		p.flags = []string{"--private-state"}
	}
	return p
}

// settle waits until the holder of the last run has cleaned up, so that it is not counted against the next program.
func (p place) settle() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		locked := false
		_ = filepath.WalkDir(p.leases, func(name string, _ os.DirEntry, _ error) error {
			locked = locked || strings.HasSuffix(name, ".lock")
			return nil
		})
		if !locked {
			return
		}
	}
}

func buildProgram(b testing.TB) string {
	b.Helper()
	return build(b, filepath.Join(b.TempDir(), "gpuard"))
}

// build makes the program of that name there.
func build(b testing.TB, out string) string {
	b.Helper()
	build := exec.Command("go", "build", "-trimpath", "-o", out, "gpuard/cmd/"+filepath.Base(out))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("cannot build %s: %v\n%s", filepath.Base(out), err, text)
	}
	return out
}

func command(argv, env []string) *exec.Cmd {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env...)
	return c
}

// holdersOf waits for n holder processes, known by their program and first argument.
func holdersOf(b *testing.B, program string, n int) []int {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var pids []int
		names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range names {
			dir := filepath.Dir(name)
			exe, _ := os.Readlink(filepath.Join(dir, "exe"))
			args, _ := os.ReadFile(name)
			if exe == program && bytes.Contains(args, []byte("\x00__hold\x00")) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				pids = append(pids, pid)
			}
		}
		if len(pids) == n {
			return pids
		}
	}
	b.Fatalf("cannot find the holders of %d running jobs", n)
	return nil
}

// memoryOf reads /proc/PID/smaps_rollup (proc_pid_smaps(5)), in bytes.
func memoryOf(b *testing.B, pid int) (private, resident int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "Private_Clean:", "Private_Dirty:", "Private_Hugetlb:":
			private += kib << 10
		case "Rss:":
			resident = kib << 10
		}
	}
	return private, resident
}

// quantile is the smallest value that at least q of all do not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// goal fails the benchmark where a goal is missed; what follows is still measured.
func goal(b *testing.B, met bool) string {
	b.Helper()
	if !met {
		b.Fail()
	}
	return verdict(met)
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

func TestQuantile(t *testing.T) {
	all := make([]time.Duration, 100)
	for i := range all {
		all[i] = time.Duration(100 - i)
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile(1..100, %v) = %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}
