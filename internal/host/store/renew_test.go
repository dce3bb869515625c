package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
)

// TestRenew: a renewed ticket keeps its place, and no file of it remains after the end.
func TestRenew(t *testing.T) {
	f := newStateFolder(t)
	first, second := queueTicket(t, f, "GPU-a"), queueTicket(t, f, "GPU-a")
	changeTurn(t, f, func(turn *queue.Turn) {
		*turn = queue.Turn{Unsure: map[string]int64{first.Ticket.Key(): 1, second.Ticket.Key(): 2, "gone": 3}}
	})
	time.Sleep(2 * time.Millisecond) // the kernel's time moves on
	if err := f.RenewTicket(first, testBoot, toUUIDs([]string{"GPU-a", "GPU-b"}), toUUIDs([]string{"GPU-a", "GPU-b", "GPU-c"})); err != nil {
		t.Fatal(err)
	}
	seen := readView(t, f, testBoot).Tickets
	if got := ticketIDs(seen); !slices.Equal(got, []string{first.Ticket.ID, second.Ticket.ID}) {
		t.Fatalf("tickets %v, want %s and %s", got, first.Ticket.ID, second.Ticket.ID)
	}
	for _, s := range []job.Ticket{seen[0], first.Ticket} {
		placed := s.Arrival == first.Ticket.Arrival && s.Arrival <= seen[1].Arrival
		if !placed || len(s.Devices) != 2 || len(s.Known) != 3 || s.Count != 1 || s.Command != "test" {
			t.Errorf("renewed: %+v", s)
		}
	}
	was := changeTurn(t, f, nil).Unsure
	if _, unsure := was[first.Ticket.Key()]; unsure || was[second.Ticket.Key()] != 2 || len(was) != 1 {
		t.Errorf("who does not know all devices: %v", was)
	}
	if err := f.RenewTicket(first, testBoot, nil, nil); err == nil {
		t.Error("a ticket that can be served by nothing was written")
	}
	if err := f.RenewTicket(second, testBoot, toUUIDs([]string{"GPU-b"}), nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Withdraw(); err != nil {
		t.Error(err)
	}
	_, _ = second.lock.Close(), second.pipe.Close() // as if killed
	readView(t, f, testBoot)
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(f.ticketFolder(ownUID()), chosenTicketName(1, "aaaa")+devicesSuffix), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	readView(t, f, testBoot)
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) > 0 {
		t.Errorf("a second file without a ticket is left: %v", left)
	}
}

// TestRenewHostile: if anything else is in place of the second file, the ticket counts as it was written and its owner
// is reported.
func TestRenewHostile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"FIFO":    func(path string) error { return unix.Mkfifo(path, 0o644) },
		"link":    func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder":  func(path string) error { return os.Mkdir(path, 0o755) },
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"large":   func(path string) error { return os.WriteFile(path, make([]byte, maxEntrySize+1), 0o644) },
		"nothing": func(path string) error { return os.WriteFile(path, []byte(`{}`), 0o644) },
		"a long name": func(path string) error {
			return os.WriteFile(path, []byte(`{"devices":["GPU-b"],"known":["`+strings.Repeat("x", maxDeviceIDLength+1)+`"]}`), 0o644)
		},
		"too few devices": func(path string) error { return os.WriteFile(path, []byte(`{"devices":[],"known":["GPU-b"]}`), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newStateFolder(t)
			w := queueTicket(t, f, "GPU-a")
			if err := put(filepath.Join(w.dir.Name(), w.name+devicesSuffix)); err != nil {
				t.Fatal(err)
			}
			var tickets []job.Ticket
			var problems []Problem
			checkWithinSecond(t, "reading", func() { tickets, problems = f.Tickets() })
			if len(tickets) != 1 || !slices.Equal(tickets[0].Devices, []gpu.UUID{"GPU-a"}) || len(tickets[0].Known) != 0 {
				t.Errorf("the ticket is %+v", tickets)
			}
			if len(problems) != 1 || problems[0].UID != ownUID() || !strings.HasSuffix(problems[0].Path, devicesSuffix) {
				t.Errorf("problems: %v", problems)
			}
		})
	}
	f := newStateFolder(t)
	w := queueTicket(t, f, "GPU-a")
	if err := os.Link(filepath.Join(f.Path, "lock"), filepath.Join(w.dir.Name(), w.name+devicesSuffix)); err != nil {
		t.Fatal(err)
	}
	if v := readView(t, f, testBoot); len(v.Tickets) != 0 || len(v.Problems) != 1 || !strings.Contains(v.Problems[0].Text, "folder lock") {
		t.Errorf("the folder lock under a second name: %+v, %v", v.Tickets, v.Problems)
	}
}

// TestCall: Call wakes the watchers and marks the devices as changed.
func TestCall(t *testing.T) {
	f := newStateFolder(t)
	queueTicket(t, f, "GPU-a")
	w := mustWatch(t, f)
	since := f.Generation(testBoot)
	if err := f.AnnounceChange(testBoot, "GPU-b"); err != nil {
		t.Fatal(err)
	}
	w.checkTold(t, "a call")
	if v := readView(t, f, testBoot); v.Changes["GPU-b"].Generation <= since || len(v.Problems) > 0 {
		t.Errorf("after a call: %+v, %v", v.Changes, v.Problems)
	}
	w.checkSilent(t, "a call, twice")
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWithdrawalIsToldOnce: the kernel sends an event for the removal and one for the close.
func TestWithdrawalIsToldOnce(t *testing.T) {
	f := newStateFolder(t)
	mine := queueTicket(t, f, "GPU-a")
	w := mustWatch(t, f)
	if err := mine.Withdraw(); err != nil {
		t.Fatal(err)
	}
	w.checkTold(t, "the withdrawal")
	w.checkSilent(t, "the withdrawal, twice")
}

// TestSight: leases and tickets as read without the folder lock.
func TestSight(t *testing.T) {
	dir := makeSharedFolder(t)
	paths := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
	if err := errors.Join(CreateFolder(paths[0]), CreateFolder(paths[1])); err != nil {
		t.Fatal(err)
	}
	f, g := mustOpen(t, paths[0], append(paths, filepath.Join(dir, "missing"))...), mustOpen(t, paths[1])
	leased := func() (out []string) {
		t.Helper()
		s, err := f.ReadSight(testBoot)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []gpu.UUID{"GPU-a", "GPU-b", "GPU-c"} {
			if s.Leased[job.DeviceHash(id)] {
				out = append(out, string(id))
			}
		}
		return out
	}
	here, there := mustClaim(t, f, "GPU-a"), mustClaim(t, g, "GPU-c")
	if got := leased(); !slices.Equal(got, []string{"GPU-a", "GPU-c"}) {
		t.Errorf("leased: %v", got)
	}
	_, _ = here.Lock.Close(), there.Lock.Close()
	if got := leased(); len(got) > 0 {
		t.Errorf("leased after the end: %v", got)
	}
	first, second := queueTicket(t, f, "GPU-a"), queueTicket(t, f, "GPU-a")
	line := []job.Ticket{first.Ticket, second.Ticket, {ID: "none", UID: ownUID()}, {ID: "none", UID: 4242}}
	if n := f.CountRemaining(line); n != 2 {
		t.Errorf("%d are left in line, want 2", n)
	}
	_ = first.Withdraw()
	if n := f.CountRemaining(line); n != 1 {
		t.Errorf("%d are left in line, want 1", n)
	}
}
