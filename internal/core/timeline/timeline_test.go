package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func lease(user string, from, to int, devices ...gpu.UUID) trend.EndedLease {
	e := trend.EndedLease{Lease: fmt.Sprint(user, from), User: user, Command: "train.py", Since: noon.Add(time.Duration(from) * time.Minute), Until: noon.Add(time.Duration(to) * time.Minute)}
	for _, id := range devices {
		e.Devices = append(e.Devices, trend.DeviceUse{UUID: id, Busy: 30, Idle: 10})
	}
	return e
}

func machine() *status.Report {
	return &status.Report{Devices: []status.Device{
		{Index: 0, UUID: "GPU-0", MemoryTotal: new(gpu.Bytes(100))},
		{Index: 1, UUID: "GPU-1", MIG: []status.Device{{UUID: "MIG-a"}, {UUID: "MIG-b"}}},
		{Index: 2},
	}}
}

func words(b Band) string {
	var all []string
	for _, s := range b.Spans {
		all = append(all, fmt.Sprintf("%s %s-%s %d/%d", s.User, s.Since.Format("15:04"), s.Until.Format("15:04"), s.Lane, s.Lanes))
	}
	return strings.Join(all, ", ")
}

// TestOf: leases lie on their devices, those of slices on the GPU, shares above each other, and what is outside is left out.
func TestOf(t *testing.T) {
	p := NewPicture(View{Report: machine(), To: noon, Span: 4 * time.Hour, Columns: 48, Leases: []trend.EndedLease{
		lease("ann", -300, -200, "GPU-0"), lease("bob", -200, -100, "GPU-0"), lease("old", -400, -241, "GPU-0"),
		lease("cid", -90, -30, "MIG-a"), lease("dan", -60, -20, "MIG-b"), lease("eve", -50, -40, "GPU-9"),
	}, Open: []trend.EndedLease{lease("fay", -15, 0, "GPU-0", "GPU-1")}})
	for i, want := range []string{"ann 07:00-08:40 0/1, bob 08:40-10:20 0/1, fay 11:45-12:00 0/1", "cid 10:30-11:30 0/2, dan 11:00-11:40 1/2, fay 11:45-12:00 0/1", ""} {
		if got := words(p.Bands[i]); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	if s := p.Bands[0].Spans[0]; s.Load == nil || *s.Load != 0.75 || s.Open {
		t.Errorf("%+v", s)
	}
	if !p.Bands[0].FreeSince().IsZero() || !p.Bands[0].Spans[2].Open {
		t.Errorf("an open lease: %v", p.Bands[0].FreeSince())
	}
}

// TestRead: columns have the means of their minutes, and nothing where nobody looked.
func TestRead(t *testing.T) {
	var minutes []trend.Minute
	for i := range 120 {
		at := noon.Add(time.Duration(i-120) * time.Minute)
		mean := trend.Mean{Load: new(float64(i%5) / 4), Memory: new(25.0)}
		if i >= 60 && i < 65 {
			mean = trend.Mean{State: "unhealthy", Marks: []trend.Mark{{At: at, What: "xid", Text: "XID 79"}}}
		}
		if i < 100 {
			minutes = append(minutes, trend.Minute{At: at, Devices: map[gpu.UUID]trend.Mean{"GPU-0": mean}})
		}
	}
	b := NewPicture(View{Report: machine(), Minutes: minutes, To: noon, Span: 4 * time.Hour, Columns: 48}).Bands[0]
	for i := range 48 {
		at := time.Duration(i) * 5 * time.Minute
		looked := at >= 2*time.Hour && at < 220*time.Minute
		sick := i == 36
		if (b.Load[i] != nil) != (looked && !sick) || (b.States[i] == "unhealthy") != sick {
			t.Errorf("column %d: %v %q", i, b.Load[i], b.States[i])
		}
		if looked && !sick && (*b.Load[i] != 0.5 || *b.Memory[i] != 0.25) {
			t.Errorf("column %d: %v %v", i, *b.Load[i], *b.Memory[i])
		}
	}
	if len(b.Marks) != 5 {
		t.Errorf("%+v", b.Marks)
	}
}

// TestThin: of thousands of short leases a few are left, which say how many they are and who had most.
func TestThin(t *testing.T) {
	var list []trend.EndedLease
	for i := range 1440 {
		user := "ann"
		if i%3 == 0 {
			user = "bob"
		}
		list = append(list, lease(user, i-1440, i-1439, "GPU-0"))
	}
	list = append(list, lease("cid", -2000, -1450, "GPU-0"))
	b := NewPicture(View{Report: machine(), Leases: list, To: noon, Span: 48 * time.Hour, Columns: 288}).Bands[0]
	jobs := 0
	for _, s := range b.Spans {
		jobs += s.Jobs
		if s.Jobs > 5 && s.User != "ann" || s.Lanes != 1 {
			t.Errorf("%+v", s)
		}
	}
	if len(b.Spans) > maxSpans || jobs != 1441 || b.Spans[0].User != "cid" || !b.FreeSince().Equal(noon) {
		t.Errorf("%d spans of %d jobs, %v", len(b.Spans), jobs, b.FreeSince())
	}
}

// TestWithin: of a lease that began before the period or is still running, the hours in the period count.
func TestWithin(t *testing.T) {
	span := func(from, to int) trend.EndedLease {
		hours := float64(to-from) * 3600
		return trend.EndedLease{User: "ann", Since: noon.Add(time.Duration(from) * time.Hour), Until: noon.Add(time.Duration(to) * time.Hour),
			Devices: []trend.DeviceUse{{UUID: "GPU-1", Granted: hours, Busy: hours / 2, Idle: hours / 2}}}
	}
	unseen := span(0, 4)
	unseen.Unseen = true
	got := LeasesWithin([]trend.EndedLease{span(-5, -1), span(-2, 2), span(1, 3), span(3, 9), span(4, 5), unseen}, noon, noon.Add(4*time.Hour))
	var hours []float64
	for _, e := range got {
		hours = append(hours, e.Devices[0].Granted/3600)
		if load := e.Devices[0].Load(); load == nil || *load != 0.5 {
			t.Errorf("%+v", e)
		}
	}
	if len(hours) != 4 || hours[0] != 2 || hours[1] != 2 || hours[2] != 1 {
		t.Errorf("%v", hours)
	}
}

// TestStateSince: the beginning of a state is known where a minute before it was seen without it.
func TestStateSince(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	minutes := func(states ...string) (all []trend.Minute) {
		for i, state := range states {
			if state != "gap" {
				all = append(all, trend.Minute{At: begin.Add(time.Duration(i) * time.Minute), Devices: map[gpu.UUID]trend.Mean{"G": {State: state}}})
			}
		}
		return all
	}
	for _, test := range []struct {
		minutes []trend.Minute
		want    int // minutes behind begin; -1 not known
	}{
		{minutes("", "unhealthy", "unhealthy"), 1},
		{minutes("unhealthy", "", "unhealthy"), 2},
		{minutes("unhealthy", "unhealthy"), -1},
		{minutes("", "unhealthy", "gap", "gap", "gap", "unhealthy"), -1},
		{minutes("unhealthy", ""), -1},
		{nil, -1},
	} {
		want := time.Time{}
		if test.want >= 0 {
			want = begin.Add(time.Duration(test.want) * time.Minute)
		}
		if got := StateSince(test.minutes, "G", "unhealthy"); !got.Equal(want) {
			t.Errorf("%v: %v, want %v", test.minutes, got, want)
		}
	}
}
