// Package driverchild reads the devices in a child of this process, for a process that must outlive a crash of the
// driver's library: one that supervises a command. The child is this program again; it gets requests and sends answers,
// a line of JSON each. One that has ended is replaced by the next reading, one that crashed by the first after a
// minute, and one that does not answer is killed.
//
//	child := driverchild.New(5*time.Second, kernelFolder)
//	m, err := child.Read(ctx, gpu.Query{What: gpu.Identity}) // a *gpu.Unavailable says why there is no reading
package driverchild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
)

// ChildFlag is the first argument of the child. The deadline of the driver and the folder of the kernel driver follow.
const ChildFlag = "__driver"

// Reader reads what a query is about.
type Reader func(ctx context.Context, query gpu.Query) (gpu.Machine, error)

// Events sends the errors of devices until ctx ends, or closes the channel where there are none to be had.
type Events func(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event

// childRequest is a line to the child: to read, to send events, or to send no more of them.
type childRequest struct {
	ID    int       `json:"id"`
	Query gpu.Query `json:"query"`
	// The limit of the caller for this reading.
	Limit  *time.Duration `json:"limit,omitempty"`
	Listen []gpu.UUID     `json:"listen,omitempty"`
	// The events with this ID.
	Stop bool `json:"stop,omitempty"`
}

// childAnswer is a line from the child; that of ID 0 is its last one, about all requests.
type childAnswer struct {
	ID          int              `json:"id"`
	Machine     *gpu.Machine     `json:"machine,omitempty"`
	Unavailable *gpu.Unavailable `json:"unavailable,omitempty"`
	Error       string           `json:"error,omitempty"`
	Event       *gpu.Event       `json:"event,omitempty"`
	// There are no more events.
	Over bool `json:"over,omitempty"`
}

const (
	// Before a library that crashed is used again.
	crashPause = time.Minute
	// Children that were killed and have not ended: the driver holds them.
	maxKilled = 3
	// For a child to answer, beyond what the driver gets.
	spareTime = time.Second
	// That wait for their reader; the next ones are lost.
	maxEvents = 256
)

// Child reads through a child of this process. Its methods may be called from several goroutines.
type Child struct {
	// The deadline of the driver for one call.
	deadline time.Duration
	folder   string

	mu      sync.Mutex
	running *childProcess // nil: none
	// Those that were started and not waited for yet.
	alive   map[*childProcess]bool
	killed  int
	crash   *gpu.Unavailable // the last one
	crashed time.Time
}

// New starts nothing yet. crash is what this process knows of an earlier crash of the library; nil: nothing.
func New(deadline time.Duration, folder string, crash *gpu.Unavailable) *Child {
	return &Child{deadline: deadline, folder: folder, crash: crash, crashed: time.Now(), alive: map[*childProcess]bool{}}
}

// CPUTime is the processor time of the children that live. That of those that have ended is in getrusage(2) of this
// process.
func (c *Child) CPUTime() (spent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for p := range c.alive {
		var used unix.Timespec
		clock := int32(^p.cmd.Process.Pid)<<3 | 2 //nolint:gosec // as clock_getcpuclockid(3) makes it
		if unix.ClockGettime(clock, &used) == nil {
			spent += time.Duration(used.Nano())
		}
	}

	return spent
}

// Read reads what the query is about. The error is a *gpu.Unavailable, or that ctx was cancelled.
func (c *Child) Read(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
	r := childRequest{Query: query}

	// To open the library has a deadline of its own.
	patience := 2*c.deadline + spareTime
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), 0)
		r.Limit = &left
		patience = c.deadline + left + spareTime
	}

	p, err := c.runningProcess()
	if err != nil {
		return gpu.Machine{}, err
	}

	id, answers := p.sendRequest(r, 1)
	defer p.forgetRequest(id)
	late := time.After(patience)
	cancelled := ctx.Done()
	for {
		select {
		case a := <-answers:
			return a.toMachine()
		case <-p.done:
			return lastAnswer(answers, p.end).toMachine()
		case <-cancelled:
			if errors.Is(ctx.Err(), context.Canceled) {
				return gpu.Machine{}, fmt.Errorf("cannot read the GPUs: %w", context.Canceled)
			}

			// The child knows the deadline, and sends what it has by then.
			cancelled = nil
		case <-late:
			c.abandonProcess(p)
			return gpu.Machine{}, noAnswerError(fmt.Sprintf("no answer within %v", patience.Round(100*time.Millisecond)))
		}
	}
}

// lastAnswer is the answer that came before the child ended, else the one to all requests.
func lastAnswer(answers <-chan childAnswer, end childAnswer) childAnswer {
	select {
	case a := <-answers:
		return a
	default:
		return end
	}
}

func (a childAnswer) toMachine() (gpu.Machine, error) {
	switch {
	case a.Unavailable != nil:
		return gpu.Machine{}, a.Unavailable
	case a.Machine == nil:
		return gpu.Machine{}, errors.New(a.Error)
	}
	return *a.Machine, nil
}

// Events sends the errors of devices until ctx ends. It goes on with the next child when one ends.
func (c *Child) Events(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	out := make(chan gpu.Event)
	go func() {
		defer close(out)
		for c.forwardEvents(ctx, ids, out) {
			select {
			case <-ctx.Done():
			case <-time.After(crashPause):
			}
		}
	}()
	return out
}

// forwardEvents sends the events of one child. It reports whether another one may have more.
func (c *Child) forwardEvents(ctx context.Context, ids []gpu.UUID, out chan<- gpu.Event) (more bool) {
	if ctx.Err() != nil {
		return false
	}

	p, err := c.runningProcess()
	if err != nil {
		return true
	}

	id, answers := p.sendRequest(childRequest{Listen: ids}, maxEvents)
	defer p.forgetRequest(id)

	for {
		select {
		case <-ctx.Done():
			p.writeRequest(childRequest{ID: id, Stop: true})
			return false
		case <-p.done:
			return true
		case a := <-answers:
			if a.Over {
				return false
			}
			select {
			case out <- *a.Event:
			case <-ctx.Done():
			}
		}
	}
}

func noAnswerError(why string) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.NoAnswer,
		Text:   "cannot read the GPUs: " + why,
		Remedy: "see what the driver says: sudo dmesg | grep -iE 'nvrm|xid'; a hung GPU needs a reset (nvidia-smi --gpu-reset) or a reboot",
	}
}
