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

// nvidiaMachine is the program over NVIDIA's own libraries, with a state folder of its own.
type nvidiaMachine struct {
	*nvidia.InventedMachine
	t     testing.TB
	state string
}

// eachNVIDIALibrary runs a test with each version of NVIDIA's libraries.
func eachNVIDIALibrary(t *testing.T, machine string, test func(t *testing.T, l *nvidiaMachine)) {
	t.Helper()
	t.Parallel()
	for _, library := range nvidia.Libraries(t) {
		t.Run(library.Version, func(t *testing.T) {
			t.Parallel()
			test(t, &nvidiaMachine{nvidia.New(t, library, machine), t, stateFolder(t)})
		})
	}
}

func (l *nvidiaMachine) cmd(args ...string) *exec.Cmd {
	l.t.Helper()
	if isContained() && args[0] == "run" {
		args = append([]string{"run", "--private-state"}, args[1:]...)
	}
	return gpuardCommand(l.t, l.state, l.Env(), args...)
}

// startVisibleJob starts one that prints what libcuda shows it, and lasts until the end of the test. Where the driver was slow, gpuard stays
// beside its command, which a kill of gpuard would not end.
func (l *nvidiaMachine) startVisibleJob(args ...string) (code int, shown []gpu.UUID) {
	l.t.Helper()
	cmd := l.cmd(slices.Concat([]string{"run", "-q"}, args, []string{"--", "sh", "-c", strings.Join(l.Own(), " ") + "; read end"})...)
	input, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	line := startToFirstLine(l.t, cmd)
	l.t.Cleanup(func() { _ = input.Close() })
	return l.ParseShown(line)
}

func (l *nvidiaMachine) readStatus() status.Report {
	l.t.Helper()
	s, _ := runStatus(l.t, l.cmd("status", "--json"))
	return s
}

// leasedUUIDs are the devices that have one, slices too.
func (l *nvidiaMachine) leasedUUIDs() (ids []gpu.UUID) {
	l.t.Helper()
	for _, d := range l.readStatus().Devices {
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
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		var all []gpu.UUID
		for _, wanted := range []string{"1", "2", "1"} {
			code, shown := l.startVisibleJob("--gpus", wanted)
			if code != 0 || fmt.Sprint(len(shown)) != wanted {
				t.Errorf("--gpus %s: cuInit gives %d and shows %q", wanted, code, shown)
			}
			all = append(all, shown...)
		}
		slices.Sort(all)
		checkEqual(t, "leases", l.leasedUUIDs(), all)
	})
}

// TestNVIDIAOrder: the numbers that a program is given mean the same GPUs to libcuda, on a machine with five models.
func TestNVIDIAOrder(t *testing.T) {
	eachNVIDIALibrary(t, "mixed", func(t *testing.T, l *nvidiaMachine) {
		if strings.HasPrefix(l.Library.Version, "470") {
			t.Skip("the pretended driver does not know yet what this library asks about two of the models")
		}
		for _, ids := range []string{"uuid", "index"} {
			for i, d := range l.Machine.Devices {
				got := runCommand(t, l.cmd(slices.Concat([]string{"run", "-q", "--ids", ids, "--device", fmt.Sprint(i), "--"}, l.Own())...))
				code, shown := l.ParseShown(got.out)
				checkEqual(t, fmt.Sprintf("--ids %s --device %d: %s", ids, i, got.err), []any{code, shown}, []any{0, []gpu.UUID{d.UUID}})
			}
		}
	})
}

// canReadLoad: the pretended driver knows how this library asks for load and temperature. It does not yet of 470, and of those since 580.
func (l *nvidiaMachine) canReadLoad() bool {
	return l.Library.Version > "525" && l.Library.Version < "580"
}

// TestNVIDIAReadings: what gpuard reads through libnvidia-ml is what the machine has.
func TestNVIDIAReadings(t *testing.T) {
	eachNVIDIALibrary(t, "a100x4", func(t *testing.T, l *nvidiaMachine) {
		s := l.readStatus()
		checkEqual(t, "source and driver", []string{s.Source, s.Driver}, []string{"nvml", l.Library.Version})
		var got []string
		for i, d := range s.Devices {
			checkEqual(t, "device", []any{d.UUID, d.Name, d.PCI}, []any{l.Machine.Devices[i].UUID, l.Machine.Devices[i].Name, l.Machine.Devices[i].PCI})
			busy := "unknown"
			if d.Utilization != nil && d.Temperature != nil {
				busy = fmt.Sprintf("%.0f%% %dC", 100**d.Utilization, *d.Temperature)
			}
			got = append(got, fmt.Sprintf("%.1f of %.0f GiB, %d, %s", float64(*d.MemoryUsed)/float64(gpu.GiB), float64(*d.MemoryTotal)/float64(gpu.GiB), len(d.Processes), busy))
		}
		want := []string{"12.0 of 80 GiB, 1, 87% 41C", "0.4 of 80 GiB, 0, 0% 33C", "68.4 of 80 GiB, 1, 100% 55C", "0.0 of 80 GiB, 0, 0% 30C"}
		if !l.canReadLoad() {
			want = []string{"12.0 of 80 GiB, 1, unknown", "0.4 of 80 GiB, 0, unknown", "68.4 of 80 GiB, 1, unknown", "0.0 of 80 GiB, 0, unknown"}
		}
		checkEqual(t, "readings", got, want)
	})
}

// TestNVIDIABusy: the only GPU that is free is given, and then none.
func TestNVIDIABusy(t *testing.T) {
	eachNVIDIALibrary(t, "a100x4", func(t *testing.T, l *nvidiaMachine) {
		l.AddGPULine(1, "used 9000") // 470 does not say what it keeps for itself
		_, shown := l.startVisibleJob()
		checkEqual(t, "the free one", shown, []gpu.UUID{l.Machine.Devices[3].UUID})
		mustRefuse(t, l.cmd("run", "--json", "--", "true"), 120)
	})
}

// TestNVIDIASick: a lost GPU and one that needs a reset get no job, and are called so.
func TestNVIDIASick(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		l.AddGPULine(0, "status f")
		l.AddGPULine(1, "status 62")
		s := l.readStatus()
		for i, want := range []struct {
			health health.State
			why    string
		}{{health.Unhealthy, "GPU is lost"}, {health.Unhealthy, "GPU needs a reset"}, {health.OK, ""}, {health.OK, ""}} {
			checkEqual(t, fmt.Sprintf("health of GPU %d", i), []any{s.Devices[i].Health, strings.Join(s.Devices[i].Why, " ")}, []any{want.health, want.why})
		}
		got := runCommand(t, l.cmd(slices.Concat([]string{"run", "-q", "--gpus", "2", "--"}, l.Own())...))
		_, shown := l.ParseShown(got.out)
		checkEqual(t, "two of four "+got.err, shown, []gpu.UUID{l.Machine.Devices[2].UUID, l.Machine.Devices[3].UUID})
	})
}

// TestNVIDIADenied: both libraries leave out a GPU whose node may not be opened, and number the others without it.
func TestNVIDIADenied(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		l.AddGPULine(1, "denied 1") // EPERM
		var got []gpu.UUID
		for _, d := range l.readStatus().Devices {
			if d.Health == health.OK {
				got = append(got, d.UUID)
			}
		}
		checkEqual(t, "devices", got, []gpu.UUID{l.Machine.Devices[0].UUID, l.Machine.Devices[2].UUID, l.Machine.Devices[3].UUID})
		for _, ids := range []string{"uuid", "index"} {
			out := runCommand(t, l.cmd(slices.Concat([]string{"run", "-q", "--ids", ids, "--gpus", "3", "--"}, l.Own())...))
			_, shown := l.ParseShown(out.out)
			slices.Sort(shown)
			checkEqual(t, "by "+ids+" "+out.err, shown, got)
		}
	})
}

// TestNVIDIAVersions: a library of another version than the kernel module is called that. libcuda answers 803 where the module is newer,
// and 804 where it is somewhat older.
func TestNVIDIAVersions(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		for _, module := range []string{"535.1.1", "999.1.1"} {
			l.Module(module)
			got := runCommand(t, l.cmd("run", "--", "true"))
			checkEqual(t, "exit", got.code, 125)
			checkContains(t, got.err, "are of different versions")
			if strings.Contains(got.err, "the library is ") {
				checkContains(t, got.err, "the library is "+l.Library.Version)
			}
			own := exec.CommandContext(t.Context(), l.Own()[0], l.Own()[1:]...)
			own.Env = append(os.Environ(), l.Env()...)
			out, err := own.Output()
			if err != nil {
				t.Fatal(err)
			}
			code, _ := l.ParseShown(string(out))
			if l.Library.Version > "595" && module < "595" {
				continue // it starts over an older module
			}
			checkEqual(t, "cuInit over "+module, code, map[bool]int{true: 804, false: 803}[l.Library.Version > module])
		}
	})
}

// TestNVIDIASlices: a job sees the MIG device of its lease, and nothing else.
func TestNVIDIASlices(t *testing.T) {
	eachNVIDIALibrary(t, "mig", func(t *testing.T, l *nvidiaMachine) {
		if !strings.HasPrefix(l.Library.Version, "525") && !strings.HasPrefix(l.Library.Version, "535") {
			t.Skip("the pretended driver does not know yet what this library asks about MIG")
		}
		for _, d := range l.Machine.Devices {
			for _, s := range d.MIG {
				code, shown := l.startVisibleJob("--device", string(s.UUID))
				checkEqual(t, "--device "+string(s.UUID), []any{code, shown}, []any{0, []gpu.UUID{s.UUID}})
			}
		}
		checkEqual(t, "leases", len(l.leasedUUIDs()), 3)
	})
}

// fewestCalls is how often a command calls the kernel driver when the machine is not too busy: then it reads again.
func (l *nvidiaMachine) fewestCalls(enough int, args ...string) (fewest int) {
	l.t.Helper()
	l.CountNewCalls()
	for try := range 5 {
		if got := runCommand(l.t, l.cmd(args...)); got.code != 0 {
			l.t.Fatal(got.err)
		}
		if calls := l.CountNewCalls(); try == 0 || calls < fewest {
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
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		smi := filepath.Join(l.Library.Folder, "nvidia-smi")
		if _, err := os.Stat(smi); err != nil {
			t.Skip("Debian has no nvidia-smi of this version")
		}
		if !l.canReadLoad() {
			t.Skip("what cannot be read is asked for again in older ways")
		}
		cmd := exec.CommandContext(t.Context(), smi, "--query-gpu=index,memory.used,utilization.gpu", "--format=csv")
		cmd.Env = append(os.Environ(), l.Env()...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), "\n") != 5 {
			t.Fatalf("%v\n%s", err, out)
		}
		its := l.CountNewCalls()
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
