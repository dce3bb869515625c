//go:build amd64 || arm64

package crash

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/filelimit"
)

// frame is what the handler needs, at an address that the garbage collector does not know. handler_*.s has the offsets.
type frame struct {
	// 0: of the Go runtime, for its own signals.
	goHandler uintptr
	// 8, 16: where the code of this program lies; a crash of a library is outside.
	low, high uintptr
	// 24: what is executed; 0: nothing is, because this process has crashed before.
	path uintptr
	argv uintptr // 32
	envp uintptr // 40
	// 48: the signals that were blocked when this program was started.
	mask uint64
	// 56: where in the environment the signal and the field of the call are written.
	crash uintptr
	// 64: a text for a thread that cannot be created.
	refusal uintptr
	length  uintptr // 72: of that text
	// 80: a bit for each field that has a call.
	busy uint64
	// 88: 1: a thread that crashes in a call stays there.
	parked uint64
	// 96: a struct sigaction with SIG_DFL.
	standard [4]uint64
	// 128: that are in the calls.
	threads [fields]uint32
	// 192: a struct rlimit, the limit of open files before Go raised it; 0: it has not.
	files uintptr
	// 200: the same text where a command runs on.
	alone     uintptr
	aloneSize uintptr // 208: of that text
	// 216: 1: a call has not returned in time.
	hung uint64
	// 224: what is said then.
	stuck     uintptr
	stuckSize uintptr // 232: of that text

	// NAME= and the crash.
	name [len(crashVariable) + 3]byte
	// The calls, one C string with name, ended by the zero in the padding.
	calls [fields * fieldSize]byte
	_     [8]byte
}

// Catcher notes the calls into a library that run at the moment.
type Catcher struct{ frame *frame }

// Functions of handler_*.s.
func setFrame(address uintptr)
func handlerAddress() uintptr

// CatchCrashes begins to catch crashes. again: this program may execute itself once more; false where it has done so.
// Without a library in it a process aborts only where the C library can create no thread for the Go runtime: then the
// process prints refusal and ends with code 125; after ParkOnCrash it prints alone and ends by the signal, because 125
// would say that no command runs.
func CatchCrashes(refusal, alone string, again bool) (*Catcher, error) {
	low, high, err := ownCode()
	if err != nil {
		return nil, fmt.Errorf("cannot catch crashes: %w", err)
	}

	var env []string
	if again {
		env = os.Environ()
	}

	block, err := newBlock(refusal, alone, os.Args, env)
	if err != nil {
		return nil, fmt.Errorf("cannot catch crashes: %w", err)
	}

	f := block.frame
	f.low, f.high = low, high
	f.files = block.copyFileLimit(filelimit.OriginalLimits())
	if again {
		f.path = block.path
	}

	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, 0, uintptr(unsafe.Pointer(&f.mask)), 8, 0, 0); errno != 0 {
		return nil, fmt.Errorf("cannot catch crashes: %w", errno)
	}

	var before kernelSigaction
	if err := sigaction(unix.SIGSEGV, nil, &before); err != nil {
		return nil, fmt.Errorf("cannot catch crashes: %w", err)
	}

	f.goHandler = before.handler
	setFrame(uintptr(unsafe.Pointer(f)))

	// On the stack that the Go runtime has made for signals, with all others blocked.
	ours := before
	ours.handler = handlerAddress()

	for _, sig := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGABRT} {
		var had kernelSigaction
		if err := sigaction(sig, nil, &had); err != nil || sig != unix.SIGABRT && had.handler != before.handler || had.handler == ignoredHandler {
			continue
		}
		if err := sigaction(sig, &ours, nil); err != nil {
			return nil, fmt.Errorf("cannot catch crashes: %w", err)
		}
	}

	return &Catcher{f}, nil
}

// ParkOnCrash is for a process that may not begin again, because it runs a command: from now on a thread that crashes
// in a call stays there for ever, as in a call that hangs.
func (c *Catcher) ParkOnCrash() { atomic.StoreUint64(&c.frame.parked, 1) }

// NoteHang notes that a call has not returned in time. A process that begins again ends its threads first, which lasts
// as long as the kernel holds one of them: so it says that it may wait, where another call has crashed while one hangs.
func (c *Catcher) NoteHang() { atomic.StoreUint64(&c.frame.hung, 1) }

// EnterCall notes a call, and returns its slot for LeaveCall. It does nothing for the seventeenth at the same time. The
// goroutine stays on its thread until LeaveCall: by its thread the handler knows the call.
func (c *Catcher) EnterCall(call string) (slot int) {
	for {
		busy := atomic.LoadUint64(&c.frame.busy)
		slot = bits.TrailingZeros64(^busy)
		if slot >= fields {
			return -1
		}
		if atomic.CompareAndSwapUint64(&c.frame.busy, busy, busy|1<<slot) {
			break
		}
	}

	runtime.LockOSThread()
	thread := uint32(unix.Gettid())
	for i := range c.frame.threads {
		// Of a call that has returned, whose goroutine has not gone on yet.
		atomic.CompareAndSwapUint32(&c.frame.threads[i], thread, 0)
	}

	atomic.StoreUint32(&c.frame.threads[slot], thread)
	field := c.frame.calls[slot*fieldSize:][:fieldSize]
	for i := copy(field, call); i < fieldSize; i++ {
		field[i] = ' '
	}

	return slot
}

// LeaveCall ends the note.
func (c *Catcher) LeaveCall(slot int) {
	if slot < 0 {
		return
	}
	atomic.StoreUint32(&c.frame.threads[slot], 0)
	c.frame.calls[slot*fieldSize] = ' '

	for {
		busy := atomic.LoadUint64(&c.frame.busy)
		if atomic.CompareAndSwapUint64(&c.frame.busy, busy, busy&^(1<<slot)) {
			runtime.UnlockOSThread()
			return
		}
	}
}
