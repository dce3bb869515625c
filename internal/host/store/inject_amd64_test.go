package store

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// failNthCall plays a deed in which one system call fails with errno, and returns what the role printed. number counts the
// calls that which accepts, from 1; met is false if there are fewer.
func failNthCall(t *testing.T, path, deed string, number int, errno unix.Errno, which func(systemCall) bool) (said string, what systemCall, met bool) {
	t.Helper()
	seen, replaced := 0, 0 // the thread
	said = traceDeed(t, path, deed, func(c systemCall) bool {
		var regs unix.PtraceRegs
		if !c.entry && c.tid == replaced {
			replaced = 0
			changeRegisters(t, c.tid, &regs, func() { regs.Rax = -uint64(errno) })
		}
		if c.entry && c.step > 0 && which(c) {
			if seen++; seen == number {
				replaced, what = c.tid, c
				changeRegisters(t, c.tid, &regs, func() { regs.Orig_rax = ^uint64(0) }) // there is no such call
			}
		}
		return false
	})
	return said, what, seen >= number
}

func changeRegisters(t *testing.T, tid int, regs *unix.PtraceRegs, how func()) {
	t.Helper()
	err := unix.PtraceGetRegs(tid, regs)
	if how(); err == nil {
		err = unix.PtraceSetRegs(tid, regs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isWriteCall are the system calls of a claim that make, change or lock files.
func isWriteCall(c systemCall) bool {
	switch c.nr {
	case unix.SYS_OPENAT: // openat2 is not used to create
		return c.args[2]&unix.O_CREAT != 0
	case unix.SYS_FCNTL:
		return c.args[1] == unix.F_OFD_SETLK
	}
	return slices.Contains([]uint64{unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
		unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT}, c.nr)
}

// TestEveryWriteFails: any write of a claim fails, with a ticket and without. Either the claim fails and leaves no
// file, or the lease exists and only a hint is missing.
func TestEveryWriteFails(t *testing.T) {
	common := []uint64{unix.SYS_OPENAT, unix.SYS_WRITE, unix.SYS_FCHMOD, unix.SYS_FCNTL, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_RENAMEAT, unix.SYS_MKDIRAT}
	failEveryWrite(t, "claim", common)
	failEveryWrite(t, "queue", append(common, unix.SYS_MKNODAT))
}

func failEveryWrite(t *testing.T, deed string, mustStop []uint64) {
	t.Helper()
	failures := map[uint64]bool{}
	number := 1
	for ; ; number++ {
		f := newStateFolder(t)
		errno := []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO}[number%4]
		said, what, met := failNthCall(t, f.Path, deed, number, errno, isWriteCall)
		if !met {
			break
		}
		left := leftoverFiles(t, f, ownUID())
		if strings.HasPrefix(said, "claimed ") {
			if len(left) < 2 || strings.HasPrefix(left[0], newPrefix+said[len("claimed "):]) {
				t.Errorf("%s: call %d fails with %v: it is %s and there is %v", deed, what.nr, errno, said, left)
			}
		} else {
			failures[what.nr] = true
			if !strings.HasPrefix(said, "error: cannot ") || !strings.Contains(said, errno.Error()) || !strings.Contains(said, f.Path) {
				t.Errorf("%s: call %d fails with %v: it says %s", deed, what.nr, errno, said)
			}
			if len(left) > 0 {
				t.Errorf("%s: call %d fails with %v: left behind %v", deed, what.nr, errno, left)
			}
		}
		if left := append(entryFiles(t, f.ticketFolder(ownUID())), entryFiles(t, filepath.Join(f.ticketFolder(ownUID()), goneFolder))...); len(left) > 0 {
			t.Errorf("%s: call %d fails with %v: of the ticket is left %v", deed, what.nr, errno, left)
		}
		checkUsable(t, f, "a write failed")
	}
	for _, nr := range mustStop {
		if !failures[nr] {
			t.Errorf("no failure of call %d has stopped %s: %d were tried", nr, deed, number-1)
		}
	}
}

// isReadCall are the system calls by which a claim finds the live leases.
func isReadCall(c systemCall) bool {
	return slices.Contains([]uint64{unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_READ, unix.SYS_GETDENTS64, unix.SYS_FSTAT, unix.SYS_FCNTL}, c.nr) && !isWriteCall(c)
}

// TestEveryReadFails: a claim that cannot read a lease, for lack of memory or descriptors, must not get its device.
func TestEveryReadFails(t *testing.T) {
	f := newStateFolder(t)
	kept := mustClaim(t, f, "GPU-a")
	failEveryRead(t, f, "claim")
	if onlyLease(t, f).ID != kept.Lease.ID {
		t.Fatal("the lease is gone")
	}
}

// TestEveryReadOfTicketsFails: a claim must not overtake a ticket that it could not read.
func TestEveryReadOfTicketsFails(t *testing.T) {
	f := newStateFolder(t)
	kept := queueTicket(t, f, "GPU-a")
	failEveryRead(t, f, "respect")
	if got := ticketIDs(readView(t, f, testBoot).Tickets); !slices.Equal(got, []string{kept.Ticket.ID}) {
		t.Errorf("tickets %v", got)
	}
}

func failEveryRead(t *testing.T, f *Folder, deed string) {
	t.Helper()
	failed, number := 0, 1
	for ; ; number++ {
		errno := []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM}[number%3]
		said, what, met := failNthCall(t, f.Path, deed, number, errno, isReadCall)
		if !met {
			break
		}
		if !strings.HasPrefix(said, "error: ") {
			t.Errorf("%s: call %d fails with %v, and what is somebody's is given: %s", deed, what.nr, errno, said)
		}
		if said != "error: "+errBusy.Error() {
			failed++
		}
	}
	if t.Logf("%s: %d calls, %d failed it", deed, number-1, failed); failed < 5 {
		t.Error("the failures have not reached the claim")
	}
}

// TestExchangedWithoutOpenat2: links are not followed either where the kernel or a seccomp filter does not know
// openat2.
func TestExchangedWithoutOpenat2(t *testing.T) {
	t.Parallel()
	own := formatUID(ownUID())
	for deed, targets := range map[string][]string{"lives": {"", "leases", "leases/" + own}, "waits": {"tickets"}} {
		for i, target := range targets {
			errno := []unix.Errno{unix.ENOSYS, unix.EPERM}[i%2]
			refused, answered := map[int]bool{}, 0 // by thread
			exchangeAtEveryStep(t, deed, target, linkOnce, ownUID(), func(c systemCall) {
				var regs unix.PtraceRegs
				switch {
				case c.entry && c.nr == unix.SYS_OPENAT2:
					refused[c.tid] = true
					changeRegisters(t, c.tid, &regs, func() { regs.Orig_rax = ^uint64(0) }) // there is no such call
				case !c.entry && refused[c.tid]:
					delete(refused, c.tid)
					answered++
					changeRegisters(t, c.tid, &regs, func() { regs.Rax = -uint64(errno) })
				}
			})
			if answered == 0 {
				t.Errorf("%s never called openat2", deed)
			}
		}
	}
}
