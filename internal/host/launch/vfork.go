//go:build amd64 || arm64

package launch

import "golang.org/x/sys/unix"

// forkFlags make a child that has our memory, not a copy, while the calling thread waits until it has executed its
// program or ended. A copy would cost this process about 500 page faults at the pages that it writes to afterwards.
const forkFlags = unix.CLONE_VM | unix.CLONE_VFORK | uintptr(unix.SIGCHLD)

// rawVfork is clone(2) with these flags. It returns in the child first, and in this process when the child has executed
// or ended. The child must not return from the function that calls it.
//
//go:noescape
func rawVfork(flags uintptr) (pid, errno uintptr)
