package store

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is at least as large as the kernel's struct sigaction; only its first word is used
// (include/linux/signal_types.h).
type sigaction struct {
	handler uintptr
	rest    [7]uintptr
}

// ignoreStop ignores SIGTSTP (Ctrl-Z) if its action is the default, and reports whether it did. A process that is
// stopped while it holds the folder lock would block all claims. The lock is held for about a millisecond; a user who
// presses the keys in that time has to press them again. os/signal would be too late: it acts in another thread, after
// the stop. If the signal is caught or ignored already, it does not stop the process.
func ignoreStop() bool {
	// SIG_IGN.
	const ignore = 1
	var now sigaction
	signalAction(unix.SIGTSTP, nil, &now)
	if now.handler != 0 {
		// Not SIG_DFL.
		return false
	}

	signalAction(unix.SIGTSTP, &sigaction{handler: ignore}, nil)

	return true
}

// restoreStop undoes deafen.
func restoreStop() { signalAction(unix.SIGTSTP, &sigaction{}, nil) }

// signalAction is rt_sigaction(2).
func signalAction(sig unix.Signal, set, old *sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
