package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
	"gpuard/test/nvidia"
)

// lab is the program over NVIDIA's own libraries, with a state folder of its own.
type lab struct {
	*nvidia.Lab
	t     testing.TB
	state string
}

// overNVIDIA runs a test with each version of NVIDIA's libraries.
func overNVIDIA(t *testing.T, machine string, test func(t *testing.T, l *lab)) {
	t.Helper()
	t.Parallel()
	for _, library := range nvidia.Libraries(t) {
		t.Run(library.Version, func(t *testing.T) {
			t.Parallel()
			test(t, &lab{nvidia.New(t, library, machine), t, stateFolder(t)})
		})
	}
}

func (l *lab) cmd(args ...string) *exec.Cmd {
	l.t.Helper()
	if contained() && args[0] == "run" {
		args = append([]string{"run", "--private-state"}, args[1:]...)
	}
	return program(l.t, l.state, l.Env(), args...)
}

// job starts one that prints what libcuda shows it, and lasts until the end of the test. Where the driver was slow, gpuard stays
// beside its command, which a kill of gpuard would not end.
func (l *lab) job(args ...string) (code int, shown []gpu.UUID) {
	l.t.Helper()
	cmd := l.cmd(slices.Concat([]string{"run", "-q"}, args, []string{"--", "sh", "-c", strings.Join(l.Own(), " ") + "; read end"})...)
	input, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	line := begin(l.t, cmd)
	l.t.Cleanup(func() { _ = input.Close() })
	return l.Shown(line)
}

func (l *lab) status() status.Report {
	l.t.Helper()
	s, _ := statusOf(l.t, l.cmd("status", "--json"))
	return s
}

// leases are the devices that have one, slices too.
func (l *lab) leases() (ids []gpu.UUID) {
	l.t.Helper()
	for _, d := range l.status().Devices {
		for _, d := range append([]status.Device{d}, d.MIG...) {
			if len(d.Leases) > 0 {
				ids = append(ids, d.UUID)
			}
		}
	}
	return ids
}

// TestNVIDIAShowsTheLease: what libcuda shows to a job are the devices of its lease, one and several, and no job sees those of
// another.
func TestNVIDIAShowsTheLease(t *testing.T) {
	overNVIDIA(t, "idle", func(t *testing.T, l *lab) {
		var all []gpu.UUID
		for _, wanted := range []string{"1", "2", "1"} {
			code, shown := l.job("--gpus", wanted)
			if code != 0 || fmt.Sprint(len(shown)) != wanted {
				t.Errorf("--gpus %s: cuInit gives %d and shows %q", wanted, code, shown)
			}
			all = append(all, shown...)
		}
		slices.Sort(all)
		same(t, "leases", l.leases(), all)
	})
}

// TestNVIDIAOrder: the numbers that a program is given mean the same GPUs to libcuda, on a machine with five models.
func TestNVIDIAOrder(t *testing.T) {
	overNVIDIA(t, "mixed", func(t *testing.T, l *lab) {
		if strings.HasPrefix(l.Library.Version, "470") {
			t.Skip("the pretended driver does not know yet what this library asks about two of the models")
		}
		for _, ids := range []string{"uuid", "index"} {
			for i, d := range l.Machine.Devices {
				got := run(t, l.cmd(slices.Concat([]string{"run", "-q", "--ids", ids, "--device", fmt.Sprint(i), "--"}, l.Own())...))
				code, shown := l.Shown(got.out)
				same(t, fmt.Sprintf("--ids %s --device %d: %s", ids, i, got.err), []any{code, shown}, []any{0, []gpu.UUID{d.UUID}})
			}
		}
	})
}

// readsLoad: the pretended driver knows how this library asks for load and temperature. It does not yet of 470, and of those since 580.
func (l *lab) readsLoad() bool { return l.Library.Version > "525" && l.Library.Version < "580" }

// TestNVIDIAReadings: what gpuard reads through libnvidia-ml is what the machine has.
func TestNVIDIAReadings(t *testing.T) {
	overNVIDIA(t, "a100x4", func(t *testing.T, l *lab) {
		s := l.status()
		same(t, "source and driver", []string{s.Source, s.Driver}, []string{"nvml", l.Library.Version})
		var got []string
		for i, d := range s.Devices {
			same(t, "device", []any{d.UUID, d.Name, d.PCI}, []any{l.Machine.Devices[i].UUID, l.Machine.Devices[i].Name, l.Machine.Devices[i].PCI})
			busy := "unknown"
			if d.Utilization != nil && d.Temperature != nil {
				busy = fmt.Sprintf("%.0f%% %dC", 100**d.Utilization, *d.Temperature)
			}
			got = append(got, fmt.Sprintf("%.1f of %.0f GiB, %d, %s", float64(*d.MemoryUsed)/float64(gpu.GiB), float64(*d.MemoryTotal)/float64(gpu.GiB), len(d.Processes), busy))
		}
		want := []string{"12.0 of 80 GiB, 1, 87% 41C", "0.4 of 80 GiB, 0, 0% 33C", "68.4 of 80 GiB, 1, 100% 55C", "0.0 of 80 GiB, 0, 0% 30C"}
		if !l.readsLoad() {
			want = []string{"12.0 of 80 GiB, 1, unknown", "0.4 of 80 GiB, 0, unknown", "68.4 of 80 GiB, 1, unknown", "0.0 of 80 GiB, 0, unknown"}
		}
		same(t, "readings", got, want)
	})
}

// TestNVIDIABusy: the only GPU that is free is given, and then none.
func TestNVIDIABusy(t *testing.T) {
	overNVIDIA(t, "a100x4", func(t *testing.T, l *lab) {
		l.Set(1, "used 9000") // 470 does not say what it keeps for itself
		_, shown := l.job()
		same(t, "the free one", shown, []gpu.UUID{l.Machine.Devices[3].UUID})
		refused(t, l.cmd("run", "--json", "--", "true"), 120)
	})
}

// TestNVIDIASick: a lost GPU and one that needs a reset get no job, and are called so.
func TestNVIDIASick(t *testing.T) {
	overNVIDIA(t, "idle", func(t *testing.T, l *lab) {
		l.Set(0, "status f")
		l.Set(1, "status 62")
		s := l.status()
		for i, want := range []struct {
			health health.State
			why    string
		}{{health.Unhealthy, "GPU is lost"}, {health.Unhealthy, "GPU needs a reset"}, {health.OK, ""}, {health.OK, ""}} {
			same(t, fmt.Sprintf("health of GPU %d", i), []any{s.Devices[i].Health, strings.Join(s.Devices[i].Why, " ")}, []any{want.health, want.why})
		}
		got := run(t, l.cmd(slices.Concat([]string{"run", "-q", "--gpus", "2", "--"}, l.Own())...))
		_, shown := l.Shown(got.out)
		same(t, "two of four "+got.err, shown, []gpu.UUID{l.Machine.Devices[2].UUID, l.Machine.Devices[3].UUID})
	})
}

// TestNVIDIADenied: both libraries leave out a GPU whose node may not be opened, and number the others without it.
func TestNVIDIADenied(t *testing.T) {
	overNVIDIA(t, "idle", func(t *testing.T, l *lab) {
		l.Set(1, "denied 1") // EPERM
		var got []gpu.UUID
		for _, d := range l.status().Devices {
			if d.Health == health.OK {
				got = append(got, d.UUID)
			}
		}
		same(t, "devices", got, []gpu.UUID{l.Machine.Devices[0].UUID, l.Machine.Devices[2].UUID, l.Machine.Devices[3].UUID})
		for _, ids := range []string{"uuid", "index"} {
			out := run(t, l.cmd(slices.Concat([]string{"run", "-q", "--ids", ids, "--gpus", "3", "--"}, l.Own())...))
			_, shown := l.Shown(out.out)
			slices.Sort(shown)
			same(t, "by "+ids+" "+out.err, shown, got)
		}
	})
}

// TestNVIDIAVersions: a library of another version than the kernel module is called that. libcuda answers 803 where the module is newer,
// and 804 where it is somewhat older.
func TestNVIDIAVersions(t *testing.T) {
	overNVIDIA(t, "idle", func(t *testing.T, l *lab) {
		for _, module := range []string{"535.1.1", "999.1.1"} {
			l.Module(module)
			got := run(t, l.cmd("run", "--", "true"))
			same(t, "exit", got.code, 125)
			contains(t, got.err, "are of different versions")
			if strings.Contains(got.err, "the library is ") {
				contains(t, got.err, "the library is "+l.Library.Version)
			}
			own := exec.CommandContext(t.Context(), l.Own()[0], l.Own()[1:]...)
			own.Env = append(os.Environ(), l.Env()...)
			out, err := own.Output()
			if err != nil {
				t.Fatal(err)
			}
			code, _ := l.Shown(string(out))
			if l.Library.Version > "595" && module < "595" {
				continue // it starts over an older module
			}
			same(t, "cuInit over "+module, code, map[bool]int{true: 804, false: 803}[l.Library.Version > module])
		}
	})
}

// TestNVIDIASlices: a job sees the MIG device of its lease, and nothing else.
func TestNVIDIASlices(t *testing.T) {
	overNVIDIA(t, "mig", func(t *testing.T, l *lab) {
		if !strings.HasPrefix(l.Library.Version, "525") && !strings.HasPrefix(l.Library.Version, "535") {
			t.Skip("the pretended driver does not know yet what this library asks about MIG")
		}
		for _, d := range l.Machine.Devices {
			for _, s := range d.MIG {
				code, shown := l.job("--device", string(s.UUID))
				same(t, "--device "+string(s.UUID), []any{code, shown}, []any{0, []gpu.UUID{s.UUID}})
			}
		}
		same(t, "leases", len(l.leases()), 3)
	})
}

// fewestCalls is how often a command calls the kernel driver when the machine is not too busy: then it reads again.
func (l *lab) fewestCalls(enough int, args ...string) (fewest int) {
	l.t.Helper()
	l.Calls()
	for try := range 5 {
		if got := run(l.t, l.cmd(args...)); got.code != 0 {
			l.t.Fatal(got.err)
		}
		if calls := l.Calls(); try == 0 || calls < fewest {
			fewest = calls
		}
		if fewest <= enough {
			break
		}
	}
	return fewest
}

// TestNVIDIACalls: to find a free GPU among four takes at most 1.25 times the calls of the kernel driver that nvidia-smi
// needs to show memory and load. Of GPUs that are not named it asks only
// which they are.
func TestNVIDIACalls(t *testing.T) {
	overNVIDIA(t, "idle", func(t *testing.T, l *lab) {
		smi := filepath.Join(l.Library.Folder, "nvidia-smi")
		if _, err := os.Stat(smi); err != nil {
			t.Skip("Debian has no nvidia-smi of this version")
		}
		if !l.readsLoad() {
			t.Skip("what cannot be read is asked for again in older ways")
		}
		cmd := exec.CommandContext(t.Context(), smi, "--query-gpu=index,memory.used,utilization.gpu", "--format=csv")
		cmd.Env = append(os.Environ(), l.Env()...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), "\n") != 5 {
			t.Fatalf("%v\n%s", err, out)
		}
		its := l.Calls()
		free := l.fewestCalls(its*5/4, "run", "-q", "--", "true")
		named := l.fewestCalls(free*9/10, "run", "-q", "--device", "2", "--", "true")
		t.Logf("gpuard run %d, nvidia-smi %d: %.2f; gpuard run --device 2: %d", free, its, float64(free)/float64(its), named)
		if free > its*5/4 {
			t.Errorf("gpuard run calls the kernel driver %d times, nvidia-smi %d times", free, its)
		}
		if named > free*9/10 {
			t.Errorf("gpuard run calls the kernel driver %d times, with --device 2 %d times", free, named)
		}
	})
}
