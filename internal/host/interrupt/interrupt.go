// Package interrupt catches the signals that end, stop or continue this process, so that it can clean up first. It does
// not know what is cleaned up.
//
//	caught := interrupt.Catch()
//	sig := <-caught.Signals
//	cleanUp()
//	caught.Stop()
//	interrupt.Die(sig) // or Suspend, for SIGTSTP
package interrupt

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caught receives the signals that end, stop or continue this process, until Stop.
type Caught struct {
	Signals <-chan os.Signal
	caught  chan os.Signal
	which   []os.Signal
}

// Catch begins to catch SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCONT. Signals that were ignored when this process
// started stay ignored: nohup ignores SIGHUP, and a shell ignores SIGTSTP in its command substitutions.
func Catch() *Caught {
	c := &Caught{caught: make(chan os.Signal, 16)}
	c.Signals = c.caught
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT} {
		if ignored(sig) || signal.Ignored(sig) {
			continue
		}
		if sig == unix.SIGTSTP {
			signal.Ignore(sig) // until Notify below: the runtime installs its handler only if it has given the signal up before
		}
		c.which = append(c.which, sig)
	}
	if len(c.which) > 0 {
		signal.Notify(c.caught, c.which...)
	}
	return c
}

// Stop ends the catching: this process reacts to signals as before. Signals that were not received yet stay in Signals.
func (c *Caught) Stop() {
	if len(c.which) == 0 { // signal.Reset without arguments resets all signals
		return
	}
	signal.Stop(c.caught)
	signal.Reset(c.which...)
	if slices.Contains(c.which, os.Signal(unix.SIGTSTP)) {
		swap(unix.SIGTSTP, &action{}, nil)
	}
}

// Suspend stops this process as SIGTSTP does by default, and returns when it is continued.
func Suspend() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before action
	swap(unix.SIGTSTP, nil, &before)
	swap(unix.SIGTSTP, &action{}, nil)
	// To this thread, so that it is stopped before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	swap(unix.SIGTSTP, &before, nil)
}

// Die ends this process by the default action of the signal.
func Die(sig os.Signal) {
	if n, ok := sig.(unix.Signal); ok {
		swap(n, &action{}, nil)
		_ = unix.Kill(os.Getpid(), n)
	}
	for { // another thread may take the signal, in a moment; that this one waits without an end would be a deadlock to Go
		time.Sleep(time.Hour)
	}
}

// Named returns the signal with a name such as "SIGTERM".
func Named(name string) unix.Signal { return unix.SignalNum(name) }

// action is at least as large as the kernel's struct sigaction; zeros mean the default action
// (include/linux/signal_types.h).
type action struct {
	handler uintptr
	rest    [7]uintptr
}

// ignored reads the action from the kernel: the Go runtime remembers only for SIGHUP and SIGINT that they were ignored.
func ignored(sig unix.Signal) bool {
	const ignore = 1 // SIG_IGN
	var a action
	swap(sig, nil, &a)
	return a.handler == ignore
}

// swap is rt_sigaction(2). It is needed because the runtime does not restore the default action of signals that stop a
// process.
func swap(sig unix.Signal, set, old *action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
