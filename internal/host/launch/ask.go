package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"io"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// Question is a program that is started to answer one question and ends.
type Question struct {
	Path string // file to execute
	// The words, with the program's name first.
	Args []string
	// Exactly this environment; of a name that is there twice the first counts.
	Env []string
	Dir string
}

// UseProgramOf directs the question to the program that a process runs, in its working directory. Both are opened
// through the process's folder in procfs, which stays that of this process even if its PID is used again. After that,
// same is asked whether it is the right process; it gets the PID as a number in a folder like procfs. Close the result
// when the question was asked.
func (q *Question) UseProgramOf(pid int, same func(procfs string, number int) bool) (io.Closer, error) {
	o := &childDescriptors{}
	folder, program, err := o.openProgramOf(pid, same)
	if err != nil {
		_ = o.Close()
		return nil, fmt.Errorf("cannot start the program of process %d again: %w", pid, err)
	}

	q.Path, q.Dir = fmt.Sprintf("%s/%d", ownDescriptors, program), fmt.Sprintf("%s/%d/cwd", ownDescriptors, folder)

	return o, nil
}

const ownDescriptors = "/proc/self/fd"

func (o *childDescriptors) openProgramOf(pid int, same func(procfs string, number int) bool) (folder, program int, err error) {
	folder, err = o.openPath(unix.AT_FDCWD, fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return -1, -1, err
	}

	program, err = o.openPath(folder, "exe")
	if err != nil {
		return -1, -1, err
	}
	if !same(ownDescriptors, folder) {
		return -1, -1, errors.New("it is not the same process any more")
	}

	return folder, program, nil
}

// childDescriptors are descriptors that a child has until it executes its program.
type childDescriptors struct{ fds []int }

// openPath opens a path for its place alone. The number is high, because the numbers that follow those of a child's
// streams are used between fork and exec.
func (o *childDescriptors) openPath(at int, path string) (int, error) {
	low, err := unix.Openat(at, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}

	defer unix.Close(low)                                                  //nolint:errcheck // nothing was written
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, lowestFD) //nolint:gosec // not negative
	if err != nil {
		return -1, fmt.Errorf("%w; raise the limit: ulimit -n", err)
	}

	o.fds = append(o.fds, fd)

	return fd, nil
}

// Close closes them.
func (o *childDescriptors) Close() error {
	for _, fd := range o.fds {
		// Nothing was written.
		_ = unix.Close(fd)
	}
	o.fds = nil
	return nil
}

// maxAnswerSize is how much of an answer is read, in bytes: what a framework prints at its start is much less.
const maxAnswerSize = 1 << 20

// AskQuestion runs the question in a process group of its own, without input and without our streams, and returns what
// it printed on standard output. It is killed with its group when ctx ends, and is not waited for then: a process that
// hangs inside a driver cannot be ended.
func AskQuestion(ctx context.Context, q Question) ([]byte, error) {
	out, errs := &headBuffer{most: maxAnswerSize}, &headBuffer{most: 64 << 10}
	cmd := exec.CommandContext(ctx, q.Path)
	cmd.Args, cmd.Env, cmd.Dir = q.Args, visible.Env(q.Env).FirstOfEach(), q.Dir
	cmd.Stdout, cmd.Stderr = out, errs
	err := program.RunGroup(ctx, cmd, 500*time.Millisecond)
	if ctx.Err() != nil {
		return nil, errLate
	}

	if said := prose.LastLine(errs.b.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}

	return out.b.Bytes(), err
}

var errLate = errors.New("no answer in time")

// headBuffer keeps the first bytes and drops the rest, so that a program that prints more neither blocks nor fills our
// memory.
type headBuffer struct {
	b    bytes.Buffer
	most int
}

func (h *headBuffer) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
