package launch

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// groupSignalCounter tells a signal that was sent to this process alone from one that was sent to its whole process
// group, which the child got as well: by a key of the terminal, its hangup, or a shell's "kill %1". The kernel does not
// say so. The witness is a further member of the group, which counts the signals that it gets: those were sent to the
// group. It is a copy of this process that never executes anything.
//
// The kernel signals the members of a group from the youngest to the oldest (__kill_pgrp_info in kernel/signal.c,
// attach_pid in kernel/pid.c), so the witness has a signal before this process gets it. And it takes waiting signals in
// the order of their numbers (next_signal in kernel/signal.c), so that the question, which is a signal too, comes last.
type groupSignalCounter struct {
	pid    int
	answer *os.File
	// Counts of the last answer.
	told [standardSignals]uint32
	// The signals of the group that this process has not seen yet.
	credit [standardSignals]uint32
	since  [standardSignals]time.Time // of the credit
	// It did not answer once.
	silent bool
}

// standardSignals are the numbers of the standard signals, and of none: 0.
const standardSignals = 32

// The signals to the witness: real-time ones, which have no other use here.
const (
	askCountsSignal = 40
	// A thread of its parent has ended, perhaps the last.
	parentEndSignal = 41
)

// mergeWindow is how long two equal signals that came together may be apart in this process. The Go runtime may also
// make one of them, and then a later one must not be taken for the second.
const mergeWindow = 3 * time.Second

// groupWindow is how soon after a signal for the group an equal one counts as such too: on a busy machine the witness
// may get two as one.
const groupWindow = 500 * time.Millisecond

// signalCounterArgs is everything that the copy needs, prepared while the runtime still works.
type signalCounterArgs struct {
	answer, null uintptr // descriptors
	parent       uintptr
	// Signals to wait for.
	set  uint64
	name *byte
	// Its command line, ours.
	line   [][]byte
	counts [standardSignals]uint32
}

// newWitness starts one for the signals. Its end comes with ours, or by stop.
func newWitness(signals []os.Signal) (*groupSignalCounter, error) {
	var answer [2]int
	if err := unix.Pipe2(answer[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}

	w := &groupSignalCounter{answer: os.NewFile(uintptr(answer[0]), "witness")}
	defer unix.Close(answer[1]) //nolint:errcheck // the copy's
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = w.answer.Close()
		return nil, err
	}

	defer unix.Close(null) //nolint:errcheck // the copy's
	a := signalCounterArgs{answer: uintptr(answer[1]), null: uintptr(null), parent: uintptr(os.Getpid()), name: cstring("gpu-witness"),
		set: 1<<(askCountsSignal-1) | 1<<(parentEndSignal-1)}

	for _, sig := range signals {
		if n, ok := sig.(unix.Signal); ok && n < standardSignals {
			a.set |= 1 << (n - 1)
		}
	}

	for _, arg := range os.Args {
		// In the memory that the kernel shows as command line.
		if arg != "" {
			a.line = append(a.line, unsafe.Slice(unsafe.StringData(arg), len(arg)))
		}
	}

	pid, errno := forkWitness(&a)
	if errno != 0 {
		_ = w.answer.Close()
		return nil, errno
	}

	w.pid = int(pid)

	return w, nil
}

// stop ends the witness.
func (g *groupSignalCounter) stop() {
	_ = g.answer.Close()

	// No other goroutine reaps it, so its PID is still its own.
	_ = unix.Kill(g.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(g.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// matchGroupSignal reports whether the signal came to the whole group; known is false when the witness does not answer.
func (g *groupSignalCounter) matchGroupSignal(sig unix.Signal) (group, known bool) {
	if g.silent || !g.updateCounts() {
		// A late answer would be taken for the next one.
		g.silent = true
		return false, false
	}
	if g.credit[sig] > 0 {
		g.credit[sig]--
		return true, true
	}
	return time.Since(g.since[sig]) < groupWindow, true
}

// updateCounts brings the counts up to date.
func (g *groupSignalCounter) updateCounts() bool {
	if unix.Kill(g.pid, askCountsSignal) != nil {
		return false
	}

	var told [standardSignals * 4]byte
	n, err := 0, error(nil)

	// It may have been stopped or killed. And this process may be stopped just now, for longer than any deadline.
	for try := 0; err == nil && n == 0 && try < 10; try++ {
		_ = g.answer.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err = g.answer.Read(told[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = 0, nil
		}
	}

	if err != nil || n != len(told) {
		return false
	}

	for sig := range g.told {
		count := binary.NativeEndian.Uint32(told[4*sig:])
		switch {
		case count != g.told[sig]:
			g.credit[sig] += count - g.told[sig]
			g.told[sig], g.since[sig] = count, time.Now()
		case time.Since(g.since[sig]) > mergeWindow:
			g.credit[sig] = 0
		}
	}

	return true
}

// forkWitness makes the copy, as doubleFork does: all signals are blocked in it from its beginning to its end, and it
// makes raw system calls only.
func forkWitness(a *signalCounterArgs) (uintptr, syscall.Errno) {
	pid, errno := forkBlocked(func() (uintptr, syscall.Errno) { return rawWitness(a) })
	runtime.KeepAlive(a)

	return pid, errno
}

//go:norace
//go:nosplit
func rawWitness(a *signalCounterArgs) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}

	syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(a.name)), 0)

	// A user who signals processes by their command lines or names (pkill -f "gpuard run", pkill gpuard) means this
	// process, and not the group: the witness must have another name.
	for _, arg := range a.line {
		for i := range arg {
			arg[i] = 0
		}
	}

	for fd := uintptr(0); fd < 3; fd++ {
		syscall.RawSyscall(syscall.SYS_DUP3, a.null, fd, 0)
	}

	// Whatever the caller passed on, and the lease.
	closeRange(3, a.answer-1)
	closeRange(a.answer+1, 1<<31-1)
	syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, parentEndSignal, 0)

	for {
		if parent, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); parent != a.parent {
			ownproc.ExitGroup(0)
		}
		sig, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&a.set)), 0, 0, 8, 0, 0)
		switch {
		case errno != 0 || sig == parentEndSignal:
		case sig == askCountsSignal:
			syscall.RawSyscall(syscall.SYS_WRITE, a.answer, uintptr(unsafe.Pointer(&a.counts)), standardSignals*4)
		case sig < standardSignals:
			a.counts[sig]++
		}
	}
}
