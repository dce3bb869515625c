package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/job"
)

// TestWaiterKilledAtEveryStep: kill -9 before each system call of Queue and Withdraw, with an older dead ticket in the
// folder. After that nothing of the ticket remains, and the next ticket does not wait for it.
func TestWaiterKilledAtEveryStep(t *testing.T) {
	for _, deed := range []string{"queue", "withdraw"} {
		f := newStateFolder(t)
		checkUsable(t, f, "at first")
		reached := 0
		for step := 1; reached == step-1; step++ {
			leaveDeadTicket(t, f)
			said := traceDeed(t, f.Path, deed, func(c systemCall) bool {
				reached = max(reached, c.step)
				return c.entry && c.step == step
			})
			if killed := reached == step; killed == strings.HasPrefix(said, "claimed ") {
				t.Errorf("%s, step %d: reached %d, and it said %q", deed, step, reached, said)
			}
			checkUsable(t, f, "killed at a step")
			next := queueTicket(t, f, "GPU-a")
			if err := next.WaitBehind(t.Context(), 1); err != nil {
				t.Error(err)
			}
			if err := next.Withdraw(); err != nil {
				t.Error(err)
			}
			if left := entryFiles(t, filepath.Join(f.ticketFolder(ownUID()), goneFolder)); len(left) > 0 {
				t.Errorf("left behind %v", left)
			}
			if t.Failed() {
				t.Fatalf("%s, at step %d", deed, step)
			}
		}
		t.Logf("%s: %d steps", deed, reached)
		if reached < 30 {
			t.Errorf("%s has only %d steps: is it being followed?", deed, reached)
		}
	}
}

// leaveDeadTicket leaves what a waiter leaves that was killed.
func leaveDeadTicket(t *testing.T, f *Folder) {
	t.Helper()
	w := queueTicket(t, f, "GPU-a")
	_, _ = w.lock.Close(), w.pipe.Close()
}

// TestTicketsAreBornLocked: at no moment can another user open a ticket before its owner has locked it, or read an
// incomplete one.
func TestTicketsAreBornLocked(t *testing.T) {
	f := newStateFolder(t)
	dir := f.ticketFolder(ownUID())
	unlocked, incomplete, born := 0, 0, 0
	said := traceDeed(t, f.Path, "queue", func(systemCall) bool {
		for _, name := range entryFiles(t, dir) {
			path := filepath.Join(dir, name)
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			data, _ := os.ReadFile(path)
			private, locked, complete := info.Mode().Perm()&0o077 == 0, isLocked(t, path), json.Valid(data)
			if _, err := os.Lstat(path); err != nil {
				continue // another thread of it still runs
			}
			if !locked {
				unlocked++
			}
			if !complete {
				incomplete++
			}
			if isTicket := !strings.HasPrefix(name, newPrefix); (!private || isTicket) && (!locked || !complete) {
				t.Errorf("%s: mode %v, locked %t, content %q", path, info.Mode(), locked, data)
			} else if isTicket {
				born++
			}
		}
		pipes, _ := os.ReadDir(filepath.Join(dir, goneFolder))
		for _, p := range pipes {
			if info, err := p.Info(); err == nil && info.Mode()&0o7777 != 0o600 {
				t.Errorf("%s: mode %v", p.Name(), info.Mode())
			}
		}
		return t.Failed()
	})
	if !strings.HasPrefix(said, "claimed ") || unlocked == 0 || incomplete == 0 || born == 0 {
		t.Errorf("it said %q; seen were %d unlocked and %d incomplete files and %d tickets", said, unlocked, incomplete, born)
	}
}

// TestTicketOrNothing: what no reader would accept is not written.
func TestTicketOrNothing(t *testing.T) {
	f := newStateFolder(t)
	for name, bad := range map[string]job.Ticket{
		"no device": {Count: 1}, "no number": {Devices: toUUIDs([]string{"GPU-a"})},
		"more than there are": {Devices: toUUIDs([]string{"GPU-a"}), Count: 2},
		"a long name":         {Devices: toUUIDs([]string{strings.Repeat("x", maxDeviceIDLength+1)}), Count: 1},
		"much content":        {Devices: toUUIDs([]string{"GPU-a"}), Count: 1, Command: strings.Repeat("x", maxEntrySize)},
	} {
		if w, err := f.QueueTicket(bad); err == nil || w != nil || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkUsable(t, f, "refused")
}
