// Package amdgpu reads AMD devices from what the amdgpu kernel driver and its compute part, KFD, show in sysfs.
// It only reads: it opens neither /dev/kfd nor a render node, decides nothing, and knows nothing of leases.
// A file of a sick GPU can block its reader for ever, so every device is read where somebody else watches the clock.
package amdgpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gpuard/internal/core/gpu"
)

// Driver is the amdgpu driver as seen below one root folder. Its methods may be called from several goroutines.
type Driver struct {
	files
	deadline time.Duration
	turn     chan struct{} // holds one token while nobody reads: readings do not overlap
	mu       sync.Mutex
	busy     map[string]bool // what a goroutine of an earlier reading may still be blocked in
}

// Option changes how the driver is read.
type Option func(*Driver)

// Deadline is how long a Read waits for the kernel. The default is 5 seconds.
func Deadline(d time.Duration) Option { return func(r *Driver) { r.deadline = d } }

// New reads below root: "/" for this machine, or a folder that holds sys, dev, proc and usr of the same shape.
func New(root string, options ...Option) *Driver {
	d := &Driver{files: files{root}, deadline: 5 * time.Second, turn: make(chan struct{}, 1), busy: map[string]bool{}}
	for _, option := range options {
		option(d)
	}
	d.turn <- struct{}{}
	return d
}

// Read reads the parts of the machine that what names; identity is always read. It returns at the deadline: a device
// that is late has Problem "no answer within …" and what is known of it, the others are complete. A file that fails leaves
// its field nil, and Machine.Problems says so unless the device simply has no such file. When there is no device
// the error is a *gpu.Unavailable, never an empty machine.
//
// Index is ROCm's own numbering for this process. UUID is ROCm's ("GPU-" and 16 hexadecimal digits), or "PCI-" and the
// address for GPUs that have none: those before gfx9 and integrated ones. Partitions of one GPU that share an
// identifier have "-p0", "-p1", … after it. Minor is N of /dev/dri/renderDN. The link class nvlink means AMD's
// direct links (XGMI, also called Infinity Fabric). Extra has "gfx_target", such as "gfx942". Memory is VRAM; an
// integrated GPU can use more, out of the computer's own. A GPU that sleeps is not woken: its sensors are nil.
func (d *Driver) Read(caller context.Context, what gpu.What) (gpu.Machine, error) {
	limit := d.limit(caller)
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return gpu.Machine{}, late(ctx, "an earlier reading", limit)
	}
	taken := time.Now()
	found, ok := once(ctx, d, "devices", func() findings { return d.find(what) })
	if !ok {
		return gpu.Machine{}, late(ctx, "listing the devices", limit)
	}
	if len(found.cards) == 0 {
		return gpu.Machine{}, found.none
	}
	m := gpu.Machine{Taken: taken, Driver: found.version, Source: "amdgpu", Problems: found.problems}
	users := d.askProcesses(ctx, found.cards, what)
	for i, a := range d.askDevices(ctx, found.cards, what, limit) {
		m.Stuck = m.Stuck || a.device.Problem == noAnswer(limit)
		a.device.Links = found.links(i)
		m.Devices = append(m.Devices, a.device)
		for _, p := range a.problems {
			m.Problems = append(m.Problems, fmt.Sprintf("AMD GPU %d: %s", i, p))
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return gpu.Machine{}, late(ctx, "", limit)
	}
	if got := <-users; got.late {
		m.Problems = append(m.Problems, "AMD GPUs: cannot list the processes: "+noAnswer(limit))
		m.Stuck = true
	} else {
		m.Processes = got.list
	}
	return m, nil
}

// limit is the time this call has: the driver's deadline, or less where the caller's context ends earlier.
func (d *Driver) limit(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(d.deadline, time.Until(end)))
	}
	return d.deadline
}

// once runs f where it may block for ever; ok is false when it is late, or when the run of an earlier reading still blocks.
func once[T any](ctx context.Context, d *Driver, name string, f func() T) (result T, ok bool) {
	if !d.begin(name) {
		return result, false
	}
	done := make(chan T, 1)
	go func() {
		v := f()
		d.end(name)
		done <- v
	}()
	select {
	case v := <-done:
		return v, true
	case <-ctx.Done():
	}
	select { // both may have happened
	case v := <-done:
		return v, true
	default:
		return result, false
	}
}

func (d *Driver) begin(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[name] {
		return false
	}
	d.busy[name] = true
	return true
}

func (d *Driver) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, name)
}

// answer is what one device has said so far. What was stored is never changed afterwards.
type answer struct {
	device   gpu.Device
	problems []string
}

// askDevices reads all devices at the same time.
func (d *Driver) askDevices(ctx context.Context, cards []card, what gpu.What, limit time.Duration) []answer {
	answers := make([]answer, len(cards))
	var wait sync.WaitGroup
	for i := range cards {
		wait.Go(func() { answers[i] = d.ask(ctx, cards[i], what, limit) })
	}
	wait.Wait()
	return answers
}

// ask reads one device part by part, so that one that blocks keeps the parts it gave before.
func (d *Driver) ask(ctx context.Context, c card, what gpu.What, limit time.Duration) answer {
	var said atomic.Pointer[answer]
	said.Store(&answer{device: c.device})
	_, ok := once(ctx, d, string(c.device.UUID), func() bool {
		r := reader{files: files{c.dir}, card: c, answer: answer{device: c.device}}
		for _, part := range r.parts(d.files, what) {
			part()
			now := r.answer
			said.Store(&now)
		}
		return true
	})
	a := *said.Load()
	if !ok {
		a.device.Problem = noAnswer(limit)
	}
	if a.device.Problem != "" {
		a.problems = append([]string{a.device.Problem}, a.problems...)
	}
	return a
}

// users are the processes on all devices.
type users struct {
	list []gpu.Process
	late bool
}

// askProcesses lists the processes meanwhile; the channel gives one answer, at the deadline at the latest.
func (d *Driver) askProcesses(ctx context.Context, cards []card, what gpu.What) <-chan users {
	told := make(chan users, 1)
	if what&gpu.Processes == 0 {
		told <- users{}
		return told
	}
	go func() {
		list, ok := once(ctx, d, "processes", func() []gpu.Process { return d.processes(cards) })
		told <- users{list, !ok}
	}()
	return told
}
