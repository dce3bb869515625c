// Package nvml reads NVIDIA devices through the driver's own library, libnvidia-ml, opened at run time without cgo.
// It only reads: it changes no setting of a device, decides nothing, and knows nothing of leases.
// Every driver call can hang, so each one runs where somebody else watches the clock.
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
	handle    uintptr // of dlopen
	name      string  // the file name that was opened
	driver    string
	cuda      string
	count     int
	deadline  time.Duration
	kernel    string                 // folder with an entry for each device that the kernel driver has
	entries   []string               // of it, when the devices were counted
	counted   bool                   // the library is initialised, and count is right
	step      atomic.Pointer[string] // what Open is doing, for the message when it hangs
	mu        sync.RWMutex
	addresses map[string]uintptr // functions looked up so far

	turn      chan struct{} // holds one token while nobody reads: readings do not overlap
	busy      []atomic.Bool // by index: a goroutine is inside the driver for this device
	linking   atomic.Int32  // goroutines that compare devices
	listening atomic.Int32  // goroutines that wait for events
	shut      sync.Mutex    // held while the library is initialised again: no listener begins meanwhile
	known     []gpu.Device  // by index: the identity last read, for a device that stops answering
}

// Option changes how the library is opened.
type Option func(*Library)

// Deadline is how long Open, and later each Read, waits for the driver. The default is 5 seconds.
func Deadline(d time.Duration) Option { return func(l *Library) { l.deadline = d } }

// Kernel is the folder in which the kernel driver has an entry for each of its devices. The default is /proc/driver/nvidia/gpus.
func Kernel(folder string) Option { return func(l *Library) { l.kernel = folder } }

// Open loads the library (libnvidia-ml.so.1, else libnvidia-ml.so), initialises it and counts the devices.
// The error is a *gpu.Unavailable that tells the reasons for "no GPU" apart.
// A call that hangs keeps its thread for as long as the driver blocks it; Open returns at the deadline nevertheless.
func Open(ctx context.Context, options ...Option) (*Library, error) {
	l := newLibrary()
	for _, option := range options {
		option(l)
	}
	limit := l.limit(ctx)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- l.start() }()
	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
		l.turn <- struct{}{}
		return l, nil
	case <-ctx.Done():
		return nil, late(ctx, *l.step.Load(), limit)
	}
}

func newLibrary() *Library {
	l := &Library{deadline: 5 * time.Second, kernel: "/proc/driver/nvidia/gpus", addresses: map[string]uintptr{}, turn: make(chan struct{}, 1)}
	l.step.Store(new("loading the library"))
	return l
}

// limit is the time this call has: the library's deadline, or less where the caller's context ends earlier.
func (l *Library) limit(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(l.deadline, time.Until(end)))
	}
	return l.deadline
}

func (l *Library) hangs() bool {
	for i := range l.busy {
		if l.busy[i].Load() {
			return true
		}
	}
	return l.linking.Load() > 0
}
