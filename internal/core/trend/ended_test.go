package trend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

var firstDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// hour is so many hours after the beginning.
func hour(hours float64) time.Time { return firstDay.Add(time.Duration(hours * float64(time.Hour))) }

func lease(id string, from float64, devices ...gpu.UUID) job.Lease {
	l := job.Lease{ID: id, UID: 1000, Devices: devices, Command: "train", Since: hour(from)}
	for i := range devices {
		l.Indexes = append(l.Indexes, i)
	}
	return l
}

func describe(list []EndedLease) (out []string) {
	for _, e := range list {
		for _, d := range e.Devices {
			out = append(out, fmt.Sprintf("%s %s %.4g %.4g %.4g", e.Lease, d.UUID, d.Granted/3600, d.Busy/3600, d.Idle/3600))
		}
	}
	return out
}

// TestOver: what was not measured or not seen has no figure.
func TestOver(t *testing.T) {
	l := lease("aaaa", 0, "GPU-1", "GPU-2")
	e := NewEndedLease(l, "ann", hour(2), true)
	if got := describe([]EndedLease{e}); !slices.Equal(got, []string{"aaaa GPU-1 2 0 0", "aaaa GPU-2 2 0 0"}) || e.Unseen || *e.UID != 1000 || e.Devices[1].Index != 1 {
		t.Errorf("%v %+v", got, e)
	}
	l.Load, l.Peak, l.Exit = new(0.25), 7, new(3)
	e = NewEndedLease(l, "ann", hour(2), true)
	if got := describe([]EndedLease{e}); got[0] != "aaaa GPU-1 2 0.5 1.5" || e.Peak != 7 || *e.Exit != 3 {
		t.Errorf("%v %+v", got, e)
	}
	l.Indexes = nil // of a lease that an older gpuard wrote
	e = NewEndedLease(l, "ann", hour(2), false)
	if got := describe([]EndedLease{e}); got[0] != "aaaa GPU-1 0 0 0" || !e.Unseen || e.Devices[0].Index != -1 {
		t.Errorf("%v %+v", got, e)
	}
}

// TestMerge: a lease that was written and watched counts once: by its true end, and with what was measured.
func TestMerge(t *testing.T) {
	written := NewEndedLease(lease("aaaa", 0, "GPU-1"), "ann", hour(2), true)
	watched := EndedLease{Lease: "aaaa", User: "ann", Command: "train", Since: hour(0), Until: hour(1), Peak: 9, Devices: []DeviceUse{{UUID: "GPU-1", Granted: 3600, Busy: 1800, Idle: 1800}}}
	again := NewEndedLease(lease("aaaa", 5, "GPU-1"), "ann", hour(6), true) // the same id, later
	unseen := NewEndedLease(lease("bbbb", 0, "GPU-1"), "ann", hour(9), false)
	half := watched
	half.Lease = "bbbb"
	late := watched // watched for a moment longer than it was there
	late.Devices = []DeviceUse{{UUID: "GPU-1", Granted: 3 * 3600, Busy: 1.5 * 3600, Idle: 1.5 * 3600}}
	for _, test := range []struct {
		what             string
		written, watched []EndedLease
		want             string
	}{
		{"only written", []EndedLease{written}, nil, "aaaa GPU-1 2 0 0"},
		{"only watched", nil, []EndedLease{watched}, "aaaa GPU-1 1 0.5 0.5"},
		{"both", []EndedLease{written}, []EndedLease{watched}, "aaaa GPU-1 2 0.5 0.5"},
		{"watched too long", []EndedLease{written}, []EndedLease{late}, "aaaa GPU-1 2 1 1"},
		{"watched by two", []EndedLease{written}, []EndedLease{watched, watched}, "aaaa GPU-1 2 0.5 0.5"},
		{"written twice", []EndedLease{written, written}, nil, "aaaa GPU-1 2 0 0"},
		{"an id that was used again", []EndedLease{written, again}, []EndedLease{watched}, "aaaa GPU-1 2 0.5 0.5, aaaa GPU-1 1 0 0"},
		{"its end was not seen", []EndedLease{unseen}, nil, "bbbb GPU-1 0 0 0"},
		{"but it was watched", []EndedLease{unseen}, []EndedLease{half}, "bbbb GPU-1 1 0.5 0.5"},
	} {
		got := MergeEnded(test.written, test.watched)
		if text := strings.Join(describe(got), ", "); text != test.want {
			t.Errorf("%s: %s, want %s", test.what, text, test.want)
		}
	}
	if watched.Devices[0].Granted != 3600 || written.Devices[0].Granted != 7200 {
		t.Error("what was given is changed")
	}
}

// TestMergeShares: leases that share a device are granted their part of the time, so that no device is granted for
// longer than it was used.
func TestMergeShares(t *testing.T) {
	share := func(id string, from, until float64) EndedLease {
		l := lease(id, from, "GPU-1")
		l.Share = 1 << 30
		l.Load = new(0.5)
		return NewEndedLease(l, "ann", hour(until), true)
	}
	got := describe(MergeEnded([]EndedLease{share("aaaa", 0, 3), share("bbbb", 1, 2), share("cccc", 5, 6)}, nil))
	if want := []string{"aaaa GPU-1 2.5 1.25 1.25", "bbbb GPU-1 0.5 0.25 0.25", "cccc GPU-1 1 0.5 0.5"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var many []EndedLease
	for i := range 5000 {
		many = append(many, share(fmt.Sprint(i), float64(i)/10, float64(i)/10+1))
	}
	sum := 0.0
	for _, e := range MergeEnded(many, nil) {
		sum += e.Devices[0].Granted / 3600
	}
	if math.Abs(sum-500.9) > 0.01 {
		t.Errorf("%f hours of a device that was used for 500.9", sum)
	}
}

// TestSum adds up by each property.
func TestSum(t *testing.T) {
	a := NewEndedLease(lease("aaaa", 20, "GPU-1", "GPU-2"), "ann", hour(28), true) // over midnight
	b := NewEndedLease(lease("bbbb", 30, "GPU-2"), "bob", hour(31), true)
	c := NewEndedLease(lease("cccc", 30, "GPU-9"), "bob", hour(31), false)
	b.Command, c.Command, c.Devices[0].Index = "sweep[1]", "sweep[2]", -1
	b.Devices[0].Index = 7 // it has another place since then
	b.Devices[0].Busy, b.Devices[0].Idle = 900, 1800
	a.Peak, b.Peak = 9, 5
	for by, want := range map[string][]string{
		"user":    {"ann 1 0 16 0 0 9", "bob 2 1 1 0.25 0.5 5"},
		"gpu":     {"GPU 7 (GPU-2) 2 0 9 0.25 0.5 5", "GPU 0 (GPU-1) 1 0 8 0 0 0", "GPU (GPU-9) 1 1 0 0 0 0"},
		"command": {"train 1 0 16 0 0 9", "sweep 2 1 1 0.25 0.5 5"},
		"day":     {"2026-03-01 1 0 8 0 0 9", "2026-03-02 3 1 9 0.25 0.5 9"},
	} {
		var got []string
		for _, u := range SumUse([]EndedLease{a, b, c}, by, time.UTC) {
			got = append(got, fmt.Sprintf("%s %d %d %.4g %.4g %.4g %d", u.Name, u.Jobs, u.Unseen, u.Granted, u.Used, u.Idle, u.Peak))
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
	}
	if got := SumUse(nil, "user", time.UTC); got == nil || len(got) != 0 {
		t.Errorf("%v", got)
	}
	berlin := time.FixedZone("", 2*3600)
	if got := SumUse([]EndedLease{a}, "day", berlin); got[0].Granted != 4 || got[1].Granted != 12 {
		t.Errorf("%+v", got)
	}
}
