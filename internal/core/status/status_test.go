package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
)

var statusNow = time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)

func statusMachine(t *testing.T, spec string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStatusOfUse(t *testing.T) {
	m := statusMachine(t, "demo:8xL4")
	id := func(i int) gpu.UUID { return m.Devices[i].UUID }
	hold := func(i int, b gpu.Bytes) { m.Devices[i].MemoryUsed = new(b) }
	old := statusNow.Add(-time.Hour)
	hold(1, 10*gpu.GiB)
	hold(2, 10*gpu.GiB)
	hold(3, 100*gpu.MiB)
	hold(4, 10*gpu.GiB)
	m.Devices[6].Problem = "GPU is lost"
	m.Devices[7].ClockEvents = []string{"hw_thermal_slowdown"}
	m.Processes = []gpu.Process{
		{PID: 10, GPU: id(1), Memory: new(10 * gpu.GiB), User: "alice", UID: new(uint32(1)), Started: old},
		{PID: 11, GPU: id(1), Memory: new(1 * gpu.MiB), User: "bob", UID: new(uint32(2)), Started: old},
		{PID: 20, GPU: id(2), Memory: new(10 * gpu.GiB), User: "bob", UID: new(uint32(2)), Started: old, Command: "python\x1b[2J x"},
		{PID: 30, GPU: id(3), Memory: new(100 * gpu.MiB), User: "bob", UID: new(uint32(2)), Started: old},
	}
	s := NewReport(m, []job.Lease{
		{ID: "aaaa", UID: 1, User: "alice", Devices: []gpu.UUID{id(1)}, PID: 9},
		{ID: "bbbb", UID: 3, User: "carol", Unreadable: true, Hashes: []string{job.DeviceHash(id(5))}},
	}, statusNow)
	want := []struct {
		use    Use
		health health.State
		leases int
	}{
		{Free, health.OK, 0},
		{Leased, health.OK, 1},
		{Busy, health.OK, 0}, // a process without a lease
		{Free, health.OK, 0}, // a small one
		{Busy, health.OK, 0}, // memory of no process
		{Leased, health.OK, 1},
		{Free, health.Unhealthy, 0},
		{Free, health.Degraded, 0},
	}
	for i, w := range want {
		d := s.Devices[i]
		if d.Use != w.use || d.Health != w.health || len(d.Leases) != w.leases {
			t.Errorf("GPU %d is %s, %s, with %d leases; want %+v", i, d.Use, d.Health, len(d.Leases), w)
		}
		if free := d.Use == Free && d.Health == health.OK; free != (d.Reason == "") {
			t.Errorf("GPU %d: a reason is there exactly when it cannot be leased: %q", i, d.Reason)
		}
	}
	if p := s.Devices[1].Processes; !p[0].Foreign || !p[1].Foreign {
		t.Errorf("nothing proves yet that one belongs to the lease: %+v", p)
	}
	if got := s.Devices[2].Processes[0].Command; strings.ContainsRune(got, '\x1b') {
		t.Errorf("control characters pass: %q", got)
	}
}

// A device without a UUID, because it hung or was lost before it reported one, is not taken for another one.
func TestStatusOfNameless(t *testing.T) {
	m := statusMachine(t, "demo:3xL4")
	m.Devices[0].UUID, m.Devices[0].Problem = "", "no answer within 5s"
	m.Devices[2].UUID, m.Devices[2].Problem = "", "GPU is lost"
	s := NewReport(m, nil, statusNow)
	for i, want := range []string{"unknown: no answer within 5s", "", "unhealthy: GPU is lost"} {
		if got := s.Devices[i].Reason; got != want {
			t.Errorf("GPU %d cannot be leased because of %q, want %q", i, got, want)
		}
	}
}

func TestStatusOfSlices(t *testing.T) {
	m := statusMachine(t, "demo:1xA100-80GB:3g.40gb*2")
	a, b := m.Devices[0].MIG[0].UUID, m.Devices[0].MIG[1].UUID
	one := NewReport(m, []job.Lease{{ID: "aaaa", Devices: []gpu.UUID{a}}}, statusNow).Devices[0]
	if one.Use != Free || one.MIG[0].Use != Leased || one.MIG[1].Use != Free || len(one.Leases) != 0 {
		t.Errorf("one slice of two leased: %+v", one)
	}
	both := NewReport(m, []job.Lease{{ID: "aaaa", Devices: []gpu.UUID{a, b}}}, statusNow).Devices[0]
	if both.Use != Leased {
		t.Errorf("both slices leased, the GPU is %s", both.Use)
	}
}

// A device is called shared when it has shares and nothing else.
func TestStatusOfShares(t *testing.T) {
	m := statusMachine(t, "demo:1xL4")
	lease := func(id, parent string, share gpu.Bytes) job.Lease {
		return job.Lease{ID: id, UID: 1, User: "alice", Parent: parent, Share: share, Quota: job.Watch, Devices: []gpu.UUID{m.Devices[0].UUID}}
	}
	share, part, whole := lease("aaaa", "", 8*gpu.GiB), lease("cccc", "bbbb", 4*gpu.GiB), lease("bbbb", "", 0)
	for _, tt := range []struct {
		held []job.Lease
		want Use
	}{
		{[]job.Lease{share}, Shared},
		{[]job.Lease{share, lease("dddd", "aaaa", 0)}, Shared},
		{[]job.Lease{whole, part}, Leased},
		{[]job.Lease{lease("eeee", "gone", 0)}, Leased},
		{[]job.Lease{part}, Shared},
		{[]job.Lease{share, whole}, Leased},
	} {
		d := NewReport(m, tt.held, statusNow).Devices[0]
		if d.Use != tt.want {
			t.Errorf("%+v: %s, want %s", tt.held, d.Use, tt.want)
		}
		if tt.want == Shared && tt.held[0].ID == "aaaa" && (d.Leases[0].Share != 8*gpu.GiB || !strings.Contains(d.Reason, "share of 8 GiB")) {
			t.Errorf("%+v, %q", d.Leases, d.Reason)
		}
	}
}

func TestStatusOfOddities(t *testing.T) {
	m := statusMachine(t, "demo:2xL4")
	id := m.Devices[0].UUID
	notes := func(leases ...job.Lease) []string { return NewReport(m, leases, statusNow).Notes }
	tests := []struct {
		name  string
		notes []string
		want  []string
	}{
		{"two holders", notes(job.Lease{ID: "aaaa", User: "alice", Devices: []gpu.UUID{id}}, job.Lease{ID: "bbbb", User: "bob", Devices: []gpu.UUID{id}}), []string{"leased twice, by alice (aaaa) and by bob (bbbb)"}},
		{"two shares", notes(job.Lease{ID: "aaaa", Share: 1, Devices: []gpu.UUID{id}}, job.Lease{ID: "bbbb", Share: 1, Devices: []gpu.UUID{id}}), nil},
		{"both kinds", notes(job.Lease{ID: "aaaa", User: "alice", Share: 1, Devices: []gpu.UUID{id}}, job.Lease{ID: "bbbb", User: "bob", Devices: []gpu.UUID{id}}), []string{"leased twice, by alice (aaaa) and by bob (bbbb)"}},
		{"a part of a lease", notes(job.Lease{ID: "aaaa", Devices: []gpu.UUID{id}}, job.Lease{ID: "bbbb", Parent: "aaaa", Devices: []gpu.UUID{id}}), nil},
		{"inside an allocation", notes(job.Lease{ID: "aaaa", Allocation: "slurm:1", Devices: []gpu.UUID{id}}, job.Lease{ID: "bbbb", Allocation: "slurm:1", Devices: []gpu.UUID{id}}), nil},
		{"elsewhere", notes(job.Lease{ID: "aaaa", User: "alice", Devices: []gpu.UUID{"GPU-x"}}), []string{"holds GPU-x, which this machine does not show"}},
		{"unreadable", notes(job.Lease{ID: "aaaa", User: "alice", Unreadable: true, Hashes: []string{job.ManyDevices}}), []string{"lease aaaa of alice cannot be read"}},
	}
	for _, tt := range tests {
		if len(tt.notes) != len(tt.want) {
			t.Errorf("%s: notes %q, want %q", tt.name, tt.notes, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(tt.notes[i], want) {
				t.Errorf("%s: note %q, want %q in it", tt.name, tt.notes[i], want)
			}
		}
	}
}

func TestStatusOfDoesNotDependOnOrder(t *testing.T) {
	m := statusMachine(t, "demo:3xL4+1xMI300X")
	m.Processes = []gpu.Process{{PID: 2, GPU: m.Devices[0].UUID}, {PID: 1, GPU: m.Devices[0].UUID}}
	leases := []job.Lease{{ID: "bbbb", Devices: []gpu.UUID{m.Devices[1].UUID}}, {ID: "aaaa", Devices: []gpu.UUID{m.Devices[1].UUID}, Parent: "bbbb"}}
	order := func(s Report) (out []string) {
		for _, d := range s.Devices {
			out = append(out, string(d.UUID))
			for _, l := range d.Leases {
				out = append(out, l.ID)
			}
			for _, p := range d.Processes {
				out = append(out, string(rune('0'+p.PID)))
			}
		}
		return out
	}
	first := order(NewReport(m, leases, statusNow))
	slices.Reverse(m.Devices)
	slices.Reverse(m.Processes)
	slices.Reverse(leases)
	if second := order(NewReport(m, leases, statusNow)); !slices.Equal(first, second) {
		t.Errorf("the order of the input shows:\n%q\n%q", first, second)
	}
}

// TestProhibited: a GPU whose compute mode allows no program is not free, and the reason says so.
func TestProhibited(t *testing.T) {
	m := gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1", Vendor: gpu.NVIDIA, ComputeMode: "prohibited"}}}
	d := NewReport(m, nil, time.Now()).Devices[0]
	if d.Use != Busy || !strings.Contains(d.Reason, "compute mode is prohibited") {
		t.Errorf("%s, %q", d.Use, d.Reason)
	}
}

// Vendors without a reader get one note each; devices that a reader reported get none.
func TestStatusOfUnread(t *testing.T) {
	m := statusMachine(t, "demo:1xL4")
	s := NewReport(m, nil, statusNow)
	s.NoteUnreadDevices(nil)
	s.NoteUnreadDevices([]gpu.Device{{Vendor: gpu.Intel, PCI: strings.ToLower(m.Devices[0].PCI)}})
	if len(s.Notes) != 0 {
		t.Errorf("nothing is unknown, and the notes are %q", s.Notes)
	}
	s.NoteUnreadDevices([]gpu.Device{{Vendor: gpu.Intel, PCI: "0000:00:02.0"}, {Vendor: gpu.Ascend, PCI: "0000:81:00.0"}, {Vendor: gpu.Intel, PCI: "0000:03:00.0"}})
	want := []string{
		"Intel GPU 0000:00:02.0, 0000:03:00.0: gpuard does not read these; it knows their variables only (gpuard explain --runtime level-zero)",
		"Ascend device 0000:81:00.0: gpuard does not read these; it knows their variables only (gpuard explain --runtime ascend)",
	}
	if !slices.Equal(s.Notes, want) {
		t.Errorf("the notes are %q", s.Notes)
	}
}

// TestUseUnknown: a device is not free where neither its memory nor its load nor its processes can be read. Any one of
// them is enough to tell, and so is a lease.
func TestUseUnknown(t *testing.T) {
	m := statusMachine(t, "demo:5xL4")
	for i := range m.Devices {
		m.Devices[i].MemoryUsed, m.Devices[i].Utilization, m.Devices[i].Unlisted = nil, nil, "cannot list its processes: Not Supported"
	}
	m.Devices[1].MemoryUsed, m.Devices[2].Utilization, m.Devices[3].Unlisted = new(gpu.Bytes(0)), new(0.0), ""
	s := NewReport(m, []job.Lease{{ID: "k3f9", Devices: []gpu.UUID{m.Devices[4].UUID}}}, time.Now())
	for i, want := range []Use{Unknown, Free, Free, Free, Leased} {
		if d := s.Devices[i]; d.Use != want || (d.Reason == "") != (want != Leased) {
			t.Errorf("GPU %d is %s (%q), want %s", i, d.Use, d.Reason, want)
		}
	}
	if Unknown.Word() != "use unknown" || Busy.Word() != "busy" {
		t.Error(Unknown.Word(), Busy.Word())
	}
}

// TestUsing: a process belongs to a lease by its tree, whatever its user; only a lease of its device makes it no stranger
// there. The processor time is that of leases whose devices are listed and idle.
func TestUsing(t *testing.T) {
	d := func(id gpu.UUID, leases ...Lease) Device { return Device{UUID: id, Leases: leases} }
	process := func(pid int) Process { return Process{PID: pid, Foreign: pid != 3, Kind: gpu.ComputeProcess} } // 3 is of the lease's user
	a, b, c := d("GPU-1", Lease{ID: "aaaa"}), d("GPU-2", Lease{ID: "bbbb"}, Lease{ID: "cccc"}), d("GPU-3", Lease{ID: "eeee"})
	a.Processes = []Process{process(1), process(2), process(3)}
	b.MIG = []Device{d("MIG-1", Lease{ID: "dddd"})}
	b.MIG[0].Processes = []Process{process(4), process(5)}
	c.Processes = []Process{{PID: 6, Kind: gpu.GraphicsProcess, Display: true}}
	s := Report{Devices: []Device{a, b, c, d("GPU-4", Lease{ID: "ffff"})}}
	s.Devices[3].Unlisted = "no permission"
	s.AddUsage(map[int]string{1: "aaaa", 2: "bbbb", 4: "bbbb", 5: "dddd"})
	var got []string
	for _, list := range [][]Process{s.Devices[0].Processes, s.Devices[1].MIG[0].Processes} {
		for _, p := range list {
			got = append(got, fmt.Sprintf("%d %s %t", p.PID, p.Lease, p.Foreign))
		}
	}
	if text := fmt.Sprint(got); text != "[1 aaaa false 2 bbbb true 3  true 4 bbbb false 5 dddd false]" {
		t.Error(text)
	}
	asked := map[string]int{}
	s.AddComputeTime(func(lease string) *time.Duration {
		asked[lease]++
		return new(time.Second)
	})
	if fmt.Sprint(asked) != "map[bbbb:1 cccc:1 eeee:1]" || s.Devices[0].Leases[0].Computed != nil || s.Devices[2].Leases[0].Computed == nil || s.Devices[3].Leases[0].Computed != nil {
		t.Errorf("%v %+v", asked, s.Devices)
	}
}

// TestState: a device that is not well is never free, and one with a lease is what its lease makes it.
func TestState(t *testing.T) {
	for _, c := range []struct {
		use    Use
		health health.State
		want   string
	}{
		{Free, health.OK, "free"}, {Free, health.Unhealthy, "unhealthy"}, {Free, health.Degraded, "degraded"}, {Unknown, health.OK, "use unknown"}, {Unknown, health.Unhealthy, "unhealthy"},
		{Leased, health.Unhealthy, "leased"}, {Busy, health.Degraded, "busy"}, {Draining, health.Unhealthy, "draining"}, {Free, health.Unknown, "unknown"},
	} {
		if got := (&Device{Use: c.use, Health: c.health}).State(); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.use, c.health, got, c.want)
		}
	}
	for use, want := range map[Use]string{Free: "split", Leased: "split", Draining: "draining"} {
		if got := (&Device{Use: use, Health: health.OK, MIG: []Device{{}}}).State(); got != want {
			t.Errorf("with slices, %s: %q, want %q", use, got, want)
		}
	}
}

// TestNameless: no process is shown as nothing at all.
func TestNameless(t *testing.T) {
	for _, c := range []struct {
		p           Process
		owner, said string
	}{
		{Process{PID: 7, User: "bob", Command: "python"}, "bob", ""},
		{Process{PID: 7}, "?", "(unknown command)"},
		{Process{PID: 7, Ended: true}, "?", "(it has ended; if its memory stays: gpuard doctor)"},
		{Process{PID: 7, User: "bob", Command: "[python]", Ended: true}, "bob", ""},
		{Process{Outside: 4242}, "?", "(another PID namespace)"},
	} {
		if owner, said := c.p.Owner(), c.p.Nameless(); owner != c.owner || said != c.said {
			t.Errorf("%+v: %q and %q", c.p, owner, said)
		}
	}
}
