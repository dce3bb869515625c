// Package ownproc asks the kernel about this very process: the actions of its signals, and the files that it has open. It
// must not know other processes.
//
//	if ownproc.ActionOf(unix.SIGTSTP).Handler == ownproc.SignalIgnored {
//		return
//	}
package ownproc

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SignalAction is the kernel's struct sigaction, the same on both architectures (Go's runtime/defs_linux_*.go). Zeros
// are the default action.
type SignalAction struct {
	Handler, Flags, Restorer uintptr
	Mask                     uint64
}

// SignalIgnored is SIG_IGN as the handler of an action.
const SignalIgnored = 1

// ActionOf reads the action of a signal from the kernel: the Go runtime remembers only for SIGHUP and SIGINT that they
// were ignored.
func ActionOf(sig unix.Signal) (now SignalAction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
	return now
}

// SetAction sets the action of a signal. The Go runtime does not restore the default action of signals that stop a
// process.
func SetAction(sig unix.Signal, action SignalAction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// DefaultCaught gives every caught signal its default action: the handlers of the Go runtime must not run in a forked
// copy. It makes raw system calls only, so that such a copy may call it.
//
//go:norace
//go:nosplit
func DefaultCaught() {
	for sig := uintptr(1); sig <= 64; sig++ {
		var a SignalAction
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&a)), 8, 0, 0)
		if a.Handler <= SignalIgnored {
			continue
		}

		a = SignalAction{}
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&a)), 0, 8, 0, 0)
	}
}

// ExitGroup ends this process, or the forked copy of it that calls, without anything of the Go runtime.
//
//go:norace
//go:nosplit
func ExitGroup(code uintptr) {
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}
