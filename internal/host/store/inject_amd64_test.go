package store

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// failing plays a claim in which one call is not made and answers errno instead, and returns what the role said. The calls
// are those that which accepts, counted from 1; met is false when there are not so many.
func failing(t *testing.T, path string, number int, errno unix.Errno, which func(call) bool) (said string, what call, met bool) {
	t.Helper()
	seen, replaced := 0, 0 // the thread
	said = traced(t, path, "claim", func(c call) bool {
		var regs unix.PtraceRegs
		if !c.entry && c.tid == replaced {
			replaced = 0
			change(t, c.tid, &regs, func() { regs.Rax = -uint64(errno) })
		}
		if c.entry && c.step > 0 && which(c) {
			if seen++; seen == number {
				replaced, what = c.tid, c
				change(t, c.tid, &regs, func() { regs.Orig_rax = ^uint64(0) }) // there is no such call
			}
		}
		return false
	})
	return said, what, seen >= number
}

func change(t *testing.T, tid int, regs *unix.PtraceRegs, how func()) {
	t.Helper()
	err := unix.PtraceGetRegs(tid, regs)
	if how(); err == nil {
		err = unix.PtraceSetRegs(tid, regs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writes are the calls of a claim that make or change something, and those that lock what was made.
func writes(c call) bool {
	switch c.nr {
	case unix.SYS_OPENAT, unix.SYS_OPENAT2:
		return c.args[2]&unix.O_CREAT != 0
	case unix.SYS_FCNTL:
		return c.args[1] == unix.F_OFD_SETLK
	}
	return slices.Contains([]uint64{unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
		unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT}, c.nr)
}

// TestEveryWriteFails: whichever write of a claim fails, either the claim fails and leaves nothing behind, or the lease is
// there and only a hint is missing.
func TestEveryWriteFails(t *testing.T) {
	failures := map[uint64]bool{}
	number := 1
	for ; ; number++ {
		f := fresh(t)
		errno := []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO}[number%4]
		said, what, met := failing(t, f.Path, number, errno, writes)
		if !met {
			break
		}
		left := leftovers(t, f, me())
		if strings.HasPrefix(said, "claimed ") {
			if len(left) < 2 || strings.HasPrefix(left[0], newPrefix+said[len("claimed "):]) {
				t.Errorf("call %d fails with %v: it is %s and there is %v", what.nr, errno, said, left)
			}
		} else {
			failures[what.nr] = true
			if !strings.HasPrefix(said, "error: cannot ") || !strings.Contains(said, errno.Error()) || !strings.Contains(said, f.Path) {
				t.Errorf("call %d fails with %v: it says %s", what.nr, errno, said)
			}
			if len(left) > 0 {
				t.Errorf("call %d fails with %v: left behind %v", what.nr, errno, left)
			}
		}
		usable(t, f, "a write failed")
	}
	for _, nr := range []uint64{unix.SYS_OPENAT, unix.SYS_WRITE, unix.SYS_FCHMOD, unix.SYS_FCNTL, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_RENAMEAT, unix.SYS_MKDIRAT} {
		if !failures[nr] {
			t.Errorf("no failure of call %d has stopped a claim: %d were tried", nr, number-1)
		}
	}
}

// reads are the calls by which a claim finds out what is alive.
func reads(c call) bool {
	return slices.Contains([]uint64{unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_READ, unix.SYS_GETDENTS64, unix.SYS_FSTAT, unix.SYS_FCNTL}, c.nr) && !writes(c)
}

// TestEveryReadFails: a claim that runs short of something while it reads must not miss the lease that it did not read.
func TestEveryReadFails(t *testing.T) {
	f := fresh(t)
	kept := claim(t, f, "GPU-a")
	failed, number := 0, 1
	for ; ; number++ {
		errno := []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM}[number%3]
		said, what, met := failing(t, f.Path, number, errno, reads)
		if !met {
			break
		}
		if !strings.HasPrefix(said, "error: ") {
			t.Errorf("call %d fails with %v, and somebody's device is given: %s", what.nr, errno, said)
		}
		if said != "error: "+errBusy.Error() {
			failed++
		}
		if only(t, f).ID != kept.Lease.ID {
			t.Fatal("the lease is gone")
		}
	}
	if t.Logf("%d calls, %d claims failed by them", number-1, failed); failed < 5 {
		t.Error("the failures have not reached the claim")
	}
}
