package sys

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Inotify tells what changes in folders (inotify(7)). Closing it ends Read.
type Inotify struct {
	*os.File
	buf []byte
}

// inotifyEvent is one change: What are the bits of unix.IN_…, and Watch is what Add returned.
type inotifyEvent struct {
	Watch int32
	What  uint32
	Name  string // in the folder
}

// NewInotify fails where the user has no instance left (fs.inotify.max_user_instances).
func NewInotify() (*Inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Inotify{os.NewFile(uintptr(fd), "inotify"), make([]byte, 64<<10)}, nil
}

// Add begins to watch a path for changes of these kinds.
func (i *Inotify) Add(path string, what uint32) (watch int32, err error) {
	raw, err := i.SyscallConn()
	if err != nil {
		return -1, err
	}

	number := -1
	if cerr := raw.Control(func(fd uintptr) { number, err = unix.InotifyAddWatch(int(fd), path, what) }); cerr != nil {
		err = cerr
	}

	return int32(number), err //nolint:gosec // inotify(7): it is an int
}

// Read waits for changes. Only one goroutine may call it.
func (i *Inotify) Read() (events []inotifyEvent, err error) { //nolint:revive // callers only range over them
	size, err := i.File.Read(i.buf)
	for rest := i.buf[:max(size, 0)]; len(rest) >= unix.SizeofInotifyEvent; {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
		name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:end], []byte{0})
		events = append(events, inotifyEvent{int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]), string(name)}) //nolint:gosec // inotify(7): it is signed
		rest = rest[end:]
	}
	return events, err
}
