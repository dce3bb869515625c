// Package entry puts the parts together: which readers a machine has, and what this process is, by its arguments. It
// decides nothing.
package entry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/explain"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/queue"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runs"
	"gpuard/internal/app/sweep"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/amdgpu"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/nvml"
	"gpuard/internal/host/nvsmi"
	"gpuard/internal/host/pci"
	"gpuard/internal/host/proc"
	"gpuard/internal/ui/cli"
)

// Start is the program; below root lie sys, dev, proc and usr as the readers of AMD and of PCI devices want them. views
// are the commands that show something all the time, or none.
func Start(root string, times machine.Times, views cli.Views) int {
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
	case len(os.Args) > 1 && os.Args[1] == runs.LimitsFlag:
		return exitCode(limits.Exec(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == leases.ReserveFlag:
		return exitCode(leases.SleepOut(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == observe.Flag:
		return exitCode(observe.Readings(context.Background(), host, os.Args[2:]))
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
	return cli.Main(context.Background(), &cli.Program{Host: host, Views: views, Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]})
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
		caller := ctx
		ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), left)
		defer cancel()
		stop := context.AfterFunc(caller, func() {
			if errors.Is(caller.Err(), context.Canceled) { // interrupted, and not only late
				cancel()
			}
		})
		defer stop()
		return library.Read(ctx, what)
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
