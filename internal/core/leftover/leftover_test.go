package leftover

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

func machine(t *testing.T) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine("demo:2xL4")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// list is the process ids of the rows, in order; 0 for memory without a process.
func list(rows []Row) []int {
	pids := []int{}
	for _, r := range rows {
		pids = append(pids, r.PID)
	}
	return pids
}

func same(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestOf(t *testing.T) {
	m := machine(t)
	first, second := m.Devices[0].UUID, m.Devices[1].UUID
	on := func(pid int, id gpu.UUID, size gpu.Bytes) gpu.Process {
		return gpu.Process{PID: pid, Start: uint64(pid), GPU: id, Memory: new(size)}
	}
	desktop := on(5, first, gpu.GiB)
	desktop.Kind, desktop.Command = gpu.GraphicsProcess, "/usr/bin/gnome-shell"
	m.Processes = []gpu.Process{on(1, first, gpu.GiB), on(2, first, 4*gpu.GiB), on(3, first, 2*gpu.GiB), desktop, on(4, second, gpu.GiB)}
	m.Devices[0].MemoryUsed, m.Devices[1].MemoryUsed = new(8*gpu.GiB), new(9*gpu.GiB)
	m.Devices[1].MemoryReserved = new(gpu.Bytes(0))
	leased := map[int]string{3: "k3f9"}
	asleep := []Sighting{
		{PID: 3, Start: 3, First: time.Hour, Look: 4 * time.Hour, Busy: time.Hour},
		{PID: 2, Start: 99, First: time.Hour, Look: 4 * time.Hour, Busy: time.Hour}, // another process with that PID
		{PID: 1, Start: 1, First: time.Hour, Look: time.Hour, Busy: time.Hour},      // a single sample has no result
	}
	for _, c := range []struct {
		name string
		q    Input
		want []int
	}{
		{"largest first, leases and desktops left out", Input{Lease: leased, Covered: map[gpu.UUID]bool{first: true, second: true}}, []int{2, 1, 4}},
		{"memory without a process", Input{Lease: leased, Covered: map[gpu.UUID]bool{first: true}}, []int{2, 1, 0, 4}},
		{"who sleeps, with a lease too", Input{Lease: leased, Seen: asleep, Idle: 2 * time.Hour}, []int{3}},
		{"not that long", Input{Lease: leased, Seen: asleep, Idle: 3*time.Hour + 1}, []int{}},
	} {
		c.q.Machine = m
		rows := FindRows(c.q)
		if got := list(rows); !same(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.q.Idle == 2*time.Hour && (rows[0].Lease != "k3f9" || *rows[0].Idle != 3*time.Hour) {
			t.Errorf("%s: %+v", c.name, rows[0])
		}
	}
	m.Processes[4].Memory = nil
	if got := list(FindRows(Input{Machine: m, Lease: leased, Covered: map[gpu.UUID]bool{first: true}})); !same(got, []int{2, 1, 4}) {
		t.Errorf("memory that may be a listed process's has a row: %v", got)
	}
}

// TestOutside: memory of a process that is not known here has a row without a process, unless it may be a lease's. A
// renderer has a row, and nobody is told to end what may serve a display.
func TestOutside(t *testing.T) {
	m := machine(t)
	first, second := m.Devices[0].UUID, m.Devices[1].UUID
	m.Devices[0].DisplayActive, m.Devices[1].DisplayActive = new(true), new(false)
	m.Processes = []gpu.Process{{Outside: 7, GPU: first, Memory: new(gpu.GiB)}, {Outside: 7, GPU: second, Memory: new(gpu.GiB)}, {PID: 5, GPU: first, Kind: gpu.BothKinds, Command: "blender"},
		{PID: 6, GPU: second, Kind: gpu.GraphicsProcess, Command: "render"}}
	m.Devices[0].MemoryUsed, m.Devices[1].MemoryUsed = nil, nil
	rows := FindRows(Input{Machine: m, Lease: map[int]string{}, Covered: map[gpu.UUID]bool{second: true}})
	if got := list(rows); !same(got, []int{0, 5, 6}) || rows[0].Index != 0 || !rows[1].Spared || rows[2].Spared {
		t.Errorf("%v: %+v", got, rows)
	}
}

// TestSpared: the given reason is true, and the remedy works.
func TestSpared(t *testing.T) {
	m := machine(t)
	id := m.Devices[0].UUID
	m.Processes = []gpu.Process{{PID: 1, Start: 1, GPU: id}, {PID: 2, Start: 2, GPU: id}, {PID: 3, GPU: id, Kind: gpu.BothKinds, Command: "gnome-shell"}, {Outside: 8, GPU: id}}
	for _, c := range []struct {
		pid  int
		idle time.Duration
		want string
	}{
		{9, 0, "no GPU memory"}, {3, 0, "display"}, {8, 0, "a process outside of this PID namespace; the one here"}, {2, 0, "living lease k3f9, whose owner"}, {2, time.Hour, "living lease k3f9 and is not known to have slept"},
		{1, time.Hour, "leave out --idle"}, {9, time.Hour, "no GPU memory"},
	} {
		q := Input{Machine: m, Lease: map[int]string{2: "k3f9"}, Idle: c.idle}
		if got := WhySpared(q, c.pid); !strings.Contains(got, c.want) {
			t.Errorf("process %d, idle %s: %q", c.pid, c.idle, got)
		}
	}
}

func TestLook(t *testing.T) {
	m := machine(t)
	id := m.Devices[0].UUID
	m.Processes = []gpu.Process{{PID: 1, Start: 1, GPU: id}, {PID: 2, Start: 2, GPU: id}}
	idleFor := func(seen []Sighting, pid int) time.Duration {
		for _, p := range m.Processes {
			if p.PID == pid {
				if d := idleTime(seen, p); d != nil {
					return *d
				}
			}
		}
		return -1
	}
	used := map[int]time.Duration{1: time.Minute, 2: time.Minute}
	seen := AddSample(nil, m, used, time.Hour)
	if idleFor(seen, 1) != -1 {
		t.Error("a single sample shows how long a process sleeps")
	}
	used[1] += 10 * time.Second // a heartbeat, over an hour
	used[2] += 10 * time.Minute
	seen = AddSample(seen, m, used, 2*time.Hour)
	if idleFor(seen, 1) != time.Hour || idleFor(seen, 2) != 0 {
		t.Errorf("after an hour: %v %v", idleFor(seen, 1), idleFor(seen, 2))
	}
	used[1] += 10 * time.Second
	seen = AddSample(seen, m, used, 3*time.Hour)
	if idleFor(seen, 1) != 2*time.Hour || idleFor(seen, 2) != time.Hour {
		t.Errorf("after two hours: %v %v", idleFor(seen, 1), idleFor(seen, 2))
	}
	// Two samples within a second are not compared, and lose nothing.
	if again := AddSample(seen, m, used, 3*time.Hour+time.Millisecond); idleFor(again, 1) != 2*time.Hour {
		t.Errorf("a second sample immediately after: %v", idleFor(again, 1))
	}
	// One that waits for a processor works, also where others leave it hardly any.
	m.Processes[0].State = "R"
	if starved := AddSample(seen, m, used, 4*time.Hour); idleFor(starved, 1) != 0 || idleFor(starved, 2) != 2*time.Hour {
		t.Errorf("a process that waits for a processor: %v, the other one %v", idleFor(starved, 1), idleFor(starved, 2))
	}
	m.Processes[0].State = "S"
	// A busy device with several processes proves nothing; with one, that this one works.
	m.Devices[0].Utilization = new(0.9)
	if shared := AddSample(seen, m, used, 4*time.Hour); idleFor(shared, 1) != 3*time.Hour {
		t.Errorf("two on a device at work: %v", idleFor(shared, 1))
	}
	m.Processes = m.Processes[:1]
	if single := AddSample(seen, m, used, 4*time.Hour); idleFor(single, 1) != 0 || len(single) != 1 {
		t.Errorf("alone on a device at work: %v of %v", idleFor(single, 1), single)
	}
	// A reused PID is another process; one whose CPU time cannot be read is dropped.
	m.Processes[0].Start = 7
	if fresh := AddSample(seen, m, used, 5*time.Hour); idleFor(fresh, 1) != -1 {
		t.Error("a new process is as old as the one before")
	}
	if none := AddSample(seen, m, nil, 5*time.Hour); len(none) != 0 {
		t.Errorf("kept %v", none)
	}
}
