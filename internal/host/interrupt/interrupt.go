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

	"gpuard/internal/host/ownproc"

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
		if ownproc.ActionOf(sig).Handler == ownproc.SignalIgnored || signal.Ignored(sig) {
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
func (s *SignalCatcher) Stop() {
	if len(s.which) == 0 {
		// signal.Reset without arguments resets all signals.
		return
	}
	signal.Stop(s.caught)
	signal.Reset(s.which...)
	if slices.Contains(s.which, os.Signal(unix.SIGTSTP)) {
		ownproc.SetAction(unix.SIGTSTP, ownproc.SignalAction{})
	}
}

// Suspend stops this process as SIGTSTP does by default, and returns when it is continued.
func Suspend() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ownproc.ActionOf(unix.SIGTSTP)
	ownproc.SetAction(unix.SIGTSTP, ownproc.SignalAction{})

	// To this thread, so that it is stopped before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	ownproc.SetAction(unix.SIGTSTP, before)
}

// DieBySignal ends this process by the default action of the signal.
func DieBySignal(sig os.Signal) {
	if n, ok := sig.(unix.Signal); ok {
		ownproc.SetAction(n, ownproc.SignalAction{})
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
