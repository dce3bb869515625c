package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How long the writer of a pipe that the caller named may take: to open it, and between two writes.
const (
	pipeOpenTimeout  = 2 * time.Second
	pipeWriteTimeout = 30 * time.Second
)

// ReadNamed reads a whole file that the user named, at most so many bytes of it. Unlike Read it also reads pipes,
// because a shell passes the output of a program as one: --machine <(gpuard status --record). A FIFO without a writer
// is an error after 2 s, and one with a silent writer after 30 s. Of devices only /dev/null is read.
func ReadNamed(path string, most int64) ([]byte, error) {
	return readNamed(path, most, pipeOpenTimeout, pipeWriteTimeout)
}

func readNamed(path string, most int64, comes, speaks time.Duration) ([]byte, error) {
	// To open a pipe without a writer would block.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	file := os.NewFile(uintptr(fd), path)
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}

	from := io.Reader(file)
	switch {
	case info.Mode()&fs.ModeNamedPipe != 0:
		from = &pipe{fd: fd, late: time.Now().Add(comes), speaks: speaks}
	case isNull(info):
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, errors.New("it is " + kindName(info.Mode()) + ", and must be a file or a pipe")
	case info.Size() > most:
		return nil, fmt.Errorf("it is larger than %d MiB", most>>20)
	}

	data, err := ReadInput(from, most)

	return data, withoutPath(err)
}

// ReadInput reads at most so many bytes of what comes, such as standard input.
func ReadInput(from io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, fmt.Errorf("it is larger than %d MiB", most>>20)
	}
	return data, nil
}

// isNull reports /dev/null.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// pipe is the reading end of a pipe that does not block.
type pipe struct {
	fd int
	// The time until when its writer has to open it.
	late time.Time
	// A writer, which may be gone again, has opened it.
	opened bool
	speaks time.Duration
}

// Read tells a pipe without a writer, which is at its end, from one with a writer that has not written yet (pipe(7)).
func (p *pipe) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			p.opened = true
			if err := p.waitForWriter(); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		case n > 0:
			p.opened = true
			return n, nil
		case p.opened:
			return 0, io.EOF
		case time.Now().After(p.late):
			return 0, errors.New("it is a named pipe that no program writes to; name a file")
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (p *pipe) waitForWriter() error {
	end := time.Now().Add(p.speaks)
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, int(max(0, time.Until(end).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("it is a pipe, and its writer has written nothing for %s; name a file", p.speaks)
		default:
			return nil
		}
	}
}
