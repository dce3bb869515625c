package launch

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// BenchmarkFork is the reason for the assembly: a child that shares this process's memory, and one that has a copy of it. After each,
// this process writes to as many pages as gpuard does.
func BenchmarkFork(b *testing.B) {
	pages := make([]byte, 500*os.Getpagesize())
	for name, flags := range map[string]uintptr{"that shares the memory": forkFlags, "with a copy": uintptr(unix.SIGCHLD)} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				pid, errno := forkAndEnd(flags)
				if errno != 0 {
					b.Fatal(errno)
				}
				for i := 0; i < len(pages); i += os.Getpagesize() {
					pages[i]++
				}
				for {
					if _, err := unix.Wait4(int(pid), nil, 0, nil); !errors.Is(err, unix.EINTR) {
						break
					}
				}
			}
		})
	}
}

//go:norace
//go:nosplit
func forkAndEnd(flags uintptr) (uintptr, syscall.Errno) {
	pid, errno := rawVfork(flags)
	if errno == 0 && pid == 0 {
		ownproc.ExitGroup(0)
	}
	return pid, syscall.Errno(errno)
}

// BenchmarkWitness is what each gpuard that stays beside its command pays for passing every signal on exactly once.
func BenchmarkWitness(b *testing.B) {
	for b.Loop() {
		w, err := newWitness([]os.Signal{unix.SIGINT, unix.SIGTERM})
		if err != nil {
			b.Fatal(err)
		}
		w.stop()
	}
}
