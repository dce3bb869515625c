package quotawatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/quota"
)

// Locks say which process measures what: each name is a byte of a file, and whoever has its lock measures that. A lock
// ends with the last process that has the file open as it was locked.
type Locks struct{ file *os.File }

// NewLocks uses an open file for locks; Close closes it.
func NewLocks(file *os.File) *Locks { return &Locks{file} }

// Close gives up all locks that no other process has.
func (l *Locks) Close() { _ = l.file.Close() }

func (l *Locks) setLock(cmd int, kind int16, name string) (err error) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	lock := unix.Flock_t{Type: kind, Start: int64(h.Sum64() >> 2), Len: 1} //nolint:gosec // 62 bits
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.FcntlFlock(l.file.Fd(), cmd, &lock)
	}

	return err
}

// TryLock takes the lock of a name, and reports whether this process has it.
func (l *Locks) TryLock(name string) bool {
	return l.setLock(unix.F_OFD_SETLK, unix.F_WRLCK, name) == nil
}

// WaitForLock takes the lock of a name as soon as no other process has it.
func (l *Locks) WaitForLock(name string) error {
	return l.setLock(unix.F_OFD_SETLKW, unix.F_WRLCK, name)
}

// ReleaseLock gives up the lock of a name.
func (l *Locks) ReleaseLock(name string) { _ = l.setLock(unix.F_OFD_SETLK, unix.F_UNLCK, name) }

// Members is what belongs to a lease although it has left its tree: PIDs and their starts, by lease. Without it what
// enforces shares does not count these.
type Members = map[string]map[int]uint64

// Used is what was measured, by lease: for the history alone.
type Used = map[string]quota.Measured

// sharedNote is a part of the file, in which one measuring process leaves something for the next one: a JSON value, and
// behind it what is left of an earlier, longer one.
type sharedNote struct {
	lock string
	at   int64 // of noteSize bytes
}

const noteSize = 1 << 20

var (
	noteOfMembers = sharedNote{"members", 0}
	noteOfUse     = sharedNote{"use", noteSize}
)

// ChangeMembers changes what is noted of members, and reports whether it could. It gives up after so long while another
// process changes them, because that may be stopped.
func (l *Locks) ChangeMembers(patience time.Duration, change func(Members)) bool {
	return changeNote(l, noteOfMembers, patience, change)
}

// ChangeUsed does so with what was measured.
func (l *Locks) ChangeUsed(patience time.Duration, change func(Used)) bool {
	return changeNote(l, noteOfUse, patience, change)
}

// ReadMembers are those in the file. What cannot be read is empty.
func (l *Locks) ReadMembers() Members { return readNote[map[int]uint64](l, noteOfMembers) }

// Used is what the file says was measured. What cannot be read is empty.
func (l *Locks) Used() Used { return readNote[quota.Measured](l, noteOfUse) }

func changeNote[T any](l *Locks, n sharedNote, patience time.Duration, change func(map[string]T)) bool {
	for end := time.Now().Add(patience); !l.TryLock(n.lock); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}

	defer l.ReleaseLock(n.lock)

	values := readNote[T](l, n)
	change(values)
	text, err := json.Marshal(values)
	if err != nil || len(text) > noteSize {
		return false
	}

	_, err = l.file.WriteAt(text, n.at)

	return err == nil
}

// readNote reads until two readings are the same: another process may be writing.
func readNote[T any](l *Locks, n sharedNote) map[string]T {
	var before json.RawMessage
	for range 10 {
		begin := make([]byte, 1)
		_, _ = l.file.ReadAt(begin, n.at)
		if begin[0] != '{' {
			// Nothing was noted.
			break
		}

		var text json.RawMessage
		values := map[string]T{}
		if err := json.NewDecoder(io.NewSectionReader(l.file, n.at, noteSize)).Decode(&text); err == nil && bytes.Equal(text, before) && json.Unmarshal(text, &values) == nil {
			return values
		}

		before = text
		time.Sleep(time.Millisecond)
	}
	return map[string]T{}
}

// OpenLocks opens the locks that Start has handed over. number is that of the descriptor.
func OpenLocks(number string) (*Locks, error) {
	file, err := inheritedFile(number)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cannot measure: descriptor %s is not a file", number)
	}

	return NewLocks(file), nil
}
