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
	"gpuard/internal/app/machine"
	"gpuard/internal/host/driverchild"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/proc"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/commands"
)

// Start is the program; below root lie sys, dev, proc and usr as the readers of AMD and of PCI devices want them. views
// are the commands that show something all the time, or none.
func Start(root string, times machine.Times, views cli.Views) int {
	ctx := context.Background()
	host := &machine.Host{Name: filepath.Base(os.Args[0]), Proc: proc.New("/proc"), Times: times, Root: root, Run: "/run", Tmp: "/var/tmp"}
	helper, isHelper := helperOf(os.Args)
	if isHelper && helper.readMode == readsNothing {
		host.Env = os.Environ()
		return exitCode(helper.run(ctx, host, os.Args[2:]))
	}

	nvidia := newDriver(cmp.Or(times.Driver, 5*time.Second), filepath.Join(root, "proc/driver/nvidia/gpus"))
	if helper.name == driverchild.ChildFlag {
		serve := withWords(2, func(_ context.Context, _ *machine.Host, args []string) error { return serveReadings(nvidia, args) })
		return exitCode(serve(ctx, host, os.Args[2:]))
	}

	// Without what a crash has left in it.
	host.Readers, host.Env = nvidia.newReaders(root), os.Environ()
	if isHelper {
		if helper.readMode == readsInChild {
			host.SurviveDriver()
		}
		return exitCode(helper.run(ctx, host, os.Args[2:]))
	}

	completing := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__")
	if why := limits.ProcessObstacle("/"); why != "" && !completing {
		// A helper goes on as far as it can.
		fmt.Fprintln(os.Stderr, "gpuard: "+why)
		return 125
	}

	return cli.Main(ctx, &cli.Program{Host: host, Commands: commands.CommandTable(), Views: views, Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]})
}

// exitCode is the exit code of a process that is not for people.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
	return exit.RunCode(err)
}
