package entry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/amdgpu"
	"gpuard/internal/host/crash"
	"gpuard/internal/host/driverchild"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/nvml"
	"gpuard/internal/host/nvsmi"
	"gpuard/internal/host/pci"
)

// nvmlDriver is NVML, opened on first use and kept: one initialisation per process. If it crashes in a process that
// runs no command, that process begins again without it (host/crash). A process that runs a command calls readInChild
// first.
type nvmlDriver struct {
	deadline time.Duration
	// Folder with an entry for each device that the kernel driver has.
	devices string
	crashed *gpu.Unavailable
	// nil: a crash ends this process.
	catcher *crash.Catcher
	// nil: the library is used in this process.
	child atomic.Pointer[driverchild.Child]

	opening sync.Mutex
	nvml    *nvml.Library
}

func newDriver(deadline time.Duration, devices string) *nvmlDriver {
	d := &nvmlDriver{deadline: deadline, devices: devices}
	last := crash.LastCrash()
	if last != nil {
		d.crashed = nvml.CrashedError(last.Text())
	}

	refusal := "gpuard: " + limits.ThreadFailureText()
	if catcher, err := crash.CatchCrashes(refusal+"\n", refusal+". What gpuard has started runs on, and nothing watches it\n", last == nil); err == nil {
		// Else a crash is as ugly as the Go runtime makes it.
		d.catcher = catcher
	}

	return d
}

// newReaders are those of this machine; below root lie sys, dev, proc and usr as those of AMD and of PCI devices want
// them.
func (n *nvmlDriver) newReaders(root string) machine.Readers {
	return machine.Readers{
		Reader: machine.JoinVendors(machine.WithFallback(n.readDevices, wholeReader(nvsmi.Read)), wholeReader(amdgpu.New(root, amdgpu.WithDeadline(n.deadline)).Read),
			func() bool { return pci.HasNoGPU(root) }),
		Unread:    func() []gpu.Device { return pci.ListOtherDevices(root) },
		Cards:     func() ([]hostinfo.Card, error) { return pci.ListCards(root) },
		Events:    n.watchEvents,
		Separate:  n.readInChild,
		Spent:     n.childTime,
		Crashed:   n.crashed != nil,
		KernelLog: root,
	}
}

// wholeReader reads all devices, whichever the query is about.
func wholeReader(read func(context.Context, gpu.What) (gpu.Machine, error)) machine.Reader {
	return func(ctx context.Context, query gpu.Query) (gpu.Machine, error) { return read(ctx, query.What) }
}

// serveReadings is the life of a child that reads for its parent.
func serveReadings(d *nvmlDriver, args []string) (err error) {
	if d.crashed != nil {
		return driverchild.ReportCrash(os.Stdout, d.crashed)
	}

	d.deadline, err = time.ParseDuration(args[0])
	if err != nil {
		return fmt.Errorf("cannot read devices: %w", err)
	}

	d.devices = args[1]

	return driverchild.ServeRequests(os.Stdin, os.Stdout, d.readDevices, d.watchEvents)
}

// readInChild makes this process one that does not end when the library crashes: a child calls it. A call that hangs in
// this process since before may crash yet.
func (n *nvmlDriver) readInChild() {
	if n.catcher != nil {
		n.catcher.ParkOnCrash()
	}
	n.child.CompareAndSwap(nil, driverchild.New(n.deadline, n.devices, n.crashed))
}

func (n *nvmlDriver) childTime() time.Duration {
	if child := n.child.Load(); child != nil {
		return child.CPUTime()
	}
	return 0
}

func (n *nvmlDriver) openLibrary(ctx context.Context) (*nvml.Library, error) {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.nvml == nil {
		// The library has a deadline of its own, even if the caller has less time for this reading.
		options := []nvml.Option{nvml.WithDeadline(n.deadline), nvml.WithKernelFolder(n.devices)}
		if n.catcher != nil {
			options = append(options, nvml.WithCatcher(n.catcher))
		}

		opened, err := nvml.Open(context.WithoutCancel(ctx), options...)
		if err != nil {
			return nil, err
		}

		n.nvml = opened
	}

	return n.nvml, nil
}

// readDevices gives a reading the time that its caller has for it, which the opening of the library does not use up.
func (n *nvmlDriver) readDevices(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
	if child := n.child.Load(); child != nil {
		return child.Read(ctx, query)
	}
	if n.crashed != nil {
		return gpu.Machine{}, n.crashed
	}

	end, hurried := ctx.Deadline()
	left := time.Until(end)
	library, err := n.openLibrary(ctx)
	if err != nil {
		return gpu.Machine{}, err
	}

	if hurried {
		caller := ctx
		ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), left)
		defer cancel()
		stop := context.AfterFunc(caller, func() {
			if errors.Is(caller.Err(), context.Canceled) {
				// Interrupted, and not only late.
				cancel()
			}
		})

		defer stop()

		return library.Read(ctx, query)
	}

	return library.Read(ctx, query)
}

// watchEvents tells the errors of devices; where the library cannot be used there are none, and its reason was told
// with the readings.
func (n *nvmlDriver) watchEvents(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	if child := n.child.Load(); child != nil {
		return child.Events(ctx, ids)
	}

	var library *nvml.Library
	if n.crashed == nil {
		// nil with an error.
		library, _ = n.openLibrary(ctx)
	}

	if library == nil {
		none := make(chan gpu.Event)
		close(none)
		return none
	}

	return library.Events(ctx, ids)
}
