package program

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// RunGroup runs a command, which was made with ctx, in a process group of its own. The group is killed with ctx and with
// this process. A process that hangs inside a driver cannot be ended: it is not waited for longer than patience. A
// process that the command leaves behind does not keep its output open. Where ctx has ended the error is that of ctx,
// and what was printed may not be read.
func RunGroup(ctx context.Context, cmd *exec.Cmd, patience time.Duration) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	done := make(chan error, 1)
	go func() {
		// The kernel ties its death to the thread that started it (PR_SET_PDEATHSIG(2const)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()

	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(patience):
		}
	}

	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	}

	return err
}
