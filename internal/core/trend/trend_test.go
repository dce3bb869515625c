package trend

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int, devices ...status.Device) *status.Report {
	return &status.Report{Taken: noon.Add(time.Duration(seconds) * time.Second), Devices: devices}
}

func device(id string, load float64, leases ...status.Lease) status.Device {
	return status.Device{UUID: gpu.UUID(id), Utilization: &load, Leases: leases}
}

// TestDay: two hours of readings, one a second: a mean for each minute, no gap but where nothing was read, and never more
// than a day.
func TestDay(t *testing.T) {
	d := NewDay(time.Minute)
	var written []Minute
	for second := range 2 * 3600 {
		if second >= 1800 && second < 2400 { // nobody looked for ten minutes
			continue
		}
		r := at(second, device("GPU-1", float64(second%60)/100))
		if second/60 == 50 {
			r.Devices[0].Utilization = nil // the device did not answer
		}
		if m := d.Add(r); m != nil {
			written = append(written, *m)
		}
	}
	minutes := d.Minutes()
	if len(minutes) != 109 || len(written) != 109 {
		t.Fatalf("%d minutes, %d written, want 109: 120 without ten and the present one", len(minutes), len(written))
	}
	byMinute := map[int]*float64{}
	for _, m := range minutes {
		byMinute[int(m.At.Sub(noon)/time.Minute)] = m.Devices["GPU-1"].Load
	}
	for i := range 119 {
		v := byMinute[i]
		gap := i >= 30 && i < 40 || i == 50
		if gap != (v == nil) {
			t.Errorf("minute %d: %v", i, v)
		}
		if v != nil && math.Abs(*v-0.295) > 1e-9 {
			t.Errorf("minute %d: %v, want the mean 0.295", i, *v)
		}
	}
	for minute := 121; minute < 3*minutesOfDay; minute++ {
		d.Add(at(60*minute, device("GPU-1", 0.5)))
	}
	if n := len(d.Minutes()); n != minutesOfDay {
		t.Errorf("%d minutes are kept, want those of a day", n)
	}
	next := NewDay(time.Minute)
	next.Restore(d.Minutes())
	if !slices.EqualFunc(next.Minutes(), d.Minutes(), func(a, b Minute) bool { return a.At.Equal(b.At) }) {
		t.Error("a day that is restored is another one")
	}
}

// TestCounts: what is counted, and only once.
func TestCounts(t *testing.T) {
	since := noon.Add(-90 * time.Second)
	share := gpu.Bytes(8 << 30)
	leased := func(memory gpu.Bytes, throttled ...string) *status.Report {
		d := device("GPU-1", 1, status.Lease{ID: "aaaa", User: "ann", Command: "train", Share: share, Memory: &memory})
		d.Throttled = throttled
		return at(0, d)
	}
	first := at(0, device("GPU-1", 0))
	first.Waiting = []status.Waiting{{ID: "t1", User: "ann", Command: "train", Since: &since}, {ID: "t2", User: "bob", Command: "x", Since: &since}}
	var c Counts
	var before *status.Report
	for i, r := range []*status.Report{first, leased(1<<30, "sw_power_cap"), leased(9<<30, "sw_power_cap", "hw_slowdown"), leased(9 << 30), leased(1 << 30), leased(9 << 30)} {
		r.Taken = noon.Add(time.Duration(10*i) * time.Second)
		if i >= 2 {
			r.Devices[0].XIDs = []status.XID{{Code: 79, At: &since}}
			r.Devices[0].Processes = []status.Process{{PID: 7, Foreign: true}}
		}
		c = c.WithReport(before, r)
		before = r
	}
	got := fmt.Sprint(c.Throttled[Reason{"GPU-1", "sw_power_cap"}], c.Throttled[Reason{"GPU-1", "hw_slowdown"}], c.XIDs[XID{"GPU-1", 79}].Times, c.Foreign, c.Over, c.Waits.N, c.Waits.Sum, c.Waits.Below, c.Reports)
	if want := "20s 10s 1 1 2 1 1m40s [0 0 0 1 1 1 1] 6"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestUses: hours are those of one device; leases that share a device share its time; what was not seen was not measured.
func TestUses(t *testing.T) {
	begin := noon.Add(-60 * time.Second)
	lease := func(id, user string) status.Lease { return status.Lease{ID: id, User: user, Since: &begin} }
	part := lease("part", "ann")
	part.Parent = "a"
	var u Uses
	for second := range 101 {
		if ended := u.Add(at(second, device("GPU-1", 0.5, lease("a", "ann"), part), device("GPU-2", 0.2, lease("a", "ann")), device("GPU-3", 1, lease("b", "bob"), lease("c", "cy")))); len(ended) > 0 {
			t.Fatalf("%v has ended", ended)
		}
		if second == 50 { // another process goes on
			open := u.OpenLeases()
			u = Uses{}
			u.Restore(open)
		}
	}
	ended := u.Add(at(101, device("GPU-1", 0), device("GPU-3", 0, lease("c", "cy"))))
	var got []string
	for _, e := range ended {
		for _, d := range e.Devices {
			got = append(got, fmt.Sprintf("%s %s %.0f %.0f %.0f", e.User, d.UUID, d.Granted, d.Busy, d.Idle))
		}
	}
	// The restart took one second, and each lease had run for a minute before.
	want := []string{"ann GPU-1 159 50 50", "ann GPU-2 159 20 79", "bob GPU-3 110 50 0"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	if open := u.OpenLeases(); len(open) != 1 || open[0].User != "cy" {
		t.Errorf("open: %+v", open)
	}
}

// TestWatch: each trouble is told once, and again when it has been gone for a while.
func TestWatch(t *testing.T) {
	share, memory, margin := gpu.Bytes(8<<30), gpu.Bytes(9<<30), 1
	idle := device("GPU-1", 0.01, status.Lease{ID: "aaaa", User: "ann", Command: "notebook"})
	bad := device("GPU-2", 0.5, status.Lease{ID: "bbbb", User: "bob", Command: "train", Share: share, Memory: &memory})
	bad.Index, bad.Health, bad.Why, bad.Margin = 1, "unhealthy", []string{"XID 79"}, &margin
	bad.Processes = []status.Process{{PID: 7, User: "eve", Command: "mine", Foreign: true}}
	good := device("GPU-2", 0.5)
	good.Processes = []status.Process{{PID: 9, User: "eve", Foreign: true}} // on a device that nobody has leased
	var w Watch
	told := func(seconds int, devices ...status.Device) (texts []string) {
		for _, trouble := range w.Add(at(seconds, devices...)) {
			texts = append(texts, trouble.Text)
		}
		return texts
	}
	for _, step := range []struct {
		seconds int
		devices []status.Device
		want    []string
	}{
		{0, []status.Device{idle, bad}, []string{"GPU 1 is unhealthy: XID 79", "GPU 1 is so hot that the driver slows it down, or soon will",
			"process 7 of eve (mine) uses GPU 1 without a lease, which bob has leased", "train of bob (lease bbbb) uses 9 GiB of GPU 1, of which it was promised 8 GiB"}},
		{1, []status.Device{idle, bad}, nil},
		{200, []status.Device{idle, good}, nil},
		{300, []status.Device{idle, bad}, nil}, // it was gone for a moment
		{700, []status.Device{idle, good}, nil},
		{7199, []status.Device{idle, good}, nil},
		{7200, []status.Device{idle, good}, []string{"notebook of ann (lease aaaa) has not used GPU 0 for 2 hours"}},
		{7201, []status.Device{idle, good}, nil},
		{7600, []status.Device{device("GPU-1", 0.9, idle.Leases...), bad}, []string{"GPU 1 is unhealthy: XID 79", "GPU 1 is so hot that the driver slows it down, or soon will",
			"process 7 of eve (mine) uses GPU 1 without a lease, which bob has leased", "train of bob (lease bbbb) uses 9 GiB of GPU 1, of which it was promised 8 GiB"}},
	} {
		if got := told(step.seconds, step.devices...); fmt.Sprint(got) != fmt.Sprint(step.want) {
			t.Errorf("after %d s: %q, want %q", step.seconds, got, step.want)
		}
	}
}
