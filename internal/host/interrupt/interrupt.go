// Package interrupt catches the signals that end, stop or continue this process, so that it can clean up first. It does
// not know what is cleaned up.
//
//	caught := interrupt.CatchSignals()
//	sig := <-caught.Signals
//	cleanUp()
//	caught.Stop()
//	interrupt.DieBySignal(sig) // or Suspend, for SIGTSTP
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

// SignalCatcher receives the signals that end, stop or continue this process, until Stop.
type SignalCatcher struct {
	Signals <-chan os.Signal
	caught  chan os.Signal
	which   []os.Signal
}

// CatchSignals begins to catch SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCONT. Signals that were ignored when this
// process started stay ignored: nohup ignores SIGHUP, and a shell ignores SIGTSTP in its command substitutions.
func CatchSignals() *SignalCatcher {
	c := &SignalCatcher{caught: make(chan os.Signal, 16)}
	c.Signals = c.caught

	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT} {
		if isIgnored(sig) || signal.Ignored(sig) {
			continue
		}
		if sig == unix.SIGTSTP {
			// Until Notify below: the runtime installs its handler only if it has given the signal up before.
			signal.Ignore(sig)
		}
		c.which = append(c.which, sig)
	}

	if len(c.which) > 0 {
		signal.Notify(c.caught, c.which...)
	}

	return c
}

// Stop ends the catching: this process reacts to signals as before. Signals that were not received yet stay in Signals.
func (c *SignalCatcher) Stop() {
	if len(c.which) == 0 {
		// signal.Reset without arguments resets all signals.
		return
	}
	signal.Stop(c.caught)
	signal.Reset(c.which...)
	if slices.Contains(c.which, os.Signal(unix.SIGTSTP)) {
		swapAction(unix.SIGTSTP, &sigaction{}, nil)
	}
}

// Suspend stops this process as SIGTSTP does by default, and returns when it is continued.
func Suspend() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before sigaction
	swapAction(unix.SIGTSTP, nil, &before)
	swapAction(unix.SIGTSTP, &sigaction{}, nil)

	// To this thread, so that it is stopped before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	swapAction(unix.SIGTSTP, &before, nil)
}

// DieBySignal ends this process by the default action of the signal.
func DieBySignal(sig os.Signal) {
	if n, ok := sig.(unix.Signal); ok {
		swapAction(n, &sigaction{}, nil)
		_ = unix.Kill(os.Getpid(), n)
	}
	for {
		// Another thread may take the signal, in a moment; that this one waits without an end would be a deadlock to
		// Go.
		time.Sleep(time.Hour)
	}
}

// SignalByName returns the signal with a name such as "SIGTERM".
func SignalByName(name string) unix.Signal { return unix.SignalNum(name) }

// sigaction is at least as large as the kernel's struct sigaction; zeros mean the default action
// (include/linux/signal_types.h).
type sigaction struct {
	handler uintptr
	rest    [7]uintptr
}

// isIgnored reads the action from the kernel: the Go runtime remembers only for SIGHUP and SIGINT that they were
// ignored.
func isIgnored(sig unix.Signal) bool {
	// SIG_IGN.
	const ignore = 1
	var a sigaction
	swapAction(sig, nil, &a)

	return a.handler == ignore
}

// swapAction is rt_sigaction(2). It is needed because the runtime does not restore the default action of signals that
// stop a process.
func swapAction(sig unix.Signal, set, old *sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
