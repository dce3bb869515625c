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

// Notes are what a process that measures leaves to others: to the next one, and to whoever writes down the end of a lease.
type Notes struct {
	Members map[string]map[int]uint64 `json:"members"` // what belongs to a lease although it has left its tree: PIDs and their starts
	Used    map[string]quota.Measured `json:"used"`    // by lease
}

// noting is the name of the lock of who writes notes.
const noting = "notes"

// Leave changes the notes in the file. Where another process is writing, which may be stopped, it does nothing: notes are left
// again and again.
func (l *Locks) Leave(change func(*Notes)) {
	for try := 0; !l.Take(noting); try++ {
		if try == 10 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	defer l.Drop(noting)
	notes := l.Left()
	change(&notes)
	text, err := json.Marshal(notes)
	if err == nil {
		_, err = l.file.WriteAt(text, 0)
	}
	if err == nil {
		_ = l.file.Truncate(int64(len(text)))
	}
}

// Left reads what Leave has written. It may be written at this moment, so it counts when two readings are the same. What
// cannot be read is as if it had not been written.
func (l *Locks) Left() (notes Notes) {
	var before []byte
	for range 10 {
		text, err := io.ReadAll(io.NewSectionReader(l.file, 0, mostNotes))
		if err != nil || len(text) == 0 {
			return Notes{}
		}
		if bytes.Equal(text, before) && json.Unmarshal(text, &notes) == nil {
			return notes
		}
		before, notes = text, Notes{}
		time.Sleep(time.Millisecond)
	}
	return notes
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
