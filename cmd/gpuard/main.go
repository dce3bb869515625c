// The number of CPUs that a cgroup allows means nothing to a program that lives for milliseconds: the runtime need not keep the
// files that say it open, nor read them again.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command gpuard chooses, leases and proves GPUs on a shared machine. This file wires the parts and exits.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/explain"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/queue"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runs"
	"gpuard/internal/app/sweep"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/amdgpu"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/nvml"
	"gpuard/internal/host/nvsmi"
	"gpuard/internal/host/pci"
	"gpuard/internal/host/proc"
	"gpuard/internal/ui/cli"
)

// A command is executed from the first thread. What the kernel keeps per thread (the signal at the parent's death) came
// to that one, and an exec from another would lose it. Go lets main move to another thread before its first statement,
// unless it was locked while variables are set (runtime.LockOSThread).
var _ = locked()

func locked() bool {
	runtime.LockOSThread()
	return true
}

func main() {
	deepen(0)
	launch.DefaultSignals()
	os.Exit(start("/", machine.Times{}))
}

// deepen makes this goroutine's stack large while there is little on it. Otherwise it would be copied from 2 KiB to 64
// KiB in five steps, and each step finds all functions on it: a twentieth of the time of a run.
//
//go:noinline
func deepen(at int) byte {
	var room [40 << 10]byte
	room[at] = 1
	return room[len(room)-1-at]
}

// start is the program; below root lie sys, dev, proc and usr as the readers of AMD and of PCI devices want them.
func start(root string, times machine.Times) int {
	switch {
	case holder.Is():
		return exitCode(holder.Keep(os.Args[2:], cmp.Or(times.Touch, 24*time.Hour), cmp.Or(times.Again, 15*time.Second)))
	case logfile.Copying():
		return exitCode(logfile.Copy(os.Args[2:]))
	case explain.Probing():
		if err := explain.Serve(); err != nil {
			fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
			return 1
		}
		return 0
	}
	deadline := cmp.Or(times.Driver, 5*time.Second)
	nvidia := &driver{deadline: deadline, devices: filepath.Join(root, "proc/driver/nvidia/gpus")}
	host := &machine.Host{
		Name: filepath.Base(os.Args[0]),
		Readers: machine.Readers{
			Reader: machine.Both(machine.FirstOf(nvidia.read, nvsmi.Read), amdgpu.New(root, amdgpu.Deadline(deadline)).Read,
				func() bool { return pci.NoGPU(root) }),
			Unread:    func() []gpu.Device { return pci.Others(root) },
			Cards:     func() ([]hostinfo.Card, error) { return pci.Cards(root) },
			Events:    nvidia.events,
			KernelLog: root,
		},
		Env:   os.Environ(),
		Proc:  proc.New("/proc"),
		Times: times,
		Root:  root,
		Run:   "/run", Tmp: "/var/tmp",
	}
	switch {
	case len(os.Args) > 1 && os.Args[1] == sweep.Flag:
		runs.Run(context.Background(), host, os.Args[2:], sweep.Work)
		return 0
	case len(os.Args) > 1 && os.Args[1] == queue.RunnerFlag:
		runs.Run(context.Background(), host, os.Args[2:], queue.Work)
		return 0
	case len(os.Args) > 1 && os.Args[1] == queue.Flag:
		host.Say = func(text string) { fmt.Fprintln(os.Stderr, "gpuard: "+text) }
		return exitCode(queue.Keep(context.Background(), host, os.Args[2:]))
	case verify.Verifier(host):
		return exitCode(verify.RunVerifier(context.Background(), host, os.Args[2:]))
	case measure.Measuring(host):
		return exitCode(measure.Run(context.Background(), host, os.Args[2:]))
	case apprun.OfRanks(host):
		return exitCode(apprun.StartRanks(host, os.Args[1:]))
	}
	return cli.Main(context.Background(), &cli.Program{Host: host, Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]})
}

// exitCode is the exit code of a process that is not for people.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
	return exit.Run(err)
}

// driver is NVML, opened on first use and kept: one initialisation per process.
type driver struct {
	deadline time.Duration
	devices  string // folder with an entry for each device that the kernel driver has
	opening  sync.Mutex
	nvml     *nvml.Library
}

func (d *driver) open(ctx context.Context) (*nvml.Library, error) {
	d.opening.Lock()
	defer d.opening.Unlock()
	if d.nvml == nil {
		// The library has a deadline of its own, even if the caller has less time for this reading.
		opened, err := nvml.Open(context.WithoutCancel(ctx), nvml.Deadline(d.deadline), nvml.Kernel(d.devices))
		if err != nil {
			return nil, err
		}
		d.nvml = opened
	}
	return d.nvml, nil
}

// read gives a reading the time that its caller has for it, which the opening of the library does not use up.
func (d *driver) read(ctx context.Context, what gpu.What) (gpu.Machine, error) {
	end, hurried := ctx.Deadline()
	left := time.Until(end)
	library, err := d.open(ctx)
	if err != nil {
		return gpu.Machine{}, err
	}
	if hurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), left)
		defer cancel()
	}
	return library.Read(ctx, what)
}

// events tells the errors of devices; where the library cannot be used there are none, and its reason was told with the
// readings.
func (d *driver) events(ctx context.Context, ids []gpu.UUID) <-chan gpu.Event {
	library, err := d.open(ctx)
	if err != nil {
		none := make(chan gpu.Event)
		close(none)
		return none
	}
	return library.Events(ctx, ids)
}
