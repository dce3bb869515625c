// The number of CPUs that a cgroup allows means nothing to a program that lives for milliseconds, and reading it costs a
// tenth of its start.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command gpuard chooses, leases and proves GPUs on a shared machine. This file wires the parts and exits.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"gpuard/internal/app"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/amdgpu"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/nvml"
	"gpuard/internal/host/nvsmi"
	"gpuard/internal/host/pci"
	"gpuard/internal/host/proc"
	"gpuard/internal/ui/cli"
)

func main() {
	// A command is executed from this thread. What the kernel keeps per thread (the signal at the parent's death) came to
	// the first one, and an exec from another would lose it.
	runtime.LockOSThread()
	launch.DefaultSignals()
	os.Exit(start("/", waits{driver: 5 * time.Second, fading: 10 * time.Second, lock: 10 * time.Second, touch: 24 * time.Hour}))
}

// waits are the long patiences of the program; tests give shorter ones.
type waits struct {
	driver time.Duration // for one answer of the driver
	fading time.Duration // for GPU memory of a job that just ended
	lock   time.Duration // for the lock of the lease folder
	touch  time.Duration // between two touches of a lease by its holder
}

// start is the program; below root lie sys, dev, proc and usr as the readers of AMD and of PCI devices want them.
func start(root string, w waits) int {
	if app.Holder() {
		if err := app.Keep(os.Args[2:], w.touch); err != nil {
			fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
			return 125
		}
		return 0
	}
	if app.Probing() {
		if err := app.Serve(); err != nil {
			fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
			return 1
		}
		return 0
	}
	a := &app.App{
		Read:         app.Both(app.FirstOf(library(w.driver), nvsmi.Read), amdgpu.New(root, amdgpu.Deadline(w.driver)).Read),
		Unread:       func() []gpu.Device { return pci.Others(root) },
		Env:          os.Environ(),
		Proc:         proc.New("/proc"),
		Run:          "/run",
		Tmp:          "/var/tmp",
		Fading:       w.fading,
		LockDeadline: w.lock,
	}
	if app.Verifier() {
		if err := a.Overlook(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
			return 125
		}
		return 0
	}
	return cli.Main(context.Background(), &cli.Program{App: a, Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]})
}

// library opens NVML on first use and keeps it: one initialisation per process.
func library(deadline time.Duration) app.Reader {
	var lib *nvml.Library
	return func(ctx context.Context, what gpu.What) (gpu.Machine, error) {
		if lib == nil {
			opened, err := nvml.Open(ctx, nvml.Deadline(deadline))
			if err != nil {
				return gpu.Machine{}, err
			}
			lib = opened
		}
		return lib.Read(ctx, what)
	}
}
