// Package interrupt catches the signals that end, stop or continue a process, while it has something to tidy up first.
// It knows nothing of what that is.
package interrupt

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caught are the signals that end, stop or continue a process, while it has something to tidy up first.
type Caught struct {
	Signals <-chan os.Signal
	caught  chan os.Signal
	which   []os.Signal
}

// Catch begins to catch SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCONT. What was ignored when this process started stays so:
// nohup ignores SIGHUP, and a shell ignores SIGTSTP in its command substitutions.
func Catch() *Caught {
	c := &Caught{caught: make(chan os.Signal, 16)}
	c.Signals = c.caught
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT} {
		if ignored(sig) || signal.Ignored(sig) {
			continue
		}
		if sig == unix.SIGTSTP {
			signal.Ignore(sig) // for a moment: the runtime takes a signal back only after it let go of it
		}
		c.which = append(c.which, sig)
	}
	if len(c.which) > 0 {
		signal.Notify(c.caught, c.which...)
	}
	return c
}

// Stop ends that: this process reacts to signals as it did before. What came and was not received yet stays in Signals.
func (c *Caught) Stop() {
	if len(c.which) == 0 { // a reset of nothing would be one of everything
		return
	}
	signal.Stop(c.caught)
	signal.Reset(c.which...)
	if slices.Contains(c.which, os.Signal(unix.SIGTSTP)) {
		swap(unix.SIGTSTP, &action{}, nil)
	}
}

// Suspend stops this process as SIGTSTP does, and returns when it was continued.
func Suspend() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before action
	swap(unix.SIGTSTP, nil, &before)
	swap(unix.SIGTSTP, &action{}, nil)
	// To this very thread, so that it is stopped before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	swap(unix.SIGTSTP, &before, nil)
}

// Die ends this process by the signal, whose default that is.
func Die(sig os.Signal) {
	if n, ok := sig.(unix.Signal); ok {
		swap(n, &action{}, nil)
		_ = unix.Kill(os.Getpid(), n)
	}
	select {}
}

// Named is the signal of a name: "SIGTERM".
func Named(name string) unix.Signal { return unix.SignalNum(name) }

// action is the kernel's struct sigaction with room to spare; zeros mean the default (include/linux/signal_types.h).
type action struct {
	handler uintptr
	rest    [7]uintptr
}

// ignored asks the kernel: the Go runtime remembers an inherited SIG_IGN of SIGHUP and SIGINT only.
func ignored(sig unix.Signal) bool {
	const ignore = 1 // SIG_IGN
	var a action
	swap(sig, nil, &a)
	return a.handler == ignore
}

// swap is rt_sigaction(2). What the runtime has taken it does not give back for signals that stop a process, so this does.
func swap(sig unix.Signal, set, old *action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
