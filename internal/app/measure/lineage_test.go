package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// process is one of a folder that looks like /proc.
type process struct {
	pid, parent int
	start       uint64
	lease       string // in its environment
}

// newLineage is how leases and processes are related; the folder of processes is the test's own.
func newLineage(t *testing.T, leases []job.Lease, processes ...process) lineageTable {
	t.Helper()
	root := t.TempDir()
	for _, p := range processes {
		dir := filepath.Join(root, strconv.Itoa(p.pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (x) S %d 1 1%s %d%s\n", p.pid, p.parent, strings.Repeat(" 0", 15), p.start, strings.Repeat(" 0", 30))
		env := "A=b\x00"
		if p.lease != "" {
			env += "GPUARD_LEASE=" + p.lease + "\x00"
		}
		for name, text := range map[string]string{"stat": stat, "environ": env} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	host := &machine.Host{Proc: proc.New(root)}
	for i := range leases {
		leases[i].UID = uint32(os.Geteuid())
		leases[i].Namespace = host.Proc.PIDNamespace()
	}
	m := &measurer{host: host, held: leases}
	return m.readLineage()
}

// TestLeaseOf: a process counts against the lease of its nearest ancestor that has one, and only where that process is
// the one for which the lease was made.
func TestLeaseOf(t *testing.T) {
	t.Parallel()
	leases := []job.Lease{
		{ID: "outer", PID: 10, Start: 100},
		{ID: "inner", PID: 20, Start: 200, Parent: "outer"},
		{ID: "first", PID: 30, Start: 300, SinceBoot: 1},
		{ID: "again", PID: 30, Start: 300, SinceBoot: 2}, // the program that took its place
		{ID: "reused", PID: 40, Start: 1},                // its number is another process by now
		{ID: "left", PID: 50, Start: 500},                // which has ended
	}
	k := newLineage(t, leases,
		process{10, 1, 100, ""}, process{11, 10, 110, ""}, process{12, 11, 120, "inner"},
		process{20, 11, 200, ""}, process{21, 20, 210, "outer"},
		process{30, 1, 300, ""}, process{31, 30, 310, "first"}, process{32, 30, 320, "unknown"},
		process{40, 1, 400, ""}, process{41, 40, 410, ""},
		process{60, 1, 600, "left"}, process{61, 1, 610, "over"}, process{62, 62, 620, ""})
	for pid, want := range map[int]string{
		10: "outer", 11: "outer", 12: "outer", // an ancestor counts more than the environment
		20: "inner", 21: "inner",
		30: "again", 31: "first", 32: "again",
		40: "", 41: "",
		60: "left", 61: "", // by the environment alone, where the lease lives
		62: "", // its own parent: it ends all the same
		99: "",
	} {
		if got := k.leaseOf(pid); got != want {
			t.Errorf("process %d counts against %q, want %q", pid, got, want)
		}
	}
}

// TestPartOf: a lease is inside of another one over any number of steps, and the outermost part is named.
func TestPartOf(t *testing.T) {
	t.Parallel()
	k := newLineage(t, []job.Lease{{ID: "a"}, {ID: "b", Parent: "a"}, {ID: "c", Parent: "b"}, {ID: "d"}, {ID: "loop", Parent: "loop"}})
	for _, c := range []struct {
		id, lease, of string
		isPart        bool
	}{{"a", "a", "", true}, {"b", "a", "b", true}, {"c", "a", "b", true}, {"c", "b", "c", true}, {"d", "a", "", false}, {"a", "b", "", false}, {"", "a", "", false}, {"loop", "a", "", false}} {
		if of, isPart := k.partOf(c.id, c.lease); of != c.of || isPart != c.isPart {
			t.Errorf("%q in %q: part %q, %v; want %q, %v", c.id, c.lease, of, isPart, c.of, c.isPart)
		}
	}
}

// TestLeasesOfOthers: leases of other users, of another PID namespace and those that cannot be read are not counted.
func TestLeasesOfOthers(t *testing.T) {
	t.Parallel()
	k := newLineage(t, []job.Lease{{ID: "own", PID: 10, Start: 1}})
	m := &measurer{host: k.host, held: []job.Lease{
		{ID: "other", PID: 10, Start: 1, UID: uint32(os.Geteuid()) + 1, Namespace: k.host.Proc.PIDNamespace()},
		{ID: "elsewhere", PID: 10, Start: 1, UID: uint32(os.Geteuid()), Namespace: k.host.Proc.PIDNamespace() + 1},
		{ID: "unreadable", PID: 10, Start: 1, UID: uint32(os.Geteuid()), Namespace: k.host.Proc.PIDNamespace(), Unreadable: true},
	}}
	if got := m.readLineage(); len(got.roots) != 0 || len(got.parent) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestUsesOn: what a process uses counts against its own lease and the leases around it; a part that keeps to its share
// is told from one that does not. A process of a tree that has ended is known by its start.
func TestUsesOn(t *testing.T) {
	t.Parallel()
	const device = gpu.UUID("GPU-1")
	k := newLineage(t, []job.Lease{
		{ID: "outer", PID: 10, Start: 100, Share: 8 * gpu.GiB}, {ID: "small", PID: 20, Start: 200, Parent: "outer", Share: gpu.GiB}, {ID: "large", PID: 30, Start: 300, Parent: "outer", Share: gpu.GiB},
	})
	on := func(pid int, start uint64, memory *gpu.Bytes) gpu.Process {
		return gpu.Process{PID: pid, Start: start, GPU: device, Memory: memory, Command: "train"}
	}
	r := &machineReading{kin: k, leases: map[int]string{10: "outer", 21: "small", 31: "large", 32: "large", 70: "", 71: "", 80: "foreign"}}
	r.machine = gpu.Machine{Devices: []gpu.Device{{UUID: device}}, Processes: []gpu.Process{
		on(10, 100, new(2*gpu.GiB)), on(21, 210, new(gpu.GiB)), on(31, 310, new(gpu.GiB)), on(32, 320, new(gpu.MiB)),
		on(70, 700, nil), on(71, 999, new(gpu.GiB)), on(80, 800, new(gpu.GiB)), on(90, 900, new(gpu.GiB)),
	}}
	w := &leaseMeter{lease: job.Lease{ID: "outer"}, members: map[int]uint64{70: 700, 71: 710}}
	got := map[int]string{}
	for _, use := range w.usesOn(r, device) {
		memory := "unknown"
		if use.Memory != nil {
			memory = use.Memory.String()
		}
		got[use.PID] = fmt.Sprint(memory, " ", use.Keeps)
	}
	want := map[int]string{10: "2 GiB false", 21: "1 GiB true", 31: "1 GiB false", 32: "1 MiB false", 70: "unknown false"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
