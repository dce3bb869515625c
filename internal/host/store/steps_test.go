package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// checkUsable checks what must be true after a process was killed: no lease is alive, no problem is reported, the device can
// be claimed, and after that no file of the killed process remains.
func checkUsable(t *testing.T, f *Folder, after string) {
	t.Helper()
	if leases, problems := f.Leases(); len(leases) > 0 || len(problems) > 0 {
		t.Errorf("%s: leases %+v, problems %v", after, leases, problems)
	}
	if tickets, problems := f.Tickets(); len(tickets) > 0 || len(problems) > 0 {
		t.Errorf("%s: tickets %+v, problems %v", after, tickets, problems)
	}
	h, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a"))
	if err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	_ = h.Lock.Close()
	ended := false
	for end := time.Now().Add(10 * time.Second); !ended && err == nil && time.Now().Before(end); { // a child that another test is starting has the lock for a moment
		ended, err = f.EndIfUnheld(h.Lease, testBoot)
	}
	if !ended || err != nil {
		t.Errorf("%s: ended: %t, %v", after, ended, err)
	}
	if left := leftoverFiles(t, f, ownUID()); len(left) > 0 {
		t.Errorf("%s: left behind %v", after, left)
	}
	if left := entryFiles(t, f.ticketFolder(ownUID())); len(left) > 0 {
		t.Errorf("%s: of tickets is left %v", after, left)
	}
	if v := readView(t, f, testBoot); v.Unknown {
		t.Errorf("%s: the record of changes is lost", after)
	}
}

// TestKilledAtEveryStep: kill -9 before each system call of a claim, which removes a dead entry first, and of its end;
// then read again.
func TestKilledAtEveryStep(t *testing.T) {
	f := newStateFolder(t)
	checkUsable(t, f, "at first")
	reached := 0
	for step := 1; reached == step-1; step++ {
		_ = mustClaim(t, f, "GPU-a").Lock.Close()
		said := traceDeed(t, f.Path, "end", func(c systemCall) bool {
			reached = max(reached, c.step)
			return c.entry && c.step == step
		})
		if killed := reached == step; killed == strings.HasPrefix(said, "claimed ") {
			t.Errorf("step %d: reached %d, and it said %q", step, reached, said)
		}
		checkUsable(t, f, "killed at a step")
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	t.Logf("%d steps", reached)
	if reached < 30 {
		t.Errorf("a claim has only %d steps: is it being followed?", reached)
	}
}

// TestEntriesAreBornLocked: at no moment of a claim can another user open a lock file before its owner has locked it,
// read incomplete content, or find a lease without its content.
func TestEntriesAreBornLocked(t *testing.T) {
	old := unix.Umask(0) // which hides nothing
	defer unix.Umask(old)
	f := newStateFolder(t)
	dir := f.userFolder(ownUID())
	unlocked, incomplete, born := 0, 0, 0
	ended := false
	said := traceDeed(t, f.Path, "claim", func(c systemCall) bool {
		ended = ended || c.nr == unix.SYS_EXIT_GROUP
		if ended { // its threads stop once more while the kernel closes its locks
			return false
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			info, err := os.Lstat(path)
			if err != nil || e.Name() == lastName || e.Name() == newPrefix+lastName {
				continue
			}
			private := info.Mode().Perm()&0o077 == 0
			entry, isLock := strings.CutSuffix(path, lockSuffix)
			locked := isLock && isLocked(t, path)
			data, _ := os.ReadFile(path)
			if _, err := os.Lstat(path); err != nil {
				continue // another thread of it still runs, and has renamed it since it was listed
			}
			switch {
			case isLock && !locked:
				unlocked++
				if !private {
					t.Errorf("%s can be opened and is not locked: mode %v", path, info.Mode())
				}
			case isLock && !strings.HasPrefix(e.Name(), newPrefix):
				born++
				if _, err := os.Lstat(entry + jsonSuffix); err != nil {
					t.Errorf("a lease without its content: %v", err)
				}
			case !isLock:
				if json.Valid(data) {
					break
				}
				incomplete++
				if !private {
					t.Errorf("%s can be read and is not complete: %q, mode %v", path, data, info.Mode())
				}
			}
		}
		return t.Failed()
	})
	if !strings.HasPrefix(said, "claimed ") || unlocked == 0 || incomplete == 0 || born == 0 {
		t.Errorf("the claim said %q; seen were %d unlocked and %d incomplete files and %d leases", said, unlocked, incomplete, born)
	}
}

func isLocked(t *testing.T, path string) bool {
	t.Helper()
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false // gone since it was listed
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	alive, err := isEntryLocked(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return alive
}

// TestRenameFails: if the second rename of a claim fails, it undoes the first.
func TestRenameFails(t *testing.T) {
	for failing := 1; failing <= 2; failing++ {
		f := newStateFolder(t)
		renames := 0
		said := traceDeed(t, f.Path, "claim", func(c systemCall) bool {
			if c.entry && c.step > 0 && (c.nr == unix.SYS_RENAMEAT || c.nr == unix.SYS_RENAMEAT2) {
				if renames++; renames == failing {
					suffix := []string{"", jsonSuffix, lockSuffix}[failing]
					gone, _ := filepath.Glob(filepath.Join(f.userFolder(ownUID()), newPrefix+"????"+suffix))
					if len(gone) != 1 || os.Remove(gone[0]) != nil {
						t.Fatalf("rename %d: %v is there", failing, gone)
					}
				}
			}
			return false
		})
		if !strings.HasPrefix(said, "error: cannot write the lease in "+f.userFolder(ownUID())) {
			t.Errorf("rename %d: %s", failing, said)
		}
		if left := leftoverFiles(t, f, ownUID()); len(left) > 0 {
			t.Errorf("rename %d: left behind %v", failing, left)
		}
		checkUsable(t, f, "a rename failed")
	}
}

// fileSystemMagics of file systems by the numbers of the kernel's own table (include/uapi/linux/magic.h, statfs(2)).
func fileSystemMagics() map[string]int64 {
	return map[string]int64{
		"NFS": unix.NFS_SUPER_MAGIC, "SMB": unix.SMB_SUPER_MAGIC, "SMB 1": 0xff534d42, "SMB 2": unix.SMB2_SUPER_MAGIC,
		"SMB 1 where the field has 32 bits": -0xacb2be, "Ceph": unix.CEPH_SUPER_MAGIC, "9P": unix.V9FS_MAGIC, "AFS": unix.AFS_SUPER_MAGIC,
		"AFS of the kernel": unix.AFS_FS_MAGIC, "FUSE": unix.FUSE_SUPER_MAGIC, "Lustre": 0x0bd00bd0, "BeeGFS": 0x19830326, "GPFS": 0x47504653,
	}
}

func TestNetwork(t *testing.T) {
	for name, magic := range fileSystemMagics() {
		if got := networkFileSystem(magic); got == "" || !strings.HasPrefix(name, got) {
			t.Errorf("%s (%#x) is %q", name, magic, got)
		}
	}
	for _, magic := range []int64{
		unix.TMPFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
		unix.F2FS_SUPER_MAGIC, unix.RAMFS_MAGIC, 0x2fc12fc1, // ZFS
	} {
		if got := networkFileSystem(magic); got != "" {
			t.Errorf("%#x is %q", magic, got)
		}
	}
}

// TestOpenOnANetwork: a folder of which statfs says that it is on a network is refused.
func TestOpenOnANetwork(t *testing.T) {
	f := newStateFolder(t)
	for name, magic := range map[string]int64{"NFS": unix.NFS_SUPER_MAGIC, "FUSE": unix.FUSE_SUPER_MAGIC} {
		said := traceDeed(t, f.Path, "claim", func(c systemCall) bool {
			if !c.entry && c.nr == unix.SYS_FSTATFS { // statfs.f_type comes first
				if _, err := unix.PtracePokeData(c.tid, uintptr(c.args[1]), binary.NativeEndian.AppendUint64(nil, uint64(magic))); err != nil {
					t.Fatal(err)
				}
			}
			return false
		})
		if want := "error: cannot use the state folder " + f.Path + ": it is on " + name + ", "; !strings.HasPrefix(said, want) {
			t.Errorf("%s, want %s", said, want)
		}
	}
	checkUsable(t, f, "refused")
}
