//go:build !amd64 && !arm64

package launch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const forkFlags = uintptr(unix.SIGCHLD)

// rawVfork makes a child that has a copy of our memory.
//
//go:norace
//go:nosplit
func rawVfork(flags uintptr) (pid, errno uintptr) {
	pid, _, err := syscall.RawSyscall6(syscall.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	return pid, uintptr(err)
}
