// Package store keeps leases and tickets as files in the state folder. A lease or a ticket is alive as long as an open
// file description lock is held on its file. Decisions are made one at a time, under the folder lock. The package
// records decisions and makes none. It trusts no file of another user, calls no driver and does not walk /proc.
//
//	f, err := store.Open("/run/gpuard", nil, 2*time.Second)
//	defer f.Close()
//	held, err := f.Claim(boot, nil, func(v store.View) (job.Lease, error) { return choose(v.Held) })
//	// run the command, then:
//	held.Lock.Close()         // the lease ends, unless a child still has the lock
//	f.End(held.Lease, boot)   // removes its files, if it has ended
package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/space"
	"gpuard/internal/host/sys"
)

// Format is the version of the layout. A folder with another number is refused.
const Format = 1

// Limits on what is read of folders that other users fill.
const (
	// Live ones whose content is read; of the others only the devices count, which their names tell.
	maxEntriesPerUser = 256
	maxEntrySize      = 64 << 10
	// 0.2 s of a claim; only files that their owner made by hand are as many.
	maxNamesPerUser = 256 * maxEntriesPerUser

	maxProblemsPerFolder = 16
	// Characters of a device's UUID; the longest known are below 64.
	maxDeviceIDLength = 128
	// Of the record of changes.
	maxStateSize       = 1 << 18
	maxDevicesRecorded = 512
)

// Folder is an opened and checked state folder. Close it when done; it is safe for use by several goroutines.
type Folder struct {
	Path string
	// uid of the folder's owner; 0 protects users from each other.
	Owner uint32
	// Further state folders whose live leases count too.
	Others []string
	// How long the folder lock is waited for.
	Deadline time.Duration
	// Is told of leases that this process has removed, when the folder is not locked any more; may be nil.
	Ended func([]EndedLease)
	// The user ids that this user namespace can distinguish.
	ids  space.IDs
	lock folderLock
	// The leases that have ended since the folder was locked.
	ended []EndedLease
}

// EndedLease is a lease that was removed. Only the process that removes the files of a lease is told of its end, so it
// is told once.
type EndedLease struct {
	Lease job.Lease
	At    time.Time
	// The end was seen, and is At; else the lease was found dead, and it ended some time before.
	Seen bool
}

// Problem is an entry or folder that is ignored or damaged, and the user who owns it.
type Problem struct {
	Path string
	UID  uint32
	Text string
}

// LocateFolder returns the folder for real hardware: /run/gpuard if it exists, else /run/lock/gpuard if /run/lock
// is world-writable, else /var/tmp/gpuard with a warning. run and tmp are "/run" and "/var/tmp" outside tests.
// It never takes a later candidate because an earlier one is broken.
func LocateFolder(run, tmp string) (path, warning string) {
	best := filepath.Join(run, "gpuard")
	if _, err := os.Lstat(best); !errors.Is(err, os.ErrNotExist) {
		return best, ""
	}

	var st unix.Stat_t
	lockDir := filepath.Join(run, "lock")
	if unix.Stat(lockDir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o002 != 0 {
		return filepath.Join(lockDir, "gpuard"), ""
	}

	return filepath.Join(tmp, "gpuard"), "leases are kept in " + filepath.Join(tmp, "gpuard") +
		", which survives reboots and is cleaned by age; for a better place: " + SetupCommand()
}

// SetupCommand is the command by which root makes the best state folder, now and at each boot. sudo has a PATH of its
// own, so the shell finds gpuard before sudo runs.
func SetupCommand() string { return `sudo "$(command -v gpuard)" setup machine` }

// CandidateFolders lists every state folder that may hold leases for real hardware, best first.
func CandidateFolders(run, tmp string) []string {
	return []string{filepath.Join(run, "gpuard"), filepath.Join(run, "lock", "gpuard"), filepath.Join(tmp, "gpuard")}
}

// Open checks the folder and opens its lock. The error is os.ErrNotExist if there is no folder yet (see Create).
func Open(path string, others []string, deadline time.Duration) (*Folder, error) {
	root, err := openRoot(path)
	if err != nil {
		return nil, notFolderError(path, err)
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	owner, err := new(entryReader).checkFolder(root)
	if err != nil {
		return nil, err
	}

	f := &Folder{Path: path, Owner: owner, Deadline: deadline, ids: namespaceIDs()}
	for _, o := range others {
		if o != path {
			f.Others = append(f.Others, o)
		}
	}

	if err := f.lock.openLockFile(root, owner); err != nil {
		return nil, err
	}

	return f, nil
}

// Close drops the folder's descriptor, and with it the lock of every other Folder that this process has on the same
// path.
func (f *Folder) Close() error { return f.lock.closeLockFile() }

// notFolderError returns the error for a path that cannot be opened as a folder, with what is there instead.
func notFolderError(path string, err error) error {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return err
	}

	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return fmt.Errorf("cannot use the state folder %s: it is a symbolic link (it belongs to uid %d); %s", path, st.Uid, removalAdvice(path, st.Uid, ""))
	case unix.S_IFDIR:
		return err
	}

	return fmt.Errorf("cannot use the state folder %s: it is not a folder (it belongs to uid %d); %s", path, st.Uid, removalAdvice(path, st.Uid, ""))
}

// checkFolder returns the owner of the state folder, or an error if leases cannot be kept there.
func (r *entryReader) checkFolder(root *sys.Dir) (uint32, error) {
	path := root.Name()
	st, err := root.Status()
	if err != nil {
		return 0, &os.PathError{Op: "cannot use the state folder", Path: path, Err: err}
	}

	owner := fmt.Sprintf("it belongs to uid %d", st.Uid)
	if err := r.checkFormat(root, owner, st.Uid); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_ISVTX == 0 {
		return 0, fmt.Errorf("cannot use the state folder %s: any user could remove leases there (%s); chmod +t %s", path, owner, path)
	}

	for _, sub := range []string{"leases", "tickets"} {
		s, err := root.Lstat(sub)
		if err != nil {
			// Not %w: os.ErrNotExist would say that there is no state folder at all, and so no lease.
			return 0, fmt.Errorf("cannot use the state folder %s: %s: %s (%s); %s", path, sub, errors.Unwrap(err).Error(), owner, removalAdvice(path, st.Uid, " when no lease is alive"))
		}
		if s.Mode&unix.S_IFMT != unix.S_IFDIR || s.Mode&unix.S_ISVTX == 0 || s.Uid != st.Uid {
			return 0, fmt.Errorf("cannot use the state folder %s: %s is not a sticky folder of the same owner (%s)", path, sub, owner)
		}
	}

	return st.Uid, checkFileSystem(root)
}

// removalAdvice says how to remove what is in the way of a state folder or of a part of one. The folder around it is
// sticky, so only the owner and root can.
func removalAdvice(path string, owner uint32, when string) string {
	if me := os.Geteuid(); me == 0 || uint32(me) == owner { //nolint:gosec // a uid
		return "remove it" + when
	}
	return "ask its owner or root to remove it" + when + ": sudo rm -r " + path
}

func (r *entryReader) checkFormat(root *sys.Dir, owner string, uid uint32) error {
	path := root.Name()
	data, err := r.readEntry(int(root.Fd()), "format", nil)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot use the state folder %s: it is not a gpuard state folder (%s); %s", path, owner, removalAdvice(path, uid, " when it is not needed any more"))
		}
		return fmt.Errorf("cannot use the state folder %s: %w (%s)", path, err, owner)
	}

	n, err := strconv.Atoi(string(trimSpace(data)))
	if err != nil || n != Format {
		return fmt.Errorf("cannot use the state folder %s: it has format %q and this gpuard knows %d (%s); install the newer gpuard, or remove the folder when no lease is alive", path, trimSpace(data), Format, owner)
	}

	return nil
}

// networkFileSystem names the file system of that magic number if a server, and not only this kernel, takes part in its
// locks; else "". The numbers are from include/uapi/linux/magic.h and the headers of the file systems.
func networkFileSystem(kind int64) string {
	switch uint32(kind) {
	case 0x6969:
		return "NFS"
	case 0x517B, 0xFF534D42, 0xFE534D42:
		return "SMB"
	case 0x00C36400:
		return "Ceph"
	case 0x0BD00BD0:
		return "Lustre"
	case 0x01021997:
		return "9P"
	case 0x5346414F, 0x6B414653:
		return "AFS"
	case 0x65735546:
		return "FUSE"
	case 0x19830326:
		return "BeeGFS"
	case 0x47504653:
		return "GPFS"
	}
	return ""
}

func checkFileSystem(root *sys.Dir) error {
	path := root.Name()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err != nil {
		return &os.PathError{Op: "cannot use the state folder", Path: path, Err: err}
	}
	if name := networkFileSystem(int64(fs.Type)); name != "" {
		return fmt.Errorf("cannot use the state folder %s: it is on %s, where locks of other machines mix in; it must be a local folder, for all users (GPUARD_STATE names it)", path, name)
	}

	return nil
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return b
}
