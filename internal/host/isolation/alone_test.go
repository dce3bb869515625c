//go:build amd64 || arm64

package isolation

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStatusOfChild: a child that was killed has failed, as one has that ended with an error; what follows is not done.
func TestStatusOfChild(t *testing.T) {
	for status, want := range map[uint32]syscall.Errno{0: 0, uint32(unix.EPERM) << 8: unix.EPERM, uint32(unix.SIGKILL): unix.ECHILD} {
		failed, errno := makeCalls([]syscallStep{{call: unix.SYS_GETPID, zero: &status}})
		if errno != want || (failed == 0) != (want != 0) {
			t.Errorf("status %#x: step %d, %v", status, failed, errno)
		}
	}
}
