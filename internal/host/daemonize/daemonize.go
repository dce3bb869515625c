// Package daemonize starts this program again as a process that outlives its parent.
//
//	p, err := daemonize.StartBackground("gpuard", env, errs, "__supervise", folder)
package daemonize

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// StartBackground starts this program again, under its name, in a session of its own, in the root folder: without a
// terminal, and with only errs open, as its standard error. From now on this process does not pass on the descriptors
// that it inherited either, because a background process would keep the caller's lease with them. Without a name Start
// does nothing: then this process is another program that uses this code, such as a test binary.
func StartBackground(name string, env []string, errs *os.File, args ...string) (*os.Process, error) {
	if name == "" {
		return nil, errors.New("cannot start gpuard in the background: this process is not gpuard")
	}
	if err := closeAllOnExec(); err != nil {
		return nil, fmt.Errorf("cannot start gpuard in the background: %w", err)
	}

	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = name
	cmd.Env, cmd.Dir, cmd.Stderr = env, "/", errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start gpuard in the background: %w", err)
	}

	return cmd.Process, nil
}

// closeAllOnExec passes no descriptor on but the standard streams.
func closeAllOnExec() error {
	open, err := ownproc.OpenDescriptors()
	if err != nil {
		return err
	}

	for _, d := range open {
		if d.FD > 2 {
			unix.CloseOnExec(d.FD)
		}
	}

	return nil
}

// BeginBackground is the first call in a process that Start has started. name is its name for ps and top; without it
// they show that of a link in /proc. The parent may ignore signals (nohup, a background job of a script). Begin undoes
// that: the process executes itself again with handlers set, and exec resets caught signals.
func BeginBackground(name string) error {
	if signal.Ignored(unix.SIGINT) || signal.Ignored(unix.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP)
		if err := unix.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
			return fmt.Errorf("cannot start gpuard in the background: %w", err)
		}
	}
	SetProcessName(name)
	return nil
}

// SetProcessName gives this process its name for ps.
func SetProcessName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) //nolint:gosec // no file is made there
}

// IgnoreEndSignals makes this process one that ends with the command and not before it: what systemd sends to all
// processes of a service is for the command to obey, and while that takes its time, its lease lasts. name is for ps, as
// with BeginBackground.
func IgnoreEndSignals(name string) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM)
	SetProcessName(name)
}
