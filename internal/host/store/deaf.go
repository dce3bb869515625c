package store

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction with room to spare: only its first word is looked at (include/linux/signal_types.h).
type action struct {
	handler uintptr
	rest    [7]uintptr
}

// deafen makes this process deaf to Ctrl-Z if that would stop it, and reports whether it did. One that is stopped while it has the
// folder lock would stop everybody's claims. The lock is held for about a millisecond, and whoever presses the keys just then
// presses them again. Not through os/signal: its reaction would come in another thread, after the stop. Where somebody
// catches the signal already, nothing stops.
func deafen() bool {
	const ignore = 1 // SIG_IGN
	var now action
	signalAction(unix.SIGTSTP, nil, &now)
	if now.handler != 0 { // not SIG_DFL
		return false
	}
	signalAction(unix.SIGTSTP, &action{handler: ignore}, nil)
	return true
}

// hear undoes it.
func hear() { signalAction(unix.SIGTSTP, &action{}, nil) }

// signalAction is rt_sigaction(2).
func signalAction(sig unix.Signal, set, old *action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
