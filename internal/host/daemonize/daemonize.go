// Package daemonize starts this program again as a process that outlives its parent.
//
//	p, err := daemonize.Start("gpuard", env, errs, "__supervise", folder)
package daemonize

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts this program again, under its name, in a session of its own, in the root folder: without a terminal, and
// with only errs open, as its standard error. From now on this process does not pass on the descriptors that it
// inherited either, because a background process would keep the caller's lease with them. Without a name Start does
// nothing: then this process is another program that uses this code, such as a test binary.
func Start(name string, env []string, errs *os.File, args ...string) (*os.Process, error) {
	if name == "" {
		return nil, errors.New("cannot start gpuard in the background: this process is not gpuard")
	}
	if err := keepAll(); err != nil {
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

// keepAll passes no descriptor on but the standard streams.
func keepAll() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Begin is the first call in a process that Start has started. name is its name for ps and top; without it they show
// that of a link in /proc. The parent may ignore signals (nohup, a background job of a script). Begin undoes that: the
// process executes itself again with handlers set, and exec resets caught signals.
func Begin(name string) error {
	if signal.Ignored(unix.SIGINT) || signal.Ignored(unix.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP)
		if err := unix.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
			return fmt.Errorf("cannot start gpuard in the background: %w", err)
		}
	}
	Call(name)
	return nil
}

// Call gives this process its name for ps.
func Call(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) //nolint:gosec // no file is made there
}

// Outlast makes this process one that ends with the command and not before it: what systemd sends to all processes of a
// service is for the command to obey, and while that takes its time, its lease lasts. name is for ps, as with Begin.
func Outlast(name string) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM)
	Call(name)
}
