package glance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lab is a machine whose leases and requests a test sets.
type lab struct {
	gpu.Machine
	leases []job.Lease
	line   []job.Ticket
	full   bool // a rule keeps the first request waiting
}

func newLab(t *testing.T, machine string) *lab {
	t.Helper()
	m, err := gpu.InventMachine(machine)
	if err != nil {
		t.Fatal(err)
	}
	return &lab{Machine: m}
}

// lease gives devices to a user for a time that is asked, 0 for none, since an hour.
func (l *lab) lease(user, command string, asked time.Duration, devices ...int) *job.Lease {
	id := fmt.Sprintf("k%03d", len(l.leases))
	held := job.Lease{ID: id, User: user, UID: uint32(1000 + len(user)), Command: command, Since: testNow.Add(-time.Hour), Time: asked} //nolint:gosec // small
	for _, i := range devices {
		held.Devices = append(held.Devices, l.Devices[i].UUID)
	}
	l.leases = append(l.leases, held)
	return &l.leases[len(l.leases)-1]
}

// waits adds a request for so many of these devices, or of all where none is named.
func (l *lab) waits(user string, count int, devices ...int) *job.Ticket {
	t := job.Ticket{ID: fmt.Sprintf("t%03d", len(l.line)), User: user, Command: "train.py", Count: count, Since: testNow.Add(-time.Minute)}
	for i := range l.Devices {
		for _, at := range devices {
			if at == i {
				t.Devices = append(t.Devices, l.Devices[i].UUID)
			}
		}
		if len(devices) == 0 {
			t.Devices = append(t.Devices, l.Devices[i].UUID)
		}
	}
	l.line = append(l.line, t)
	return &l.line[len(l.line)-1]
}

func (l *lab) report() *status.Report {
	s := status.NewReport(l.Machine, l.leases, testNow)
	none := func(job.Ticket) bool { return false }
	s.AddWaiting(l.line, 0, none, func(t job.Ticket) bool { return t.PID == 99 }, func(t job.Ticket) bool { return l.full && t.ID == "t000" })
	return &s
}

func TestAnswers(t *testing.T) {
	lost := func(l *lab, i int) { l.Devices[i].Problem = "GPU is lost" }
	for _, test := range []struct {
		name, machine string
		set           func(l *lab)
		want, title   string
	}{
		{"idle", "demo:4xL4", func(*lab) {}, "4 of 4 free · nothing waits · nothing is broken", "4 free"},
		{"a day", "demo:4xL4", func(l *lab) {
			l.lease("alice", "bert-large", 3*time.Hour+20*time.Minute, 2)
			l.lease("bob", "eval", 0, 0, 1)
			l.lease("carol", "tune", 9*time.Hour, 3)
			l.waits("dave", 1)
			l.waits("erin", 2)
			l.waits("erin", 1)
		}, "0 of 4 free · 3 wait, the next gets GPU 2 at about 14:20 (end of bert-large) · nothing is broken", "0 free"},
		{"two devices", "demo:4xL4", func(l *lab) {
			l.lease("alice", "bert", 2*time.Hour, 2)
			l.lease("bob", "eval", 0, 0, 1)
			l.lease("carol", "tune", 30*time.Hour, 3)
			l.waits("dave", 2)
		}, "0 of 4 free · 1 waits, the next gets GPU 2, 3 at about 17:00 tomorrow (end of tune) · nothing is broken", "0 free"},
		{"a limit", "demo:1xL4", func(l *lab) {
			held := l.lease("alice", "bert", 0, 0)
			held.Until = int64(2 * time.Hour)
			l.waits("dave", 1)
		}, "0 of 1 free · 1 waits, the next gets GPU 0 by 13:00 (end of bert) · nothing is broken", "0 free"},
		{"an estimate that is over", "demo:1xL4", func(l *lab) {
			l.lease("alice", "bert", time.Minute, 0)
			l.waits("dave", 1)
		}, "0 of 1 free · 1 waits, the next waits for the end of bert, which is not known · nothing is broken", "0 free"},
		{"any of several without an end", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.lease("bob", "eval", 0, 1)
			l.waits("dave", 1)
		}, "0 of 2 free · 1 waits, the next waits for an end that is not known · nothing is broken", "0 free"},
		{"all of several without an end", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.lease("bob", "eval", 0, 1)
			l.waits("dave", 2)
		}, "0 of 2 free · 1 waits, the next waits for an end that is not known · nothing is broken", "0 free"},
		{"one lease of several devices without an end", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0, 1)
			l.waits("dave", 2)
		}, "0 of 2 free · 1 waits, the next waits for the end of bert, which is not known · nothing is broken", "0 free"},
		{"free, and next", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.waits("dave", 1)
		}, "1 of 2 free, kept for train.py of dave · 1 waits, the next gets GPU 1 now · nothing is broken", "1 free"},
		{"free, and any of them", "demo:3xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.waits("dave", 1)
		}, "2 of 3 free, a new job of 1 GPU can start · 1 waits, the next starts now · nothing is broken", "2 free"},
		{"one of two", "demo:3xL4", func(l *lab) {
			l.lease("alice", "bert", 2*time.Hour, 0, 2)
			l.lease("bob", "eval", 0, 1)
			l.waits("dave", 1)
		}, "0 of 3 free · 1 waits, the next gets GPU 0/2 at about 13:00 (end of bert) · nothing is broken", "0 free"},
		{"two of three", "demo:3xL4", func(l *lab) {
			l.lease("alice", "bert", 2*time.Hour, 0, 1, 2)
			l.waits("dave", 2)
		}, "0 of 3 free · 1 waits, the next gets 2 GPUs at about 13:00 (end of bert) · nothing is broken", "0 free"},
		{"beside a drained one", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.Devices[1].Drained = "new fan (root)"
			l.waits("dave", 1)
		}, "0 of 2 free · 1 waits, the next waits for the end of bert, which is not known · 1 GPU drained", "0 free"},
		{"a rule", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.waits("alice", 1).Max = 1
			l.full = true
		}, "1 of 2 free · 1 waits, the next waits for a rule: its user may have 1 · nothing is broken", "1 free"},
		{"only stopped ones", "demo:1xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			l.waits("dave", 1).PID = 99
		}, "0 of 1 free · 1 waits · nothing is broken", "0 free"},
		{"drained, and needed", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 2*time.Hour, 0)
			l.Devices[1].Drained = "new fan (root)"
			l.waits("dave", 2)
		}, "0 of 2 free · 1 waits, the next waits until somebody frees a GPU · 1 GPU drained", "0 free"},
		{"trouble", "demo:8xL4", func(l *lab) {
			lost(l, 0)
			l.Devices[1].ClockEvents = []string{"hw_thermal_slowdown"}
			l.Devices[2].Problem = "no answer within 5s"
			l.Devices[3].RecoveryAction = "reset"
			l.Devices[4].Drained = "new fan (root)"
			l.lease("alice", "bert", 0, 5)
			l.Processes = append(l.Processes,
				gpu.Process{PID: 7, GPU: l.Devices[5].UUID, User: "mallory", Memory: new(gpu.Bytes(1 << 30)), Started: testNow.Add(-time.Hour)},
				gpu.Process{PID: 8, GPU: l.Devices[6].UUID, User: "mallory", Memory: new(gpu.Bytes(9 << 30)), Started: testNow.Add(-time.Hour)})
			l.Devices[6].MemoryUsed = new(gpu.Bytes(9 << 30))
			l.lease("bob", "done", 0, 7).Ended = true
		}, "0 of 8 free · nothing waits · 1 GPU unhealthy: lost, 1 GPU unhealthy, 1 GPU does not answer, 1 process of an intruder, 1 GPU degraded: hot, 1 GPU busy without a lease, 1 lease held after its end, 1 GPU drained", "0 free, 1 GPU unhealthy: lost"},
		{"a lost one that is leased", "demo:2xL4", func(l *lab) {
			l.lease("alice", "bert", 0, 0)
			lost(l, 0)
			lost(l, 1)
		}, "0 of 2 free · nothing waits · 2 GPUs unhealthy: lost", "0 free, 2 GPUs unhealthy: lost"},
		{"slices", "demo:1xA100-80GB:3g.40gb*2+1xA100-80GB", func(l *lab) {
			held := l.lease("alice", "bert", 2*time.Hour, 1)
			held.Devices = []gpu.UUID{l.Devices[0].MIG[0].UUID}
			ticket := l.waits("bob", 2)
			ticket.Devices = []gpu.UUID{l.Devices[0].MIG[0].UUID, l.Devices[0].MIG[1].UUID}
		}, "2 of 3 free, a new job of up to 2 GPUs can start · 1 waits, the next gets GPU 0:0, 0:1 at about 13:00 (end of bert) · nothing is broken", "2 free"},
		{"none", "", nil, "no GPU · nothing waits · nothing is broken", "0 free"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &status.Report{Now: testNow}
			if test.machine != "" {
				l := newLab(t, test.machine)
				test.set(l)
				s = l.report()
			}
			got := Summarize(s, "")
			if got.Text() != test.want || got.Title() != test.title {
				t.Errorf("%q, %q", got.Text(), got.Title())
			}
		})
	}
}

// TestParts: each part has its key, and names the devices and leases that it is about.
func TestParts(t *testing.T) {
	l := newLab(t, "demo:4xL4")
	l.Devices[3].Problem = "GPU is lost"
	l.lease("alice", "bert", 2*time.Hour, 1)
	shares := []*job.Lease{l.lease("bob", "one", 0, 2), l.lease("bob", "two", 3*time.Hour, 2)}
	for i := range shares {
		l.leases[i+1].Share, l.leases[i+1].Quota = 10*gpu.GiB, job.Watch
	}
	l.waits("carol", 1, 2).Share = 8 * gpu.GiB
	s := l.report()
	s.Devices[2].Leases[0].Memory = new(12 * gpu.GiB)
	a := Summarize(s, "")
	if a.Free.Key != Free || fmt.Sprint(a.Free.Places) != "[0]" || a.Of != 4 {
		t.Errorf("%+v", a.Free)
	}
	if got := fmt.Sprintf("%v %v %v", a.Troubles[0].Key, a.Troubles[0].Places, a.Troubles[0].Grave); got != "lost [3] true" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%v %v %v", a.Troubles[1].Key, a.Troubles[1].Places, a.Troubles[1].Leases); got != "over [2] [k001]" {
		t.Error(got)
	}
	// The share that has an end makes room for another share, whatever becomes of the one without.
	if n := a.Next; n == nil || n.Lease != "k002" || n.User != "bob" || fmt.Sprint(n.Places) != "[2]" || !n.Guess || !n.At.Equal(testNow.Add(2*time.Hour)) {
		t.Errorf("%+v", a.Next)
	}
}

// TestStarts: each request comes after those before it, and says nothing where an end is not known.
func TestStarts(t *testing.T) {
	l := newLab(t, "demo:2xL4")
	l.lease("alice", "bert", 2*time.Hour, 0)
	l.lease("bob", "eval", 0, 1)
	l.waits("carol", 1).Time = time.Hour
	l.waits("dave", 1)
	l.waits("erin", 2)
	var got []string
	for _, at := range ForecastStarts(l.report()) {
		if at.IsZero() {
			got = append(got, "-")
			continue
		}
		got = append(got, at.Format("15:04"))
	}
	if strings.Join(got, " ") != "13:00 14:00 -" {
		t.Error(got)
	}
}

// TestMine: who reads is told of the own first request: what it gets and when if it is next, else its place, with a time or with what
// keeps the time from being known.
func TestMine(t *testing.T) {
	ends := func(l *lab) {
		l.lease("alice", "bert", 3*time.Hour, 0)
		l.lease("bob", "eval", 5*time.Hour, 1)
	}
	for _, test := range []struct {
		name, want string
		set        func(l *lab)
	}{
		{"next", "2 wait, your train.py gets GPU 0 at about 14:00 (end of bert)", func(l *lab) {
			ends(l)
			l.waits("dave", 1)
			l.waits("erin", 1)
		}},
		{"second", "2 wait, your train.py is 2nd and gets 1 GPU at about 14:30", func(l *lab) {
			ends(l)
			l.waits("erin", 1, 0).Time = 30 * time.Minute
			l.waits("dave", 1, 0)
		}},
		{"third", "3 wait, your train.py is 3rd and gets 2 GPUs at about 17:00", func(l *lab) {
			ends(l)
			l.waits("erin", 1).Time = 30 * time.Minute
			l.waits("erin", 1, 1).Time = time.Hour
			l.waits("dave", 2)
		}},
		{"one before it said no time", "2 wait, your train.py is 2nd and waits for others of which no end is known", func(l *lab) {
			ends(l)
			l.waits("erin", 2)
			l.waits("dave", 2)
		}},
		{"a lease said no time", "2 wait, your train.py is 2nd and waits for the end of sdxl, which is not known", func(l *lab) {
			l.lease("alice", "bert", 3*time.Hour, 0)
			l.lease("bob", "sdxl", 0, 1)
			l.waits("erin", 1, 0)
			l.waits("dave", 1, 1)
		}},
		{"out of use", "2 wait, your train.py is 2nd and waits until somebody frees a GPU", func(l *lab) {
			ends(l)
			l.Devices[1].Drained = "new fan (root)"
			l.waits("erin", 1)
			l.waits("dave", 2)
		}},
		{"a rule", "2 wait, your train.py waits for a rule: you may have 1", func(l *lab) {
			l.lease("dave", "bert", 0, 0)
			l.waits("dave", 1).Max = 1
			l.full = true
			l.waits("erin", 1)
		}},
		{"a stopped one before it", "2 wait, your train.py gets GPU 0 at about 14:00 (end of bert)", func(l *lab) {
			ends(l)
			l.waits("erin", 1).PID = 99
			l.waits("dave", 1)
		}},
		{"the own one is stopped", "2 wait, the next gets GPU 0 at about 14:00 (end of bert)", func(l *lab) {
			ends(l)
			l.waits("dave", 1).PID = 99
			l.waits("erin", 1)
		}},
		{"none", "1 waits, the next gets GPU 0 at about 14:00 (end of bert)", func(l *lab) {
			ends(l)
			l.waits("erin", 1)
		}},
	} {
		l := newLab(t, "demo:2xL4")
		test.set(l)
		answer := Summarize(l.report(), "dave")
		if got := strings.Join(answer.Groups()[1], ", "); got != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

// TestRoom: while others wait, what is free says whether a newcomer can take it: not what the queue keeps for a request ahead, nor what one gets
// now; what waits for more than is free keeps nothing by waiting alone, nor does one that is stopped or that cannot use it.
func TestRoom(t *testing.T) {
	until := testNow.Add(37 * time.Minute)
	for _, test := range []struct {
		name  string
		set   func(l *lab)
		keep  []int // for the first request
		room  string
		texts []string
	}{
		{"nothing waits", func(*lab) {}, nil, "", nil},
		{"one waits for more", func(l *lab) { l.waits("frank", 3) }, nil, "a new job of up to 2 GPUs can start", []string{"a new job of up to 2 GPUs can take it", "a new job of up to 2 GPUs can take it"}},
		{"kept", func(l *lab) { l.waits("frank", 3) }, []int{0, 2}, "a new job of 1 GPU can start", []string{"kept for train.py of frank until about 12:37", "a new job of 1 GPU can take it"}},
		{"all kept", func(l *lab) { l.waits("frank", 3) }, []int{0, 1, 2}, "kept for train.py of frank", []string{"kept for train.py of frank until about 12:37", "kept for train.py of frank until about 12:37"}},
		{"one gets it now", func(l *lab) { l.waits("frank", 1) }, []int{1}, "a new job of 1 GPU can start", []string{"a new job of 1 GPU can take it", "train.py of frank gets it now"}},
		{"two get it", func(l *lab) { l.waits("frank", 1); l.waits("dave", 1) }, nil, "kept for those who wait", []string{"train.py of frank gets it now", "train.py of dave gets it now"}},
		{"kept for one, and the next gets the other", func(l *lab) { l.waits("frank", 3); l.waits("dave", 1) }, []int{0, 2}, "kept for those who wait", []string{"kept for train.py of frank until about 12:37", "train.py of dave gets it now"}},
		{"stopped", func(l *lab) { l.waits("frank", 1).PID = 99 }, nil, "", nil},
		{"one that cannot use it", func(l *lab) { l.waits("frank", 1, 2) }, nil, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, "demo:4xL4")
			l.lease("alice", "bert", 0, 2, 3)
			test.set(l)
			s := l.report()
			for _, i := range test.keep {
				s.Waiting[0].Kept, s.Waiting[0].KeptUntil = append(s.Waiting[0].Kept, l.Devices[i].UUID), &until
			}
			var texts []string
			for _, c := range FreeClaims(s) {
				texts = append(texts, c.Text)
			}
			room := ""
			if p := Summarize(s, "").Room; p != nil {
				room = p.Text
			}
			if room != test.room || fmt.Sprint(texts) != fmt.Sprint(test.texts) {
				t.Errorf("%q %q", room, texts)
			}
		})
	}
}
