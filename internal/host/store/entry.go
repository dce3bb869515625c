package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/sys"
)

// An entry is a pair of files: NAME.json is the content of the lease, and NAME.lock is empty; the lock on it keeps the
// lease alive. NAME is the id, "-", and the hash of each device, joined by "+".
const (
	lockSuffix = ".lock"
	jsonSuffix = ".json"
	newPrefix  = ".new-"
)

// isEntryName reports whether name is the NAME of an entry, as Claim writes it. It is not a regular expression, because
// compiling one would be a tenth of the time that gpuard adds to the start of a command.
func isEntryName(name string) bool {
	id, hashes, _ := strings.Cut(name, "-")
	if !isPlainID(id) {
		return false
	}
	if hashes == job.ManyDevices {
		return true
	}

	return !slices.ContainsFunc(strings.Split(hashes, "+"), func(h string) bool { return len(h) != 8 || !isPlainASCII(h, 'f') })
}

// isPlainID reports whether id may be that of a lease or a ticket.
func isPlainID(id string) bool {
	return len(id) >= 4 && len(id) <= 8 && id[0] >= 'a' && isPlainASCII(id, 'z')
}

// isPlainASCII reports whether s consists of digits and small letters up to last.
func isPlainASCII(s string, last byte) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > last) {
			return false
		}
	}
	return true
}

// maxHashes keeps file names below NAME_MAX (255).
const maxHashes = 24

func entryNameOf(l *job.Lease) string {
	if l.Unreadable {
		// Only the hashes of its devices are known.
		return l.ID + "-" + strings.Join(l.Hashes, "+")
	}
	if len(l.Devices) > maxHashes {
		return l.ID + "-" + job.ManyDevices
	}

	return l.ID + "-" + strings.Join(prose.Texts(l.Devices, job.DeviceHash), "+")
}

// foundEntry is one entry of a user's folder.
type foundEntry struct {
	dir   string // leases/<uid>
	name  string
	alive bool
	lease job.Lease
}

// decodeLease accepts content only if it names the same lease and devices as the file name.
func decodeLease(data []byte, l *job.Lease) error {
	read := *l
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	if name := entryNameOf(&read); name != l.ID+"-"+strings.Join(l.Hashes, "+") {
		return errors.New("content and file name differ")
	}

	for _, d := range read.Devices {
		if len(d) > maxDeviceIDLength {
			return fmt.Errorf("names a device with more than %d characters", maxDeviceIDLength)
		}
	}

	*l = read

	return nil
}

// openRegular opens a file of another user. Nothing that the user puts there can block the open or lead it to another
// place. Below a folder's descriptor it does not enter a mount either: a file system that a user mounted need not
// answer.
func (r *entryReader) openRegular(dirFD int, name string, owner *uint32) (int, error) {
	fd, err := openIn(dirFD, name, unix.O_RDONLY)
	if err != nil {
		return -1, err
	}

	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case r.lock != nil && r.lock.isLockFile(&st):
		r.lock.closeLater(fd)
		return -1, errFolderLock
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errors.New("not a regular file")
	case owner != nil && isForeign(r.ids, st.Uid, *owner):
		err = fmt.Errorf("it belongs to uid %d", st.Uid)
	}

	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}

	return fd, nil
}

// errFolderLock: users who may write the folder lock may also make a hard link to it (proc_sys_fs(5),
// protected_hardlinks). Closing a descriptor of that file would drop the lock in the middle of a claim.
var errFolderLock = errors.New("it is the folder lock under a second name")

// readEntry reads a small regular file, at most maxEntrySize bytes.
func (r *entryReader) readEntry(dirFD int, name string, owner *uint32) ([]byte, error) {
	fd, err := r.openRegular(dirFD, name, owner)
	if err != nil {
		return nil, err
	}

	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, maxEntrySize+1))
	if err == nil && len(data) > maxEntrySize {
		err = fmt.Errorf("larger than %d KiB", maxEntrySize>>10)
	}

	return data, err
}

// encodeEntry returns the content of a lease or a ticket as it is written.
func encodeEntry(entry any) ([]byte, error) {
	content, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	if len(content) >= maxEntrySize {
		return nil, fmt.Errorf("its content is larger than %d KiB", maxEntrySize>>10)
	}

	return append(content, '\n'), nil
}

// createLock creates the file that keeps an entry alive, and locks it before other users can open it. If it were
// readable from the start, another process could take a read lock before the owner locks it.
func createLock(dir *sys.Dir, name string, content []byte) (*os.File, error) {
	lock, err := dir.Create(name)
	if err != nil {
		return nil, err
	}

	err = fillLock(lock, content)
	if err != nil {
		_ = lock.Close()
		_ = dir.Remove(name)
		return nil, err
	}

	return lock, nil
}

func fillLock(lock *os.File, content []byte) error {
	if len(content) > 0 {
		_, err := lock.Write(content)
		if err != nil {
			return err
		}
	}

	err := holdEntry(lock.Fd())
	if err != nil {
		return err
	}

	return lock.Chmod(0o644)
}
