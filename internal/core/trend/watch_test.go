package trend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/status"
)

// outsider is a process without a lease.
func outsider(pid int, user string, uid uint32, command string) status.Process {
	return status.Process{PID: pid, Start: 7, User: user, UID: &uid, Command: command, Kind: gpu.ComputeProcess, Foreign: true}
}

// told are the kind, the level and the subject of each trouble.
func told(list []Trouble) string {
	var words []string
	for _, t := range list {
		words = append(words, fmt.Sprint(t.What, ":", t.Level))
	}
	return strings.Join(words, " ")
}

// TestOutsiders: what is told of a process without a lease at each level, and when it is to be ended.
func TestOutsiders(t *testing.T) {
	const grace = time.Minute
	lease := status.Lease{ID: "aaaa", User: "ann", Command: "train", PID: 5}
	with := func(change func(*status.Process)) status.Process {
		p := outsider(7, "eve", 1001, "/usr/bin/mine --fast")
		change(&p)
		return p
	}
	plain := func(*status.Process) {}
	for _, c := range []struct {
		name     string
		level    policy.Level
		change   func(*status.Process)
		at       [4]string // what is told at the beginning, a moment before the grace is over, then, and later
		warning  string
		threaten bool
	}{
		{"off", "", plain, [4]string{"intruder:off"}, "", false},
		{"report", policy.Report, plain, [4]string{"intruder:report"}, "", false},
		{"warn", policy.Warn, plain, [4]string{"intruder:warn"}, "your process 7 (mine) uses GPU 0, which ann has leased", false},
		{"end", policy.End, plain, [4]string{"intruder:warn", "", "evicted:end"}, "your process 7 (mine)", true},
		{"whose it is is not known", policy.End, func(p *status.Process) { p.User, p.UID = "", nil }, [4]string{}, "", false},
		{"its number is not known", policy.End, func(p *status.Process) { p.UID = nil }, [4]string{"intruder:report"}, "", false},
		{"it has ended", policy.End, func(p *status.Process) { p.Ended = true }, [4]string{}, "", false},
		{"the lease's own", policy.End, func(p *status.Process) { p.Foreign = false }, [4]string{}, "", false},
		{"the lease's user", policy.End, func(p *status.Process) { p.User, p.UID = "ann", new(uint32(1000)) }, [4]string{}, "", false},
		{"in a container", policy.End, func(p *status.Process) { p.Container = "c0ffee" }, [4]string{"intruder:warn"}, "your process 7 (mine)", false},
		{"an exception by name", policy.End, func(p *status.Process) { p.Command = "nvtop" }, [4]string{}, "", false},
		{"an exception by user", policy.End, func(p *status.Process) { p.User = "admin" }, [4]string{}, "", false},
		{"an exception by number", policy.End, func(p *status.Process) { p.UID = new(uint32(1234)) }, [4]string{}, "", false},
		{"a desktop", policy.End, func(p *status.Process) { p.Display, p.Spared, p.Memory = true, true, new(gpu.GiB) }, [4]string{}, "", false},
		{"a huge desktop", policy.End, func(p *status.Process) { p.Display, p.Spared, p.Memory = true, true, new(3*gpu.GiB) }, [4]string{"intruder:warn"}, "your process 7", false},
		{"what may be a compositor", policy.End, func(p *status.Process) { p.Kind, p.Spared = gpu.GraphicsProcess, true }, [4]string{"intruder:warn"}, "ann has leased. Please let it draw on another GPU", false},
		{"a renderer without a screen", policy.End, func(p *status.Process) { p.Kind = gpu.GraphicsProcess }, [4]string{"intruder:warn", "", "evicted:end"}, "", true},
		{"named like one", policy.End, func(p *status.Process) { p.Command = "/usr/bin/gnome-shell" }, [4]string{"intruder:warn", "", "evicted:end"}, "", true},
		{"the driver's daemon", policy.End, func(p *status.Process) { p.UID, p.Command = new(uint32(0)), "/usr/bin/nv-hostengine -n" }, [4]string{}, "", false},
		{"the daemon of an account", policy.End, func(p *status.Process) { p.UID, p.Command = new(uint32(113)), "nvidia-persistenced --user x" }, [4]string{}, "", false},
		{"named like a daemon", policy.End, func(p *status.Process) { p.Command = "nv-hostengine" }, [4]string{"intruder:warn", "", "evicted:end"}, "", true},
	} {
		w := Watch{Rules: policy.Watch{Outsiders: c.level, Grace: grace, Except: []string{"admin", "nvtop", "1234"}, Display: 2 * gpu.GiB}}
		d := device("GPU-1", 0.5, lease)
		d.Processes = []status.Process{with(c.change)}
		for i, after := range []time.Duration{0, grace - time.Second, grace, 2*grace - time.Second} {
			list := w.Add(at(int(after/time.Second), d))
			if got := told(list); got != c.at[i] {
				t.Errorf("%s, after %s: %q, want %q", c.name, after, got, c.at[i])
			}
			if i > 0 || len(list) == 0 {
				continue
			}
			if o := list[0].Outsider; !strings.Contains(o.Warning, c.warning) || (o.Warning == "") != !list[0].Level.AtLeast(policy.Warn) || strings.Contains(o.Warning, "It is ended in 1m0s") != c.threaten {
				t.Errorf("%s: the warning is %q", c.name, o.Warning)
			}
		}
	}
}

// TestOutsidersChange: the grace begins with the warning, and again when the process was gone; a level that is raised is
// told, and an engine's command covers its containers.
func TestOutsidersChange(t *testing.T) {
	lease := status.Lease{ID: "aaaa", User: "ann", Command: "docker", PID: 5}
	there := device("GPU-1", 0.5, lease)
	there.Processes = []status.Process{outsider(7, "eve", 1001, "mine")}
	contained := device("GPU-1", 0.5, lease)
	contained.Processes = []status.Process{outsider(8, "root", 0, "python")}
	contained.Processes[0].Container = "c0ffee"
	other := there
	other.Processes = []status.Process{outsider(7, "eve", 1001, "mine")}
	other.Processes[0].Start = 9
	gone := device("GPU-1", 0.5, lease)
	w := Watch{Rules: policy.Watch{Outsiders: policy.Off, Grace: 20 * time.Second}}
	for _, step := range []struct {
		seconds int
		level   policy.Level
		device  status.Device
		want    string
	}{
		{0, policy.Off, there, "intruder:off"},
		{100, policy.End, there, "intruder:warn"},
		{119, policy.End, there, ""},
		{119, policy.End, gone, ""},
		{120, policy.End, there, ""}, // again there
		{139, policy.End, there, ""},
		{140, policy.End, there, "evicted:end"},
		{199, policy.End, there, ""},
		{200, policy.End, there, "evicted:end"}, // it could not be ended, as it is still there
		{259, policy.End, there, ""},
		{260, policy.End, there, "evicted:end"},
		{379, policy.End, there, ""},
		{380, policy.End, there, "evicted:end"},
		{401, policy.End, other, "intruder:warn"}, // another process with that number
		{420, policy.End, other, ""},
		{421, policy.End, other, "evicted:end"},
		{422, policy.End, contained, ""},
		{500, policy.End, contained, ""},
	} {
		w.Rules.Outsiders = step.level
		if got := told(w.Add(at(step.seconds, step.device))); got != step.want {
			t.Errorf("after %d s: %q, want %q", step.seconds, got, step.want)
		}
	}
}

// TestOutsidersMany: of a program with many processes on a device the first is told, each is in the log and warned, and
// each is ended.
func TestOutsidersMany(t *testing.T) {
	d := device("GPU-1", 0.5, status.Lease{ID: "aaaa", User: "ann", Command: "train", PID: 5})
	d.Processes = []status.Process{outsider(7, "eve", 1001, "mine 1"), outsider(8, "eve", 1001, "mine 2"), outsider(9, "eve", 1001, "other")}
	w := Watch{Rules: policy.Watch{Outsiders: policy.End, Grace: time.Minute}}
	for _, step := range []struct {
		seconds int
		want    string
	}{{0, "intruder:warn:false intruder:warn:true intruder:warn:false"}, {1, ""}, {60, "evicted:end:false evicted:end:false evicted:end:false"},
		{119, ""}, {120, "evicted:end:true evicted:end:true evicted:end:true"}} { // again, where it was not ended
		var got []string
		for _, one := range w.Add(at(step.seconds, d)) {
			got = append(got, fmt.Sprint(one.What, ":", one.Level, ":", one.Again))
		}
		if text := strings.Join(got, " "); text != step.want {
			t.Errorf("after %d s: %q, want %q", step.seconds, text, step.want)
		}
	}
}

// TestWrongDevice: a process of a lease on a device that the lease does not have.
func TestWrongDevice(t *testing.T) {
	of := func(pid int, lease string) status.Process {
		return status.Process{PID: pid, User: "ann", UID: new(uint32(1000)), Command: "train", Kind: gpu.ComputeProcess, Lease: lease}
	}
	lease := func(id string, pid int) status.Lease {
		return status.Lease{ID: id, PID: pid, User: "ann", Command: "train"}
	}
	slice := func(id string, leases ...status.Lease) status.Device {
		d := device(id, 0, leases...)
		d.Profile, d.Utilization = "1g.5gb", nil
		return d
	}
	graphics, ended, daemon := of(7, "aaaa"), of(7, "aaaa"), of(7, "aaaa")
	graphics.Display, ended.Ended = true, true
	daemon.UID, daemon.Command = new(uint32(0)), "nvidia-cuda-mps-server"
	for _, c := range []struct {
		name          string
		first, second status.Device
		process       status.Process // on the second
		want          string
	}{
		{"free", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), of(7, "aaaa"), "wrong-device:report"},
		{"another lease", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0, lease("bbbb", 6)), of(7, "aaaa"), "wrong-device:report"},
		{"its own", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0, lease("aaaa", 5)), of(7, "aaaa"), ""},
		{"a second lease of the same process", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0, lease("bbbb", 5)), of(7, "aaaa"), ""},
		{"without a lease", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), of(7, ""), ""},
		{"of a lease that is not there", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), of(7, "zzzz"), ""},
		{"the screen", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), graphics, ""},
		{"it has ended", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), ended, ""},
		{"the driver's", device("GPU-1", 0, lease("aaaa", 5)), device("GPU-2", 0), daemon, ""},
	} {
		c.second.Processes = []status.Process{c.process}
		var w Watch
		list := w.Add(at(0, c.first, c.second))
		if got := told(list); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if again := w.Add(at(1, c.first, c.second)); len(again) > 0 {
			t.Errorf("%s: told twice", c.name)
		}
		if c.want != "" && (list[0].Lease != "aaaa" || list[0].Device != "GPU-2" || list[0].Text != "process 7 of ann (train) belongs to lease aaaa and uses GPU 0, which that lease does not have") {
			t.Errorf("%s: %+v", c.name, list[0])
		}
	}
	// On a GPU with slices: the lease of the whole has its slices, that of a slice has no other one.
	for _, c := range []struct {
		whole []status.Lease
		want  string
	}{{nil, "wrong-device:report"}, {[]status.Lease{lease("aaaa", 5)}, ""}} {
		d := device("GPU-1", 0, c.whole...)
		d.MIG = []status.Device{slice("MIG-1", lease("aaaa", 5)), slice("MIG-2")}
		d.MIG[1].Processes = []status.Process{of(7, "aaaa")}
		var w Watch
		if got := told(w.Add(at(0, d))); got != c.want {
			t.Errorf("slices, whole %v: %q, want %q", c.whole, got, c.want)
		}
	}
}

// TestOnCPU: a lease is told that computes beside its devices from its start on, and not where a reading is absent.
func TestOnCPU(t *testing.T) {
	start := noon.Add(time.Second)
	busy := func(i int) *time.Duration { return new(time.Duration(i) * 50 * time.Second) } // of a minute
	type moment struct {
		device  func(minute int, d *status.Device)
		compute func(minute int) *time.Duration
	}
	nothing := func(int, *status.Device) {}
	for _, c := range []struct {
		name string
		moment
		since *time.Time
		want  int // minute in which it is told; 0 never
	}{
		{"it computes", moment{nothing, busy}, &start, 16},
		{"it sleeps", moment{nothing, func(int) *time.Duration { return new(time.Second) }}, &start, 0},
		{"it does little", moment{nothing, func(i int) *time.Duration { return new(time.Duration(i) * 5 * time.Second) }}, &start, 0},
		{"it slept at first", moment{nothing, func(i int) *time.Duration { return new(time.Duration(max(0, i-30)) * time.Minute) }}, &start, 46},
		{"its time is not known", moment{nothing, func(int) *time.Duration { return nil }}, &start, 0},
		{"its time was not known for a moment", moment{nothing, func(i int) *time.Duration {
			if i == 10 {
				return nil
			}
			return busy(i)
		}}, &start, 26},
		{"it began earlier", moment{nothing, busy}, new(noon.Add(-time.Hour)), 0},
		{"it used its GPU once", moment{func(i int, d *status.Device) {
			if i == 2 {
				d.Utilization = new(0.9)
			}
		}, busy}, &start, 0},
		{"a process was there once", moment{func(i int, d *status.Device) {
			if i == 2 {
				d.Processes = []status.Process{{PID: 9, Kind: gpu.ComputeProcess}}
			}
		}, busy}, &start, 0},
		{"a process of the lease before was there", moment{func(i int, d *status.Device) {
			if i == 1 {
				d.Processes, d.Utilization = []status.Process{{PID: 9, Kind: gpu.ComputeProcess}}, new(0.9)
			}
		}, busy}, &start, 16},
		{"a desktop is there", moment{func(_ int, d *status.Device) {
			d.Processes = []status.Process{{PID: 9, Kind: gpu.GraphicsProcess, Display: true}}
		}, busy}, &start, 16},
		{"load is not read", moment{func(_ int, d *status.Device) { d.Utilization = nil }, busy}, &start, 0},
		{"memory is not read", moment{func(_ int, d *status.Device) { d.MemoryUsed = nil }, busy}, &start, 0},
		{"memory of nobody", moment{func(_ int, d *status.Device) { d.MemoryUsed = new(9 * gpu.GiB) }, busy}, &start, 0},
		{"processes are not listed", moment{func(_ int, d *status.Device) { d.Unlisted = "no permission" }, busy}, &start, 0},
		{"they were not listed for a moment", moment{func(i int, d *status.Device) {
			if i == 10 {
				d.Unlisted = "no answer"
			}
		}, busy}, &start, 25},
	} {
		var w Watch
		w.Add(at(0))
		first := 0
		for minute := 1; minute < 60; minute++ {
			lease := status.Lease{ID: "aaaa", User: "ann", Command: "train", Since: c.since, Computed: c.compute(minute)}
			d, other := device("GPU-1", 0, lease), device("GPU-2", 0, lease)
			for _, one := range []*status.Device{&d, &other} {
				one.MemoryUsed, one.MemoryTotal = new(400*gpu.MiB), new(80*gpu.GiB)
			}
			c.device(minute, &other) // the second one
			for _, trouble := range w.Add(at(60*minute, d, other)) {
				if trouble.What != OnCPU || first > 0 {
					t.Errorf("%s, minute %d: %+v", c.name, minute, trouble)
				}
				first = minute
			}
		}
		if first != c.want {
			t.Errorf("%s: told in minute %d, want %d", c.name, first, c.want)
		}
	}
}
