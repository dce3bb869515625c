// Package journal keeps a file of lines that only grows, and a lock for its one writer at a time. A line is written
// completely or not at all, also if its writer is killed or the disk is full. The package does not know what the lines
// mean.
//
//	lock, err := journal.Lock(path+".lock", func() { warn("another process has it") })
//	j, err := journal.Open(path)
//	err = j.TruncatePartial()
//	err = j.Next(func(line []byte) error { return replay(line) })
//	err = j.Append(line)
package journal

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// Journal is an open journal. Only one goroutine at a time may use it.
type Journal struct {
	file *os.File
	// Offset up to which EachNewLine has returned the lines.
	read    int64
	changes *sys.Inotify
	// Offset up to which disk space is allocated.
	reserved int64
	part     []byte
}

// Open opens a journal, and makes it with mode 0600 if it is missing. Next begins with the first line.
func Open(path string) (*Journal, error) {
	file, err := sys.OpenFile(path, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot use the journal: %w", err)
	}
	return &Journal{file: file}, nil
}

// OpenReadOnly opens a journal that is there for reading alone.
func OpenReadOnly(path string) (*Journal, error) {
	// A FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, fmt.Errorf("cannot read the journal: %s is not a plain file", path)
	}

	return &Journal{file: file}, nil
}

// Size is how long the journal is now.
func (j *Journal) Size() (int64, error) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, j.wrapError(err)
	}
	return info.Size(), nil
}

// Path is the file.
func (j *Journal) Path() string { return j.file.Name() }

// Close closes the file.
func (j *Journal) Close() error {
	if j.changes != nil {
		_ = j.changes.Close()
	}
	return j.file.Close()
}

// TruncatePartial removes an incomplete last line, which a killed writer left.
func (j *Journal) TruncatePartial() error {
	return j.withLockedSize(func(int64) error { return nil })
}

func (j *Journal) truncatePartial() error {
	info, err := j.file.Stat()
	if err != nil {
		return j.wrapError(err)
	}

	end, part := info.Size(), make([]byte, 4096)
	for end > 0 {
		from := max(0, end-int64(len(part)))
		n, err := j.file.ReadAt(part[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return j.wrapError(err)
		}

		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}

		end = from
	}

	if end < info.Size() {
		err = j.file.Truncate(end)
	}

	j.read = min(j.read, end)

	return j.wrapError(err)
}

// ReserveSpace allocates disk space for that many more bytes, so that they can be written even if the disk becomes
// full. It does nothing on a file system without fallocate(2).
func (j *Journal) ReserveSpace(more int64) error {
	const ahead = 16 << 10
	info, err := j.file.Stat()
	if err != nil || info.Size()+more <= j.reserved {
		return j.wrapError(err)
	}

	err = unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), more+ahead)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return j.wrapError(err)
	}

	j.reserved = info.Size() + more + ahead

	return nil
}

// Append writes a line, which must not contain a line break. After an error, no part of it is in the file.
func (j *Journal) Append(line []byte) error {
	return j.AppendLocked(func(int64) ([]byte, error) { return line, nil })
}

// AppendLocked appends the line that f returns, while no other process appends. size is how long the journal is.
func (j *Journal) AppendLocked(f func(size int64) (line []byte, err error)) error {
	return j.withLockedSize(func(size int64) error {
		line, err := f(size)
		if err != nil {
			return err
		}

		n, err := j.file.Write(append(line, '\n'))
		if err != nil && n > 0 {
			// If that fails, the next writer removes it.
			_ = j.file.Truncate(size)
		}

		return j.wrapError(err)
	})
}

// WithLock calls f while no other process appends.
func (j *Journal) WithLock(f func() error) error {
	return j.withLockedSize(func(int64) error { return f() })
}

// withLockedSize calls f with the size of the journal, of which no incomplete line is left.
func (j *Journal) withLockedSize(f func(size int64) error) error {
	lock := &unix.Flock_t{Type: unix.F_WRLCK}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.FcntlFlock(j.file.Fd(), unix.F_OFD_SETLKW, lock)
	}

	if err != nil {
		return j.wrapError(err)
	}

	defer func() {
		lock.Type = unix.F_UNLCK
		_ = unix.FcntlFlock(j.file.Fd(), unix.F_OFD_SETLK, lock)
	}()

	size, err := j.completeSize()
	if err != nil {
		return j.wrapError(err)
	}

	return f(size)
}

// completeSize returns the size of the journal without an incomplete last line, which it removes: a writer was killed.
func (j *Journal) completeSize() (int64, error) {
	info, err := j.file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}

	last := make([]byte, 1)
	if _, err := j.file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return info.Size(), err
	}
	if err := j.truncatePartial(); err != nil {
		return 0, err
	}

	info, err = j.file.Stat()

	return info.Size(), err
}

// WaitForWrite returns when something was written, or after a second where the kernel cannot tell. Only one goroutine
// may call it.
func (j *Journal) WaitForWrite() {
	if j.changes != nil {
		_, _ = j.changes.Read()
		return
	}

	watch, err := watchWrites(j.file.Name())
	if err != nil {
		time.Sleep(time.Second)
		return
	}

	// It returns now, because something may have been written before the file was watched.
	j.changes = watch
}

func watchWrites(path string) (*sys.Inotify, error) {
	watch, err := sys.NewInotify()
	if err != nil {
		return nil, err
	}

	_, err = watch.Add(path, unix.IN_MODIFY)
	if err != nil {
		_ = watch.Close()
		return nil, err
	}

	return watch, nil
}

// Sync returns when everything is on the disk.
func (j *Journal) Sync() error { return j.wrapError(j.file.Sync()) }

// Offset is where the line begins that EachNewLine gives to its function.
func (j *Journal) Offset() int64 { return j.read }

// Line reads the line that begins at an offset.
func (j *Journal) Line(offset int64) ([]byte, error) {
	line, err := bufio.NewReader(io.NewSectionReader(j.file, offset, 1<<30)).ReadBytes('\n')
	if err != nil {
		return nil, j.wrapError(err)
	}
	return line, nil
}

// EachNewLine calls f for each complete line since the last call, until f returns an error. f must not keep the line.
func (j *Journal) EachNewLine(f func(line []byte) error) error {
	if j.part == nil {
		j.part = make([]byte, 64<<10)
	}
	for {
		part := j.part
		n, err := j.file.ReadAt(part, j.read)
		if err != nil && !errors.Is(err, io.EOF) {
			return j.wrapError(err)
		}

		rest, full := part[:n], n == len(part)
		for {
			line, after, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			if err := f(line); err != nil {
				return fmt.Errorf("cannot read %s at byte %d: %w", j.file.Name(), j.read, err)
			}

			j.read += int64(len(line)) + 1
			rest = after
		}

		switch {
		case !full:
			return nil
		case len(rest) == n:
			// One line is longer than the part.
			j.part = make([]byte, 2*len(part))
		}
	}
}

func (j *Journal) wrapError(err error) error {
	if err != nil {
		return fmt.Errorf("cannot use the journal %s: %w", j.file.Name(), err)
	}
	return nil
}

// TryLock is Lock, but returns nil without an error if another process has the lock.
func TryLock(path string) (*os.File, error) {
	file, err := sys.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock: %w", err)
	}

	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		_ = file.Close()
		return nil, nil //nolint:nilnil // that is the answer
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}

	return file, nil
}

// IsLocked reports whether a process has the lock.
func IsLocked(path string) bool {
	file, err := sys.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}

	defer file.Close() //nolint:errcheck // read only
	lock := &unix.Flock_t{Type: unix.F_RDLCK}

	return unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, lock) == nil && lock.Type != unix.F_UNLCK
}

// lockOwnerSize is the room that an owner of a lock has in its file: a PID, a start time, and spaces up to the end of
// the line.
const lockOwnerSize = 48

// WriteLockOwner records in the file of a lock that a process has it. A lock that several processes share has a place
// for each: an OFD lock does not say who has it.
func WriteLockOwner(lock *os.File, place, pid int, start uint64) error {
	line := fmt.Sprintf("%-*s\n", lockOwnerSize-1, fmt.Sprint(pid, " ", start))
	if _, err := lock.WriteAt([]byte(line), int64(place)*lockOwnerSize); err != nil {
		return fmt.Errorf("cannot write into the lock %s: %w", lock.Name(), err)
	}
	return nil
}

// LockOwner is a process that had the lock when it wrote that down.
type LockOwner struct {
	PID int
	// The start as in /proc/PID/stat.
	Start uint64
}

// LockOwners lists who wrote down to have the lock, in any order. Some of them may be gone.
func LockOwners(path string) (owners []LockOwner) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}

	defer file.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(io.LimitReader(file, 8*lockOwnerSize))
	for lines.Scan() {
		var o LockOwner
		if n, _ := fmt.Sscan(lines.Text(), &o.PID, &o.Start); n == 2 && o.PID > 0 {
			owners = append(owners, o)
		}
	}

	return owners
}

// WaitUntilFree returns when no process has the lock, or there is none.
func WaitUntilFree(path string) {
	file, err := sys.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // read only

	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_RDLCK})
	}
}

// Lock locks the file at path. If another process has the lock, it calls busy once and waits. The lock belongs to the
// open file: a process that inherits the descriptor has it too.
func Lock(path string, busy func()) (*os.File, error) {
	file, err := sys.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock: %w", err)
	}

	lock := &unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		busy()
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, lock)
		}
	}

	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}

	return file, nil
}

// ReplaceFile writes a file in one step, with mode 0600: readers get the old content or the new.
func ReplaceFile(path string, write func(io.Writer) error) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	err = replaceIn(dir, filepath.Base(path), write)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}

	return nil
}

func replaceIn(dir *sys.Dir, name string, write func(io.Writer) error) (err error) {
	fresh := "." + name + "." + rand.Text()
	file, err := dir.Create(fresh)
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			_ = dir.Remove(fresh)
		}
	}()

	err = errors.Join(writeAndSync(file, write), file.Close())
	if err != nil {
		return err
	}

	return dir.Rename(fresh, name)
}

func writeAndSync(file *os.File, write func(io.Writer) error) error {
	err := write(file)
	if err != nil {
		return err
	}

	return file.Sync()
}
