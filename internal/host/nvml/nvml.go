// Package nvml reads NVIDIA devices through the driver's library, libnvidia-ml, which it opens at run time without cgo.
// It only reads: it changes no setting of a device, decides nothing, and knows nothing of leases.
// Any driver call can hang, so calls run in goroutines of their own, and the caller waits no longer than a deadline.
//
//	lib, err := nvml.Open(ctx, nvml.WithDeadline(2*time.Second)) // a *gpu.Unavailable says why there is no GPU
//	machine, err := lib.Read(ctx, gpu.Query{What: gpu.Load|gpu.Processes})
//	for _, d := range machine.Devices { // d.Problem != "": this device is lost or did not answer }
package nvml

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"gpuard/internal/core/gpu"
)

// Library is the opened and initialised driver library. Its methods may be called from several goroutines.
type Library struct {
	handle uintptr // of dlopen
	// The file name that was opened.
	name   string
	driver string
	cuda   string
	count  int
	// The deadline of one call of Open or Read.
	deadline time.Duration
	// Folder with an entry for each device that the kernel driver has.
	kernel string
	// nil: a crash of the library ends the process.
	catcher Catcher
	// Its entries when the devices were counted.
	entries []string
	// The library is initialised, and count is right.
	counted bool
	// The driver call that Open is in, for the message if it hangs.
	step atomic.Pointer[string]
	mu   sync.RWMutex
	// Functions looked up so far.
	addresses map[string]uintptr

	// Has one token while no reading runs: readings do not overlap.
	turn chan struct{}
	// Whether a goroutine is in a driver call for each device, by index.
	busy []atomic.Bool
	// Goroutines that compare devices.
	linking atomic.Int32
	// Goroutines that wait for events.
	listening atomic.Int32
	// Held while the library is initialised again: no listener starts meanwhile.
	shut sync.Mutex
	// The last identity that was read of each device, by index, for one that stops answering.
	known []gpu.Device
}

// Option changes how the library is opened.
type Option func(*Library)

// WithDeadline is how long Open, and later each Read, waits for the driver. The default is 5 seconds.
func WithDeadline(d time.Duration) Option { return func(l *Library) { l.deadline = d } }

// WithKernelFolder is the folder in which the kernel driver has an entry for each of its devices. The default is
// /proc/driver/nvidia/gpus.
func WithKernelFolder(folder string) Option { return func(l *Library) { l.kernel = folder } }

// Catcher notes which calls are running, for the case that the library crashes in one of them.
type Catcher interface {
	EnterCall(call string) (slot int)
	LeaveCall(slot int)
	// A call has not returned in time.
	NoteHang()
}

// WithCatcher tells a Catcher of each call into the library.
func WithCatcher(catcher Catcher) Option { return func(l *Library) { l.catcher = catcher } }

// Open loads the library (libnvidia-ml.so.1, else libnvidia-ml.so), initialises it and counts the devices.
// The error is a *gpu.Unavailable with the cause.
// If a driver call hangs, Open returns at the deadline, and the call keeps its thread as long as the driver blocks it.
func Open(ctx context.Context, options ...Option) (*Library, error) {
	l := newLibrary()
	for _, option := range options {
		option(l)
	}

	limit := l.callLimit(ctx)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- l.openLibrary() }()

	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
		l.turn <- struct{}{}
		return l, nil
	case <-ctx.Done():
		l.noteHang()
		return nil, noAnswerError(ctx, *l.step.Load(), limit)
	}
}

func newLibrary() *Library {
	l := &Library{deadline: 5 * time.Second, kernel: "/proc/driver/nvidia/gpus", addresses: map[string]uintptr{}, turn: make(chan struct{}, 1)}
	l.step.Store(new("loading the library"))
	return l
}

// callLimit returns the time for one call: the library's deadline, or less if ctx ends earlier.
func (l *Library) callLimit(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(l.deadline, time.Until(end)))
	}
	return l.deadline
}

func (l *Library) noteHang() {
	if l.catcher != nil {
		l.catcher.NoteHang()
	}
}

func (l *Library) isHanging() bool {
	for i := range l.busy {
		if l.busy[i].Load() {
			return true
		}
	}
	return l.linking.Load() > 0
}
