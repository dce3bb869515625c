package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
)

// An entry is a pair: NAME.json is the content, NAME.lock is empty and carries the life.
// NAME is the lease id, "-", and the hash of each device joined by "+".
const (
	lockSuffix = ".lock"
	jsonSuffix = ".json"
	newPrefix  = ".new-"
)

// entryName is what Claim writes; anything else in a lease folder is not a lease. (Not a regular expression: compiling it
// would be a tenth of what this program adds to the start of a command.)
func entryName(name string) bool {
	id, hashes, _ := strings.Cut(name, "-")
	if !plainID(id) {
		return false
	}
	if hashes == job.ManyDevices {
		return true
	}
	for _, h := range strings.Split(hashes, "+") {
		if len(h) != 8 || !plainASCII(h, 'f') {
			return false
		}
	}
	return true
}

// plainID reports whether id may be that of a lease or a ticket.
func plainID(id string) bool {
	return len(id) >= 4 && len(id) <= 8 && id[0] >= 'a' && plainASCII(id, 'z')
}

// plainASCII reports whether s is digits and small letters up to last.
func plainASCII(s string, last byte) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > last) {
			return false
		}
	}
	return true
}

// maxHashes keeps file names below NAME_MAX (255).
const maxHashes = 24

func nameOf(l *job.Lease) string {
	if l.Unreadable { // its devices are known by their hashes alone
		return l.ID + "-" + strings.Join(l.Hashes, "+")
	}
	if len(l.Devices) > maxHashes {
		return l.ID + "-" + job.ManyDevices
	}
	hashes := make([]string, len(l.Devices))
	for i, d := range l.Devices {
		hashes[i] = job.DeviceHash(d)
	}
	return l.ID + "-" + strings.Join(hashes, "+")
}

// found is one entry of a user's folder.
type found struct {
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
	if name := nameOf(&read); name != l.ID+"-"+strings.Join(l.Hashes, "+") {
		return errors.New("content and file name differ")
	}
	for _, d := range read.Devices {
		if len(d) > deviceSize {
			return fmt.Errorf("names a device with more than %d characters", deviceSize)
		}
	}
	*l = read
	return nil
}

// openRegular opens another user's file so that nothing they put there can hang or lead us away. Below a folder's
// descriptor it does not cross into a mount either: users can mount file systems of their own, which answer when they like.
func (r *reader) openRegular(dirFD int, name string, owner *uint32) (int, error) {
	fd, err := openIn(dirFD, name, unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		switch {
		case r.lock != nil && r.lock.is(&st):
			r.lock.closeLater(fd)
			return -1, errFolderLock
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = errors.New("not a regular file")
		case owner != nil && foreign(r.ids, st.Uid, *owner):
			err = fmt.Errorf("it belongs to uid %d", st.Uid)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// errFolderLock: whoever may write the folder lock may also make a second name for it (proc_sys_fs(5),
// protected_hardlinks), and closing a descriptor of it would drop the lock in the middle of a claim.
var errFolderLock = errors.New("it is the folder lock under a second name")

// readEntry reads a small regular file, at most entrySize bytes.
func (r *reader) readEntry(dirFD int, name string, owner *uint32) ([]byte, error) {
	fd, err := r.openRegular(dirFD, name, owner)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, entrySize+1))
	if err == nil && len(data) > entrySize {
		err = fmt.Errorf("larger than %d KiB", entrySize>>10)
	}
	return data, err
}
