package store

import (
	"golang.org/x/sys/unix"

	"gpuard/internal/host/ownproc"
)

// ignoreStop ignores SIGTSTP (Ctrl-Z) if its action is the default, and reports whether it did. A process that is
// stopped while it holds the folder lock would block all claims. The lock is held for about a millisecond; a user who
// presses the keys in that time has to press them again. os/signal would be too late: it acts in another thread, after
// the stop. If the signal is caught or ignored already, it does not stop the process.
func ignoreStop() bool {
	// SIG_DFL is 0.
	if ownproc.ActionOf(unix.SIGTSTP).Handler != 0 {
		return false
	}

	ownproc.SetAction(unix.SIGTSTP, ownproc.SignalAction{Handler: ownproc.SignalIgnored})

	return true
}

// restoreStop undoes ignoreStop.
func restoreStop() { ownproc.SetAction(unix.SIGTSTP, ownproc.SignalAction{}) }
