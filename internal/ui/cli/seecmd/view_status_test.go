package seecmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/translate"
	"gpuard/test/golden"
)

func use(d *gpu.Device, load float64, memory gpu.Bytes, celsius int) {
	d.Utilization, d.MemoryUsed, d.Temperature, d.Power = new(load), new(memory), new(celsius), new(*d.PowerLimit*load)
}

func process(pid int, on gpu.UUID, memory gpu.Bytes, user string, uid uint32, command string, ago time.Duration) gpu.Process {
	return gpu.Process{PID: pid, GPU: on, Memory: new(memory), User: user, UID: new(uid), Command: command, Kind: gpu.ComputeProcess, Start: 1, Started: golden.Now.Add(-ago), State: "S"}
}

func lease(id, user string, uid uint32, pid int, command string, ago time.Duration, on ...gpu.UUID) job.Lease {
	return job.Lease{ID: id, UID: uid, User: user, Devices: on, PID: pid, Start: 1, Command: command, Since: golden.Now.Add(-ago)}
}

func busyMixed(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:4xA100-80GB+2xL4")
	d := m.Devices
	use(&d[0], 0.94, 52428*gpu.MiB, 71)
	use(&d[1], 0.02, 130*gpu.MiB, 33)
	use(&d[2], 0.55, 20*gpu.GiB, 64)
	use(&d[3], 1, 81280*gpu.MiB, 88)
	use(&d[4], 0, 12*gpu.GiB, 50)
	d[3].ClockEvents = []string{"hw_thermal_slowdown"}
	m.Processes = []gpu.Process{
		process(4242, d[0].UUID, 51*gpu.GiB, "alice", 1001, "python train.py --epochs 100", 3*time.Hour),
		process(5151, d[1].UUID, 128*gpu.MiB, "carol", 1003, "/usr/bin/python3 -m ipykernel_launcher -f /home/carol/.local/share/jupyter/runtime/kernel-8f3e.json", 5*24*time.Hour),
		process(999, d[2].UUID, 20*gpu.GiB, "bob", 1002, "python bench.py --very-long-argument-list --with=many --more=things", 50*time.Hour),
	}
	d[4].MemoryReserved = new(400 * gpu.MiB)
	s := status.NewReport(m, []job.Lease{
		lease("k3f9", "alice", 1001, 4242, "python", 3*time.Hour, d[0].UUID),
		lease("m2aa", "日本太郎", 1004, 777, "train🚀.sh", 40*time.Second, d[3].UUID, d[5].UUID),
	}, golden.Now)
	s.AddRemedies(m, nil, 1001)
	s.AddUsage(map[int]string{4242: "k3f9"})
	s.AddWaiting([]job.Ticket{
		{ID: "tttt", User: "dave", PID: 6001, Command: "train.py", Count: 2, Memory: 20 * gpu.GiB, Since: golden.Now.Add(-26 * time.Hour)},
		{ID: "uuuu", User: "\x1b[31meve", PID: 6002, Command: "a-command-with-a-very-long-name-that-does-not-fit.sh", Count: 1, Share: 8 * gpu.GiB, Since: golden.Now.Add(-time.Minute)},
	}, 0, func(t job.Ticket) bool { return t.ID == "uuuu" }, func(t job.Ticket) bool { return t.ID == "uuuu" }, func(job.Ticket) bool { return false })
	s.Devices[4].Reason = "12 GiB are used by no visible process (container or another PID namespace)"
	return s
}

func lost(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:3xH100")
	m.Devices[1] = gpu.Device{Index: 1, UUID: m.Devices[1].UUID, Name: m.Devices[1].Name, Vendor: gpu.NVIDIA, PCI: m.Devices[1].PCI, Problem: "GPU is lost"}
	m.Devices[2] = gpu.Device{Index: 2, UUID: m.Devices[2].UUID, Vendor: gpu.NVIDIA, Name: m.Devices[2].Name, Problem: "no answer within 5 s"}
	m.Problems = []string{"cannot read the links between devices: the driver did not answer for GPU 2 within 5 s"}
	s := status.NewReport(m, nil, golden.Now)
	s.AddRemedies(m, nil, 0)
	return s
}

// kept is a machine with leases whose commands have ended: one on two devices, one of another user, and one that is
// kept for the next start.
func kept(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:4xL4")
	own := lease("k3f9", "alice", 1001, 4242, "sh", time.Hour, m.Devices[0].UUID, m.Devices[1].UUID)
	own.Ended, own.HeldBy = true, []job.Blocker{{PID: 21969, Command: "sleep\x1b[2J"}, {PID: 21970, Command: "tmux"}}
	other := lease("m2aa", "bob", 1002, 5151, "python", time.Hour, m.Devices[2].UUID)
	other.Ended = true
	again := lease("j4b7", "alice", 1001, 4343, "python3", time.Hour, m.Devices[3].UUID)
	again.Ended, again.Kept = true, &job.Kept{Until: golden.Now.Add(9 * time.Second)}
	leases := []job.Lease{own, other, again}
	s := status.NewReport(m, leases, golden.Now)
	s.AddRemedies(m, leases, 1001)
	return s
}

func sliced(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:1xA100-80GB:3g.40gb,1g.10gb*3+1xA100-80GB")
	s := m.Devices[0].MIG
	s[1].MemoryUsed = new(3 * gpu.GiB)
	s[2].MemoryUsed = new(6 * gpu.GiB)
	m.Processes = []gpu.Process{process(31, s[2].UUID, 6*gpu.GiB, "bob", 1002, "python infer.py", 90*time.Second)}
	return status.NewReport(m, []job.Lease{lease("a1b2", "alice", 1001, 30, "serve", 26*time.Hour, s[1].UUID)}, golden.Now)
}

func sixteen(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:14xH200+2xMI300X")
	var leases []job.Lease
	for i := range 5 {
		use(&m.Devices[i], 0.1*float64(2*i+1), gpu.Bytes(25*(i+1))*gpu.GiB, 40+5*i)
		leases = append(leases, lease(fmt.Sprintf("l%03d", i), "alice", 1001, 100+i, "python", time.Hour, m.Devices[i].UUID))
	}
	return status.NewReport(m, leases, golden.Now)
}

func none(*testing.T) status.Report {
	return status.NewReport(gpu.Machine{}, nil, golden.Now, &gpu.Unavailable{
		Cause:  gpu.VersionMismatch,
		Text:   "cannot read NVIDIA devices: the library is version 580.95 and the loaded driver is 575.51",
		Remedy: "reboot, or unload the old driver: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
	})
}

func odd(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:1xRTX4090")
	m.Source = "file"
	m.Taken = golden.Now.Add(-26 * time.Hour)
	m.Devices[0].MemoryUsed = new(20 * gpu.GiB)
	m.Devices[0].Name = "NVIDIA \x1b[31m GeForce\a RTX 4090 ❤️"
	return status.NewReport(m, []job.Lease{
		lease("aaaa", "alice", 1001, 5, "first", time.Minute, m.Devices[0].UUID),
		lease("bbbb", "bob\x1b[2J", 1002, 6, "second", time.Minute, m.Devices[0].UUID, "GPU-elsewhere"),
		{ID: "cccc", User: "mallory", UID: 1009, Unreadable: true, Hashes: []string{job.ManyDevices}},
	}, golden.Now)
}

// sharers is a machine with shares on one device. The memory of one of them is unknown.
func sharers(t *testing.T) status.Report {
	m := golden.InventMachine(t, "demo:1xA100-80GB")
	id := m.Devices[0].UUID
	share := func(l job.Lease, size gpu.Bytes, q job.Quota) job.Lease {
		l.Share, l.Quota = size, q
		return l
	}
	m.Processes = []gpu.Process{process(11, id, 2*gpu.GiB, "alice", 1001, "python", time.Hour), process(12, id, 512*gpu.MiB, "bob", 1002, "serve", time.Hour)}
	unknown := process(13, id, 0, "carol", 1003, "infer", time.Hour)
	unknown.Memory = nil
	m.Processes = append(m.Processes, unknown)
	s := status.NewReport(m, []job.Lease{
		share(lease("k3f9", "alice", 1001, 11, "a-python-of-a-long-name", time.Hour, id), 8*gpu.GiB, job.Watch),
		share(lease("m2aa", "bob", 1002, 12, "serve", time.Hour, id), 16*gpu.GiB, job.MPS),
		share(lease("p4bb", "carol", 1003, 13, "infer", time.Hour, id), 4*gpu.GiB, job.NoQuota),
		share(lease("q5cc", "dave", 1004, 14, "idle", time.Hour, id), 4*gpu.GiB, job.Watch),
	}, golden.Now)
	s.AddUsage(map[int]string{11: "k3f9", 12: "m2aa", 13: "p4bb"})
	return s
}

func scenes() map[string]func(*testing.T) status.Report {
	return map[string]func(*testing.T) status.Report{
		"idle": func(t *testing.T) status.Report {
			return status.NewReport(golden.InventMachine(t, "demo"), nil, golden.Now)
		},
		"busy": busyMixed, "lost": lost, "mig": sliced, "sixteen": sixteen, "none": none, "odd": odd, "kept": kept, "shares": sharers,
	}
}

func TestStatus(t *testing.T) {
	for name, scene := range scenes() {
		for _, term := range []console.Term{{Width: 40, UTF8: true}, {Width: 80, UTF8: true}, {Width: 140, UTF8: true}} {
			var out strings.Builder
			out.WriteString(statusText(scene(t), term))
			golden.Compare(t, fmt.Sprintf("status-%s-%d", name, term.Width), out.String())
		}
	}
	golden.Compare(t, "status-busy-color", statusText(busyMixed(t), console.Term{Width: 80, UTF8: true, Color: true}))
	golden.Compare(t, "status-busy-ascii", statusText(busyMixed(t), console.Term{Width: 80}))
}

func TestStatusNeverExceedsTheWidth(t *testing.T) {
	for name, scene := range scenes() {
		s := scene(t)
		for width := 1; width <= 200; width++ {
			for _, utf8 := range []bool{true, false} {
				for line := range strings.Lines(statusText(s, console.Term{Width: width, UTF8: utf8})) {
					line = strings.TrimSuffix(line, "\n")
					if console.CellWidth(line) > width {
						t.Fatalf("%s at %d columns: %d cells in %q", name, width, console.CellWidth(line), line)
					}
					if !utf8 && strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
						t.Fatalf("%s in ASCII: %q", name, line)
					}
					if strings.ContainsAny(line, "\x1b\a\r\t") {
						t.Fatalf("%s: control characters in %q", name, line)
					}
				}
			}
		}
	}
}

// TestStatusInChinese: the heads, the words of the table and what is below it; columns stay in line, and no line is wider than the terminal.
func TestStatusInChinese(t *testing.T) {
	for _, width := range []int{40, 100} {
		text := statusText(busyMixed(t), console.Term{Width: width, UTF8: true, Language: translate.ReadLocale("zh_CN")}) +
			statusText(kept(t), console.Term{Width: width, UTF8: true, Language: translate.ReadLocale("zh_CN")})
		for line := range strings.Lines(text) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d columns there is a line of %d: %s", width, n, line)
			}
		}
		golden.Compare(t, fmt.Sprintf("status-zh-%d", width), text)
	}
}

func TestStatusJSON(t *testing.T) {
	data, err := json.MarshalIndent(status.NewReport(gpu.Machine{}, nil, golden.Now), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "null") || !strings.HasPrefix(string(data), "{\n  \"schema\": \"gpuard.status/1\",") {
		t.Errorf("lists must be [] and the schema first:\n%s", data)
	}
}

func TestFrame(t *testing.T) {
	const leave = "q leaves"
	s := sixteen(t)
	whole := frameText(s, console.Term{Width: 80, UTF8: true, TTY: true}, leave)
	if !strings.HasPrefix(whole, "\x1b[H16 GPUs: ") || !strings.HasSuffix(whole, "\n15:00:00  q leaves\x1b[K\n\x1b[J") {
		t.Errorf("a frame starts at the top left, ends with clock and key, and clears the rest: %q … %q", whole[:20], whole[len(whole)-40:])
	}
	small := frameText(s, console.Term{Width: 80, Height: 10, UTF8: true, TTY: true}, leave)
	if n := strings.Count(small, "\n"); n != 9 {
		t.Errorf("a frame for 10 lines ends %d lines: it would scroll", n)
	}
	if !strings.Contains(small, "\n16 more lines  15:00:00  q leaves\x1b[K\n\x1b[J") {
		t.Errorf("what is hidden is not counted: %q", small)
	}
	if got := frameText(s, console.Term{Width: 80, Height: 10}, leave); strings.Contains(got, "\x1b") || strings.Count(got, "\n") < 20 || strings.Contains(got, leave) {
		t.Errorf("a frame for a file is plain and whole: %q", got)
	}
	if got := frameText(s, console.Term{Width: 80, Height: 1, TTY: true}, leave); strings.Count(got, "\n") > 1 {
		t.Errorf("a frame for one line: %q", got)
	}
}

// TestFrameOrder: if not all devices fit, devices in use and unhealthy ones come before free ones.
func TestFrameOrder(t *testing.T) {
	m := golden.InventMachine(t, "demo:8xL4")
	m.Devices[2].Problem = "GPU is lost"
	s := status.NewReport(m, []job.Lease{lease("k3f9", "alice", 1001, 7, "python", time.Hour, m.Devices[6].UUID)}, golden.Now)
	row := func(text, label string) int {
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "  "+label+"  ") {
				return i
			}
		}
		return -1
	}
	small := frameText(s, console.Term{Width: 80, Height: 10, TTY: true}, "")
	if leased, sick := row(small, "6"), row(small, "2"); leased < 0 || sick < leased || !strings.Contains(small, "k3f9") || row(small, "7") >= 0 {
		t.Errorf("a small frame hides who is on the devices:\n%s", small)
	}
	if large := frameText(s, console.Term{Width: 80, Height: 40, TTY: true}, ""); row(large, "0") > row(large, "6") || row(large, "0") < 0 {
		t.Errorf("a frame with room enough keeps the order:\n%s", large)
	}
	if s.Devices[0].Index != 0 {
		t.Error("the report itself was sorted")
	}
}

// TestStatusWords: counts, and texts that every width shows.
func TestStatusWords(t *testing.T) {
	shown := func(s status.Report, width int) string {
		var out strings.Builder
		out.WriteString(statusText(s, console.Term{Width: width}))
		return out.String()
	}
	for spec, want := range map[string]string{
		"demo:1xL4":                                      "1 GPU: 1 free",
		"demo:1xA100-80GB:3g.40gb,1g.10gb*3":             "1 GPU split into 4 MIG slices: 4 free",
		"demo:1xA100-80GB:7g.80gb":                       "1 GPU split into 1 MIG slice: 1 free",
		"demo:1xA100-80GB:3g.40gb,1g.10gb*3+2xA100-80GB": "3 GPUs (1 split into 4 MIG slices): 6 free",
		"demo:2xA100-80GB:3g.40gb+1xL4":                  "3 GPUs (2 split into 2 MIG slices): 3 free",
	} {
		if got := shown(status.NewReport(golden.InventMachine(t, spec), nil, golden.Now), 80); !strings.HasPrefix(got, want) {
			t.Errorf("%s begins %q, want %q", spec, strings.SplitN(got, "\n", 2)[0], want)
		}
	}
	if got := shown(status.NewReport(gpu.Machine{Source: "file"}, nil, golden.Now), 80); !strings.HasPrefix(got, "No GPU: the machine file has none") {
		t.Errorf("an empty machine file: %q", got)
	}
	m := golden.InventMachine(t, "demo:2xL4")
	s := status.NewReport(m, []job.Lease{
		lease("k3f9", "alice", 1001, 7, "python", time.Hour, m.Devices[0].UUID),
		lease("m2aa", "alice", 1001, 8, "python", time.Hour, m.Devices[1].UUID),
	}, golden.Now)
	s.MarkCallerLease("m2aa")
	for width := 12; width < 130; width++ {
		if got := shown(s, width); !strings.Contains(got, "k3f9") || !strings.Contains(got, "m2aa") {
			t.Errorf("at %d columns a lease has no id:\n%s", width, got)
		}
	}
	if got := shown(s, 80); !strings.Contains(got, "m2aa (here), pid 8") || !strings.Contains(got, "k3f9, pid 7") {
		t.Errorf("which lease this shell is in is not marked:\n%s", got)
	}
}
