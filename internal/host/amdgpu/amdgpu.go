// Package amdgpu reads AMD devices from the files of the amdgpu kernel driver and its compute part, KFD, in sysfs. It
// only reads: it opens neither /dev/kfd nor a render node, decides nothing, and knows nothing of leases. To read a file
// of a broken GPU can block for ever, so each device is read in a goroutine of its own, and the caller waits no longer
// than a deadline.
//
//	driver := amdgpu.New("/", amdgpu.WithDeadline(2*time.Second))
//	machine, err := driver.Read(ctx, gpu.Load|gpu.Processes) // a *gpu.Unavailable says why there is no GPU
package amdgpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// Driver is the amdgpu driver below one root folder. Its methods may be called from several goroutines.
type Driver struct {
	fileReader
	deadline time.Duration
	// Has one token while no reading runs: readings do not overlap.
	turn chan struct{}
	mu   sync.Mutex
	// The reads that are running, also those of an earlier reading that blocks.
	busy map[string]bool
}

// Option changes how the driver is read.
type Option func(*Driver)

// WithDeadline is how long a Read waits for the kernel. The default is 5 seconds.
func WithDeadline(d time.Duration) Option { return func(r *Driver) { r.deadline = d } }

// New reads below root: "/" for this machine, or a folder with sys, dev, proc and usr of the same shape.
func New(root string, options ...Option) *Driver {
	d := &Driver{fileReader: fileReader{root}, deadline: 5 * time.Second, turn: make(chan struct{}, 1), busy: map[string]bool{}}
	for _, option := range options {
		option(d)
	}
	d.turn <- struct{}{}

	return d
}

// Read reads the parts of the machine that what names, and always the identity of each device. It returns at the
// deadline: a device that is late has Problem "no answer within …" and the parts that it gave; the others are complete.
// A file that cannot be read leaves its field nil, and Machine.Problems names it, unless the device has no such file.
// If there is no device, the error is a *gpu.Unavailable; Read never returns an empty machine without an error.
//
// Index is ROCm's numbering for this process. UUID is ROCm's ("GPU-" and 16 hexadecimal digits), or "PCI-" and the
// address for GPUs that have none: those before gfx9 and integrated ones. Partitions of one GPU with the same
// identifier get "-p0", "-p1", … after it. Minor is N of /dev/dri/renderDN. The link class nvlink means AMD's direct
// links (XGMI, also called Infinity Fabric). Extra has "gfx_target", such as "gfx942". Memory is VRAM; an integrated
// GPU, which its target tells (Device.Integrated), can also use main memory. A sleeping GPU is not woken: its sensors
// are nil.
func (d *Driver) Read(caller context.Context, what gpu.What) (gpu.Machine, error) {
	limit := d.callLimit(caller)
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()

	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return gpu.Machine{}, noAnswerError(ctx, "an earlier reading", limit)
	}

	taken := time.Now()
	found, ok := runBounded(ctx, d, "devices", func() foundDevices { return d.findDevices(what) })
	if !ok {
		return gpu.Machine{}, noAnswerError(ctx, "listing the devices", limit)
	}
	if len(found.cards) == 0 {
		return gpu.Machine{}, found.none
	}

	m := gpu.Machine{Taken: taken, Driver: found.version, Source: "amdgpu", Problems: found.problems}
	users := d.listProcesses(ctx, found.cards, what)

	for i, a := range d.readDevices(ctx, found.cards, what, limit) {
		m.Stuck = m.Stuck || a.device.Problem == prose.NoAnswerText(limit)
		a.device.Links = found.linksOf(i)
		m.Devices = append(m.Devices, a.device)

		for _, p := range a.problems {
			m.Problems = append(m.Problems, fmt.Sprintf("AMD GPU %d: %s", i, p))
		}
	}

	if errors.Is(ctx.Err(), context.Canceled) {
		return gpu.Machine{}, noAnswerError(ctx, "", limit)
	}

	got := <-users
	m.Processes = got.list
	if got.late {
		found.unlisted = "cannot list the processes: " + prose.NoAnswerText(limit)
		m.Problems, m.Stuck = append(m.Problems, "AMD GPUs: "+found.unlisted), true
	}

	for i := range m.Devices {
		m.Devices[i].Unlisted = found.unlisted
	}

	m.DropImplausible()

	return m, nil
}

// callLimit returns the time for one call: the driver's deadline, or less if ctx ends earlier.
func (d *Driver) callLimit(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(d.deadline, time.Until(end)))
	}
	return d.deadline
}

// runBounded runs f, which may block for ever, in a goroutine. ok is false if f does not return before ctx ends, or if
// the f of an earlier reading with this name still blocks.
func runBounded[T any](ctx context.Context, d *Driver, name string, f func() T) (result T, ok bool) {
	if !d.beginRead(name) {
		return result, false
	}

	done := make(chan T, 1)
	go func() {
		v := f()
		d.endRead(name)
		done <- v
	}()

	select {
	case v := <-done:
		return v, true
	case <-ctx.Done():
	}

	select {
	// F may have returned as ctx ended.
	case v := <-done:
		return v, true
	default:
		return result, false
	}
}

func (d *Driver) beginRead(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[name] {
		return false
	}

	d.busy[name] = true

	return true
}

func (d *Driver) endRead(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, name)
}

// deviceAnswer is what was read so far of one device. It is never changed after it was stored.
type deviceAnswer struct {
	device   gpu.Device
	problems []string
}

// readDevices reads all devices at the same time.
func (d *Driver) readDevices(ctx context.Context, cards []card, what gpu.What, limit time.Duration) []deviceAnswer {
	answers := make([]deviceAnswer, len(cards))
	var wait sync.WaitGroup
	for i := range cards {
		wait.Go(func() { answers[i] = d.readDevice(ctx, cards[i], what, limit) })
	}

	wait.Wait()

	return answers
}

// readDevice reads one device part by part, so that a device that blocks keeps the earlier parts.
func (d *Driver) readDevice(ctx context.Context, c card, what gpu.What, limit time.Duration) deviceAnswer {
	var said atomic.Pointer[deviceAnswer]
	said.Store(&deviceAnswer{device: c.device})
	_, ok := runBounded(ctx, d, string(c.device.UUID), func() bool {
		r := deviceReader{fileReader: fileReader{c.dir}, card: c, deviceAnswer: deviceAnswer{device: c.device}}
		for _, part := range r.readingParts(d.fileReader, what) {
			part()
			now := r.deviceAnswer
			said.Store(&now)
		}
		return true
	})

	a := *said.Load()
	if !ok {
		a.device.Problem = prose.NoAnswerText(limit)
	}

	if a.device.Problem != "" {
		a.problems = append([]string{a.device.Problem}, a.problems...)
	}

	return a
}

// deviceProcesses are the processes on all devices.
type deviceProcesses struct {
	list []gpu.Process
	late bool
}

// listProcesses lists the processes in a goroutine. The channel gets one value, at the deadline at the latest.
func (d *Driver) listProcesses(ctx context.Context, cards []card, what gpu.What) <-chan deviceProcesses {
	told := make(chan deviceProcesses, 1)
	if what&gpu.Processes == 0 {
		told <- deviceProcesses{}
		return told
	}
	go func() {
		list, ok := runBounded(ctx, d, "processes", func() []gpu.Process { return d.findProcesses(cards) })
		told <- deviceProcesses{list, !ok}
	}()

	return told
}
