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

// frame is what the handler needs, at an address that the garbage collector does not know. handler_*.s has the offsets,
// which stand in brackets.
type frame struct {
	// [0] The handler of the Go runtime for its own signals.
	goHandler uintptr
	// [8, 16] Where the code of this program lies; a crash of a library is outside.
	low, high uintptr
	// [24] The path of what is executed; zero when nothing is, because this process has crashed before.
	path uintptr
	argv uintptr // [32]
	envp uintptr // [40]
	// [48] The signals that were blocked when this program was started.
	mask uint64
	// [56] Where in the environment the signal and the field of the call are written.
	crash uintptr
	// [64] The text for a thread that cannot be created.
	refusal uintptr
	length  uintptr // [72] of that text
	// [80] A bit for each field that has a call.
	busy uint64
	// [88] One when a thread that crashes in a call stays there.
	parked uint64
	// [96] A struct sigaction with SIG_DFL.
	standard [4]uint64
	// [128] The ids of the threads that are inside a call, by slot.
	threads [fields]uint32
	// [192] A struct rlimit with the limit of open files before Go raised it; zero when it has not.
	files uintptr
	// [200] The text for the same where a command runs on.
	alone     uintptr
	aloneSize uintptr // [208] of that text
	// [216] One when a call has not returned in time.
	hung uint64
	// [224] The text that is printed then.
	stuck     uintptr
	stuckSize uintptr // [232] of that text

	// NAME= and the crash.
	name [len(crashVariable) + 3]byte
	// The calls, one C string with name, ended by the zero in the padding.
	calls [fields * fieldSize]byte
	_     [8]byte
}

// Catcher notes the calls into a library that run at the moment.
type Catcher struct{ frame *frame }

// setFrame gives the handler its frame. It is in handler_*.s.
func setFrame(address uintptr)

// handlerAddress is the address of the handler. It is in handler_*.s.
func handlerAddress() uintptr

// CatchCrashes begins to catch crashes. mayRestart is false in a process that has already executed itself anew. A process
// that has loaded no library of a driver aborts only when the C library can create no thread for the Go runtime: then it
// prints refusal and ends with code 125. After ParkOnCrash it prints parkedRefusal instead and ends by the signal,
// because 125 would say that no command runs.
func CatchCrashes(refusal, parkedRefusal string, mayRestart bool) (*Catcher, error) {
	low, high, err := ownCode()
	if err != nil {
		return nil, fmt.Errorf("cannot catch crashes: %w", err)
	}

	var env []string
	if mayRestart {
		env = os.Environ()
	}

	block, err := newBlock(refusal, parkedRefusal, os.Args, env)
	if err != nil {
		return nil, fmt.Errorf("cannot catch crashes: %w", err)
	}

	f := block.frame
	f.low, f.high = low, high
	f.files = block.copyFileLimit(filelimit.OriginalLimits())
	if mayRestart {
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

	// It keeps the flags of the runtime: it runs on the stack for signals, with all other signals blocked.
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
// as long as the kernel holds one of them. If another call crashes meanwhile, the process prints stuckText before it
// begins again.
func (c *Catcher) NoteHang() { atomic.StoreUint64(&c.frame.hung, 1) }

// EnterCall notes a call and returns its slot for LeaveCall, -1 when all are taken. The goroutine stays on its thread
// until LeaveCall, because the handler finds the call by the thread.
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
		// The thread may still stand in the slot of a call that has returned: its goroutine has not cleared it yet.
		atomic.CompareAndSwapUint32(&c.frame.threads[i], thread, 0)
	}

	atomic.StoreUint32(&c.frame.threads[slot], thread)
	field := c.frame.calls[slot*fieldSize:][:fieldSize]
	for i := copy(field, call); i < fieldSize; i++ {
		field[i] = ' '
	}

	return slot
}

// LeaveCall takes back what EnterCall has noted.
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
