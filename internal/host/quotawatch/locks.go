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

// Notes are the content of the file: what one measuring process has found out, for the next one and for the history.
type Notes struct {
	Members map[string]map[int]uint64 `json:"members"` // what belongs to a lease although it has left its tree: PIDs and their starts
	Used    map[string]quota.Measured `json:"used"`    // by lease
}

// notesLock is the name of the lock for writing notes.
const notesLock = "notes"

// ChangeNotes changes the notes in the file. It gives up after 10 ms while another process writes, because that may be stopped:
// the caller changes them again soon.
func (l *Locks) ChangeNotes(change func(*Notes)) {
	for try := 0; !l.Take(notesLock); try++ {
		if try == 10 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	defer l.Drop(notesLock)

	notes := l.ReadNotes()
	change(&notes)
	text, err := json.Marshal(notes)
	if err == nil {
		_, err = l.file.WriteAt(text, 0)
	}
	if err == nil {
		_ = l.file.Truncate(int64(len(text)))
	}
}

// ReadNotes reads the notes. Another process may be writing them, so it reads until two readings are the same. Notes that cannot
// be read are empty.
func (l *Locks) ReadNotes() (notes Notes) {
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
