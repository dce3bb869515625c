// Package entry puts the parts together: which readers a machine has, and what this process is, by its arguments. It
// decides nothing.
package entry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	"gpuard/internal/host/driverchild"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/logfile"
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
	nvidia := newDriver(cmp.Or(times.Driver, 5*time.Second), filepath.Join(root, "proc/driver/nvidia/gpus"))
	if len(os.Args) > 1 && os.Args[1] == driverchild.Flag {
		return exitCode(serveReadings(nvidia, os.Args[2:]))
	}
	return begin(&machine.Host{
		Name:    filepath.Base(os.Args[0]),
		Readers: nvidia.readers(root),
		Env:     os.Environ(),
		Proc:    proc.New("/proc"),
		Times:   times,
		Root:    root,
		Run:     "/run", Tmp: "/var/tmp",
	}, views)
}

// begin is what uses the machine: the processes that gpuard starts for itself, by their first argument, and the command line.
// Those may not end with the driver's library, except the one that is replaced when it does.
func begin(host *machine.Host, views cli.Views) int {
	helper := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__")
	if why := limits.NoProcess("/"); why != "" && !helper { // what gpuard has begun goes on as far as it can
		fmt.Fprintln(os.Stderr, "gpuard: "+why)
		return 125
	}
	if helper && os.Args[1] != observe.Flag {
		host.SurviveDriver()
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
