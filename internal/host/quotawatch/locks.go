package quotawatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Locks say which process measures what: each name is a byte of a file, and whoever has its lock measures that. A lock ends
// with the last process that has the file open as it was locked.
type Locks struct{ file *os.File }

// NewLocks uses an open file for locks; Close closes it.
func NewLocks(file *os.File) *Locks { return &Locks{file} }

// Close gives up all locks that no other process has.
func (l *Locks) Close() { _ = l.file.Close() }

func (l *Locks) do(cmd int, kind int16, name string) (err error) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	lock := unix.Flock_t{Type: kind, Start: int64(h.Sum64() >> 2), Len: 1} //nolint:gosec // 62 bits
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.FcntlFlock(l.file.Fd(), cmd, &lock)
	}
	return err
}

// Take takes the lock of a name, and reports whether this process has it.
func (l *Locks) Take(name string) bool {
	return l.do(unix.F_OFD_SETLK, unix.F_WRLCK, name) == nil
}

// Await takes the lock of a name as soon as no other process has it.
func (l *Locks) Await(name string) error {
	return l.do(unix.F_OFD_SETLKW, unix.F_WRLCK, name)
}

// Drop gives up the lock of a name.
func (l *Locks) Drop(name string) { _ = l.do(unix.F_OFD_SETLK, unix.F_UNLCK, name) }

// mostNotes is how much is read of what was left for the next process.
const mostNotes = 1 << 20

// Leave writes down in the file what the next process that measures is to know.
func (l *Locks) Leave(notes any) {
	text, err := json.Marshal(notes)
	if err == nil && l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt(text, 0)
	}
}

// Left reads what Leave has written, into notes. What cannot be read is as if it had not been written.
func (l *Locks) Left(notes any) {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, mostNotes))
	if err == nil {
		_ = json.Unmarshal(text, notes)
	}
}

// OpenLocks opens the locks that Start has handed over. number is that of the descriptor.
func OpenLocks(number string) (*Locks, error) {
	file, err := inherited(number)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cannot measure: descriptor %s is not a file", number)
	}
	return NewLocks(file), nil
}
