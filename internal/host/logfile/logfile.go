// Package logfile copies the output of a command into a file, and to this process's own standard output and error. A
// process of its own (this program again) copies, so that the command keeps its output, and does not die of SIGPIPE, if
// the process that started it is killed.
//
//	log, err := logfile.StartLog(path, 10<<20, true)
//	cmd.Stdout, cmd.Stderr = log.Out, log.Err
//	err = cmd.Run()
//	log.Close(time.Second)
package logfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// CopyFlag is the first argument of a process that copies; its orders follow as JSON. Its standard input is the command's
// standard output, its descriptor 3 the command's standard error. It is asked on descriptor 4.
const CopyFlag = "__log"

// CopyOrders say where the output of a command goes.
type CopyOrders struct {
	// Its path: bytes, because it need not be UTF-8.
	File  []byte `json:"file"`
	Limit int64  `json:"limit"` // in bytes
}

// Log is a file for the output of a command.
type Log struct {
	// Standard output and error for the command.
	Out, Err *os.File
	// The PID of the process that copies.
	PID int

	path   string
	ended  chan struct{}
	asking sync.Mutex
	// A byte that is written there comes back when all is copied.
	ask      *os.File
	question byte // the last one
}

// StartLog starts a log. It appends to an existing file, or makes one with the mode that the umask allows. At limit
// bytes, the file is renamed to path.1 and a new one begins. Without show, the output goes only to the file.
func StartLog(path string, limit int64, show bool) (*Log, error) {
	file, err := openForAppend(path)
	if err != nil {
		return nil, err
	}

	_ = file.Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w", path, err)
	}

	errs, errsEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w", path, err)
	}

	asked, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w", path, err)
	}

	ask, answers := os.NewFile(uintptr(asked[0]), "ask"), os.NewFile(uintptr(asked[1]), "answers") //nolint:gosec // descriptors
	orders, err := json.Marshal(CopyOrders{[]byte(path), limit})
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w", path, err)
	}

	cmd := exec.Command("/proc/self/exe", CopyFlag, string(orders))
	cmd.Args[0] = "gpuard"
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=50", "GODEBUG=containermaxprocs=0"}
	cmd.Stdin, cmd.ExtraFiles = out, []*os.File{errs, answers}
	if show {
		// Else /dev/null.
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}

	// So that Ctrl-C and Ctrl-Z do not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = out.Close()
	_ = errs.Close()
	_ = answers.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w", path, err)
	}

	l := &Log{Out: outEnd, Err: errsEnd, PID: cmd.Process.Pid, path: path, ended: make(chan struct{}), ask: ask}
	go func() {
		defer close(l.ended)
		_ = cmd.Wait()
	}()

	return l, nil
}

// OpenToCheck opens the file for writing, to report an error early, and makes it if it is missing. The reader of a
// named pipe sees its end when the last writer closes it, so the caller keeps the result open until the log ends.
func OpenToCheck(path string) (io.Closer, error) {
	for end := time.Now().Add(readerTimeout); ; time.Sleep(10 * time.Millisecond) {
		file, err := openForAppend(path)
		if !errors.Is(err, unix.ENXIO) || time.Now().After(end) {
			return file, err
		}
	}
}

// readerTimeout is how long OpenToCheck waits for a reader of a named pipe, which may have just been started.
const readerTimeout = 2 * time.Second

// WriteNote writes a line only into the file, behind what the command has printed so far.
func (l *Log) WriteNote(line string) error {
	l.awaitCopied()
	return WriteNote(l.path, line)
}

// maxCopyWait is how long a note waits for what was printed before it: the file may be on a slow disk, and the command
// may go on printing.
var maxCopyWait = 100 * time.Millisecond

// awaitCopied waits until everything that was printed is in the file, for a moment.
func (l *Log) awaitCopied() {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.question++
	_ = l.ask.SetDeadline(time.Now().Add(maxCopyWait))
	if _, err := l.ask.Write([]byte{l.question}); err != nil {
		return
	}

	answer := make([]byte, 1)
	for {
		_, err := l.ask.Read(answer)

		// An answer to an earlier question.
		isLate := answer[0] != l.question
		if err != nil || !isLate {
			return
		}
	}
}

// WriteNote writes a line into a log, also one that another process copies into.
func WriteNote(path, line string) error {
	file, err := openForAppend(path)
	if err != nil {
		return err
	}

	defer file.Close() //nolint:errcheck // the write says it

	// For a full pipe; regular files have no deadline.
	_ = file.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprintln(file, line); err != nil {
		return fmt.Errorf("cannot log to %s: %w", path, err)
	}

	return nil
}

// Close closes this process's ends of the pipes, and waits until everything is copied. It waits at most patience for
// processes that still write.
func (l *Log) Close(patience time.Duration) {
	_ = l.Out.Close()
	_ = l.Err.Close()
	_ = l.ask.Close()
	select {
	case <-l.ended:
	case <-time.After(patience):
	}
}

func openForAppend(path string) (*os.File, error) {
	// The umask decides, as for a shell's >>.
	file, err := sys.OpenFile(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o666)
	if info, serr := os.Stat(path); errors.Is(err, unix.ENXIO) && serr == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil, fmt.Errorf("cannot log to %s: it is a named pipe that no program reads (%w); start the reader first, or name a file: --log FILE", path, unix.ENXIO)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot log to %s: %w; name a file that you can write: --log FILE", path, errors.Unwrap(err))
	}

	return file, nil
}

// CopyOutput copies until both inputs end.
func CopyOutput(o CopyOrders) error {
	var st unix.Stat_t
	if unix.Fstat(3, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("cannot log by hand: gpuard run --log FILE starts its logger itself")
	}

	w := &limitedFile{path: string(o.File), limit: o.Limit}
	defer w.close()

	for _, pipe := range []int{0, 3} {
		// That only this process reads.
		if err := unix.SetNonblock(pipe, true); err != nil {
			return err
		}
	}

	streams := []outputStream{{os.NewFile(0, "standard output"), 1}, {os.NewFile(3, "standard error"), 2}}
	var both sync.WaitGroup
	for _, s := range streams {
		both.Go(func() { s.copyToLog(w) })
	}

	go w.answerQuestions(os.NewFile(4, "questions"), streams)
	both.Wait()

	return w.failed
}

// outputStream is one of the command's outputs.
type outputStream struct {
	from *os.File
	to   int
}

// copyToLog ends when all writers have closed the pipe. It also ends when the reader of gpuard's own output is gone:
// then the command gets SIGPIPE, as it would without the log.
func (s outputStream) copyToLog(w *limitedFile) {
	defer s.from.Close() //nolint:errcheck // read only
	part := make([]byte, max(1, min(32<<10, w.limit/4)))
	conn, err := s.from.SyscallConn()
	for show := true; err == nil; {
		n := 0
		ended := conn.Read(func(fd uintptr) bool {
			n, err = w.copyReadable(int(fd), part) //nolint:gosec // a descriptor
			return !errors.Is(err, unix.EAGAIN)
		})
		if ended != nil || err != nil || n == 0 {
			return
		}
		if show {
			switch err := writeAll(s.to, part[:n]); {
			case errors.Is(err, unix.EPIPE):
				return
			case err != nil:
				// The terminal is gone; the file still gets the output.
				show = false
			}
		}
	}
}

// countUnread is how many bytes are in the pipe (FIONREAD); 0 when it is closed.
func (s outputStream) countUnread() (bytes int) {
	conn, err := s.from.SyscallConn()
	if err != nil {
		return 0
	}

	_ = conn.Control(func(fd uintptr) { bytes, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) //nolint:gosec // a descriptor

	return bytes
}

// writeAll writes with write(2) directly, because the Go runtime ends the process at EPIPE on descriptors 1 and 2.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			// Another process made the terminal non-blocking.
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000) //nolint:gosec // a descriptor
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

// limitedFile writes the file. Other processes may append to it too.
type limitedFile struct {
	mu     sync.Mutex
	path   string
	limit  int64
	file   *os.File
	size   int64
	failed error
}

// copyReadable copies what can be read from a pipe now into the file. What is in no pipe any more is in the file when
// the mutex is free.
func (w *limitedFile) copyReadable(pipe int, part []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for n, err = unix.Read(pipe, part); errors.Is(err, unix.EINTR); {
		n, err = unix.Read(pipe, part)
	}

	if n > 0 {
		w.writeOutput(part[:n])
	}

	return n, err
}

// answerQuestions answers each question when everything is copied, or who asked waits no longer.
func (w *limitedFile) answerQuestions(asked *os.File, streams []outputStream) {
	for question := make([]byte, 1); ; {
		if _, err := asked.Read(question); err != nil {
			return
		}
		for end := time.Now().Add(maxCopyWait); w.isBehind(streams) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if _, err := asked.Write(question); err != nil {
			return
		}
	}
}

// isBehind reports whether something is still to be copied.
func (w *limitedFile) isBehind(streams []outputStream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(streams, func(s outputStream) bool { return s.countUnread() > 0 })
}

// writeOutput does not fail the command. If the disk is full, the log is not complete, which is reported once.
func (w *limitedFile) writeOutput(b []byte) {
	err := w.appendOutput(b)
	if err != nil && w.failed == nil {
		w.failed = err
		_ = writeAll(2, fmt.Appendf(nil, "gpuard: the log is not complete: %v\n", err))
	}
}

func (w *limitedFile) appendOutput(b []byte) error {
	err := w.openOrRotate(int64(len(b)))
	if err != nil {
		return err
	}

	n, err := w.file.Write(b)
	w.size += int64(n)

	return err
}

// openOrRotate opens the file, or rotates it if it is full.
func (w *limitedFile) openOrRotate(more int64) error {
	if w.file != nil && w.size > 0 && w.size+more > w.limit {
		w.close()
		if err := rotateFile(w.path); err != nil {
			return err
		}
	}

	if w.file != nil {
		return nil
	}

	file, err := openForAppend(w.path)
	if err != nil {
		return err
	}

	info, err := file.Stat()
	if err != nil {
		return err
	}

	w.file, w.size = file, info.Size()
	if !info.Mode().IsRegular() {
		// A FIFO or a device is not renamed.
		w.limit = math.MaxInt64
	}

	return nil
}

// rotateFile gives a full log the name of the one before it.
func rotateFile(path string) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it

	return dir.Rename(filepath.Base(path), filepath.Base(path)+".1")
}

func (w *limitedFile) close() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}
