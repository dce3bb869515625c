package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/core/gpu"
)

// Question is a program that is started to answer one question and ends.
type Question struct {
	Path string   // file to execute
	Args []string // with the program's name first
	Env  []string // exactly this environment; of a name that is there twice the first counts
	Dir  string
}

// answerLimit is how much of an answer is read, in bytes: what a framework prints at its start is much less.
const answerLimit = 1 << 20

// Ask runs the question in a process group of its own, without input and without our streams, and returns what it printed on
// standard output. It is killed with its group when ctx ends, and is not waited for then: a process that hangs inside a
// driver cannot be ended.
func Ask(ctx context.Context, q Question) ([]byte, error) {
	type answer struct {
		out []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := ask(ctx, q)
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return a.out, a.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(500 * time.Millisecond)
	defer grace.Stop()
	select {
	case a := <-done:
		return a.out, a.err
	case <-grace.C:
		return nil, errLate
	}
}

var errLate = errors.New("no answer in time")

func ask(ctx context.Context, q Question) ([]byte, error) {
	out, errs := &head{most: answerLimit}, &head{most: 64 << 10}
	cmd := exec.CommandContext(ctx, q.Path)
	cmd.Args, cmd.Env, cmd.Dir = q.Args, first(q.Env), q.Dir
	cmd.Stdout, cmd.Stderr = out, errs
	// Killed with us too, by whatever ends us. The kernel ties that to the thread that started it (PR_SET_PDEATHSIG(2const)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 200 * time.Millisecond // a child of its own must not keep our pipes open
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errLate
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return out.b.Bytes(), nil
	}
	if said := bytes.TrimSpace(errs.b.Bytes()); len(said) > 0 {
		last := said[bytes.LastIndexByte(said, '\n')+1:]
		return out.b.Bytes(), fmt.Errorf("%w: %s", err, gpu.Clean(string(last[:min(len(last), 300)])))
	}
	return out.b.Bytes(), err
}

// first keeps the first value of each name, as getenv(3) finds it; os/exec would keep the last.
func first(env []string) []string {
	seen := map[string]bool{}
	out := []string{}
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		if !seen[name] {
			seen[name] = true
			out = append(out, pair)
		}
	}
	return out
}

// head keeps the first bytes and drops the rest: who prints more must not block, nor fill our memory.
type head struct {
	b    bytes.Buffer
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}
