package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// newHost is an invented machine with a state folder of its own, and its devices.
func newHost(t *testing.T, invented string) (*machine.Host, []gpu.Device) {
	t.Helper()
	host := &machine.Host{Machine: invented, Env: []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}, Proc: proc.New("/proc"),
		PrivateState: true, Messages: machine.Messages{Say: func(string) {}}}
	return host, hosts.InventMachine(t, host.Machine).Devices
}

// newRequest compares so many commands in these arms.
func newRequest(commands int, arms ...experiment.Arm) *Request {
	r := &Request{Arms: arms, Repeat: 1}
	for range commands {
		r.Commands = append(r.Commands, Command{Argv: []string{"true"}})
	}
	return r
}

// deviceOf is the device that an allocator was opened for.
func deviceOf(t *testing.T, a *claim.Allocator) gpu.UUID {
	t.Helper()
	lease, err := a.Wait(t.Context(), "test", func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	return lease.Plan.Devices[0].UUID
}

// TestTurnSteps: alone is one step after the other; the other arms are one step, with one lease in common, a GPU each,
// or a share of one GPU each. The places of a turn say on which GPU, and the same GPU comes for the same place.
func TestTurnSteps(t *testing.T) {
	t.Parallel()
	host, devices := newHost(t, "demo:2xL4")
	p, err := findPlaces(t.Context(), host, newRequest(2, experiment.Alone, experiment.Together, experiment.Apart, experiment.Shares))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.devices) != 2 || len(p.whole) != 2 || len(p.shared[experiment.Shares]) != 2 {
		t.Fatalf("%d devices, %d whole, %v shared", len(p.devices), len(p.whole), p.shared)
	}
	number := map[gpu.UUID]int{p.devices[0].UUID: 0, p.devices[1].UUID: 1}
	if len(number) != 2 || !slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.UUID == p.devices[0].UUID }) {
		t.Errorf("%v of %v", p.devices, devices)
	}
	for _, c := range []struct {
		arm    experiment.Arm
		places []int
		want   string
	}{
		{experiment.Alone, []int{0, 1}, "[0] on [0]; [1] on [1]"},
		{experiment.Alone, []int{1, 0}, "[1] on [0]; [0] on [1]"},
		{experiment.Together, []int{0, 1}, "[0 1] on [0]"},
		{experiment.Together, []int{1, 0}, "[1 0] on [1]"},
		{experiment.Apart, []int{1, 0}, "[1 0] on [0 1]"},
		{experiment.Shares, []int{1, 0}, "[1 0] on [1 1]"},
	} {
		var says []string
		for _, step := range p.turnSteps(experiment.Turn{Arm: c.arm, Places: c.places}) {
			var on []int
			for _, a := range step.desks {
				on = append(on, number[deviceOf(t, a)])
			}
			says = append(says, fmt.Sprint(step.commands, " on ", on))
		}
		if got := strings.Join(says, "; "); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.arm, c.places, got, c.want)
		}
	}
}

// TestNoPlace: an arm that the machine can never give is refused before anything starts, and the refusal names it.
func TestNoPlace(t *testing.T) {
	t.Parallel()
	one, _ := newHost(t, "demo:1xL4")
	for _, c := range []struct {
		request *Request
		want    string
	}{
		{newRequest(2, experiment.Alone, experiment.Apart), "cannot compare apart: "},
		{newRequest(2, experiment.Arm("mig")), "cannot compare mig: no GPU has 2 MIG slices of one profile"},
		{newRequest(3, experiment.Arm("mig:1g.10gb")), "cannot compare mig:1g.10gb: no GPU has 3 1g.10gb slices"},
		{&Request{Arms: []experiment.Arm{experiment.Apart}, Commands: newRequest(2).Commands, Devices: []string{"0"}}, "cannot compare apart on 1 GPU: each of the 2 commands gets one"},
	} {
		_, err := findPlaces(t.Context(), one, c.request)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestSlices: the slices are of one GPU and one profile; without a profile those with the most memory that are enough.
func TestSlices(t *testing.T) {
	t.Parallel()
	a, b := gpu.MIGDevice{Profile: "1g.10gb", MemoryTotal: new(10 * gpu.GiB)}, gpu.MIGDevice{Profile: "2g.20gb", MemoryTotal: new(20 * gpu.GiB)}
	same, unknown := gpu.MIGDevice{Profile: "1g.5gb", MemoryTotal: new(10 * gpu.GiB)}, gpu.MIGDevice{Profile: "0g"}
	for _, c := range []struct {
		a, b gpu.MIGDevice
		want bool
	}{{b, a, true}, {a, b, false}, {a, a, false}, {a, same, true}, {same, a, false}, {a, unknown, true}, {unknown, a, false}} {
		if got := isLargerSlice(c.a, c.b); got != c.want {
			t.Errorf("%s before %s: %v", c.a.Profile, c.b.Profile, got)
		}
	}
}

// TestPeak: only the command's own processes count, the sum of one moment, and a reading that is absent is not zero.
func TestPeak(t *testing.T) {
	t.Parallel()
	lease := &claim.CommandLease{Plan: job.Plan{Devices: []job.Given{{UUID: "GPU-1"}}}}
	m := &stepCommand{seat: lease}
	read := func(own, other *gpu.Bytes) *gpu.Machine {
		return &gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1"}}, Processes: []gpu.Process{{PID: 7, GPU: "GPU-1", Memory: own}, {PID: 8, GPU: "GPU-1", Memory: own}, {PID: 9, GPU: "GPU-1", Memory: other}}}
	}
	m.recordPeak(read(nil, new(gpu.GiB)), []int{7, 8})
	if m.peak != nil || peakOf(m) != 0 {
		t.Fatalf("%v without a reading", *m.peak)
	}
	for _, c := range []struct{ own, want gpu.Bytes }{{gpu.GiB, 2 * gpu.GiB}, {gpu.MiB, 2 * gpu.GiB}, {2 * gpu.GiB, 4 * gpu.GiB}} {
		m.recordPeak(read(&c.own, new(64*gpu.GiB)), []int{7, 8})
		if peakOf(m) != c.want {
			t.Errorf("%v each: %v, want %v", c.own, peakOf(m), c.want)
		}
	}
}

// TestOutput: of a long output the end is read, and none is no failure.
func TestOutput(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "output")
	if got := readTail(path); got != nil {
		t.Errorf("%d bytes of nothing", len(got))
	}
	text := strings.Repeat("x", outputRead) + "loss 0.5\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readTail(path); len(got) != outputRead || !strings.HasSuffix(string(got), "loss 0.5\n") {
		t.Errorf("%d bytes, which end in %q", len(got), got[max(0, len(got)-9):])
	}
}

// TestMoments: of two moments.
func TestMoments(t *testing.T) {
	t.Parallel()
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	for _, pair := range [][2]time.Time{{first, second}, {second, first}} {
		if laterTime(pair[0], pair[1]) != second || earlierTime(pair[0], pair[1]) != first {
			t.Errorf("%v", pair)
		}
	}
}

// TestCheck: numbers that make no experiment.
func TestCheck(t *testing.T) {
	t.Parallel()
	empty := newRequest(2)
	empty.Commands[1].Argv = nil
	often, warm := newRequest(2), newRequest(2)
	often.Repeat, warm.Warmup = 1001, -1
	for want, r := range map[string]*Request{"": newRequest(2), "one command": newRequest(1), "27 commands": newRequest(27), "1001 times": often, "-1 runs": warm, "command B": empty} {
		err := r.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
