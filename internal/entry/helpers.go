package entry

import (
	"context"
	"fmt"
	"os"
	"slices"

	"gpuard/internal/app/explain"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/observe"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/app/sweep"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/app/verify"
	"gpuard/internal/host/driverchild"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/libcuda"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/quotawatch"
)

// helper is a process that gpuard starts for itself. The first argument of its command line says which one it is.
type helper struct {
	name string
	// What it does, for people.
	is string
	// What is lost when exactly this process is killed.
	lost string
	readMode
	run func(ctx context.Context, host *machine.Host, args []string) error
}

// readMode says how a helper reads devices.
type readMode string

const (
	// And does not open the driver's library.
	readsNothing readMode = "nothing"
	// In a child, because the helper must not end with the driver's library.
	readsInChild readMode = "apart"
	// Another process replaces the helper when the library ends it.
	readsDirectly readMode = "directly"
)

// helpers are all of them. The page docs/reference/processes.md is made from this table.
func helpers() []helper {
	return []helper{
		{launch.HolderFlag, "the holder of a lease: has a second reference to its lock, cleans up when the command is gone, and writes the line of the history",
			"nothing of the lease: the command has it too. The line of the history is written by who finds the lease next, without an exit code", readsNothing,
			func(_ context.Context, host *machine.Host, args []string) error { return holder.HoldLease(host, args) }},
		{machine.KeeperFlag, "the keeper of a job of a queue or a sweep: does for it what `gpuard run` does as the parent of its command",
			"its end is still known, and its `--timeout` counts; what else was asked for ends", readsInChild, runner.KeepJob},
		{userqueue.Flag, "the keeper of a user's queue, while there is work: starts the runner, and waits for jobs that a killed runner leaves",
			"nothing: the runner goes on, and starts another one at its end", readsInChild, func(ctx context.Context, host *machine.Host, args []string) error {
				host.Say = func(text string) { fmt.Fprintln(os.Stderr, "gpuard: "+text) }
				return userqueue.KeepQueue(ctx, host, args)
			}},
		{userqueue.RunnerFlag, "the runner of a queue: leases for its jobs and starts them", "nothing: the keeper of the queue waits for the jobs and starts another runner", readsInChild,
			func(ctx context.Context, host *machine.Host, args []string) error {
				runner.RunFolder(ctx, host, args, userqueue.RunnerWork)
				return nil
			}},
		{sweep.Flag, "the runner of a sweep", "nothing: `gpuard sweep` waits for the runs and starts another runner", readsInChild,
			func(ctx context.Context, host *machine.Host, args []string) error {
				runner.RunFolder(ctx, host, args, sweep.RunnerWork)
				return nil
			}},
		{limits.ExecFlag, "becomes a job, with the limits (`ulimit`) of the shell that handed it in", "the job", readsInChild,
			func(_ context.Context, _ *machine.Host, args []string) error { return limits.Exec(args) }},
		{quotawatch.MeasureFlag, "measures all shares of a user once a second, and ends a job that uses more than its share; another one measures every ten seconds what the other leases use, for the history",
			"nothing: the holder of one of those leases starts another one at once, up to five times a minute", readsInChild, measure.RunMeasurer},
		{isolation.WallFlag, "builds the wall of `--isolate` around itself and becomes the command behind it", "the command, which was not started yet", readsNothing,
			func(_ context.Context, _ *machine.Host, args []string) error {
				// Which it inherits.
				launch.DefaultSignals()
				return isolation.Become(args)
			}},
		{isolation.FailedFlag, "says why a wall could not be built; the command was not started", "that reason", readsNothing,
			func(_ context.Context, _ *machine.Host, args []string) error { return isolation.FailedStepError(args) }},
		{verify.Flag, "looks where a job with `--verify` runs, and says so once", "that line", readsInChild, verify.RunVerifier},
		{machine.RanksFlag, "starts the processes of `--ranks`, and ends them all when one fails", "that: the others run on", readsInChild, startRanks(machine.RanksFlag)},
		{machine.RankFlag, "becomes a process of `--torchrun`, beside its GPU", "that process", readsInChild, startRanks(machine.RankFlag)},
		{apprun.JoinFlag, "names the processes of `--torchrun` that do not join the others", "that hint", readsNothing, apprun.WatchTorchrun},
		{logfile.CopyFlag, "copies what a command prints into the file of `--log`", "what the command prints from then on; most programs end when they print (SIGPIPE)", readsNothing,
			func(_ context.Context, _ *machine.Host, args []string) error { return logfile.CopyOutput(args) }},
		{leases.ReserveFlag, "stands for a reservation without a command", "the reservation", readsInChild,
			func(_ context.Context, _ *machine.Host, args []string) error { return leases.SleepOut(args) }},
		{observe.Flag, "reads the devices again and again for `serve` and `top`", "nothing: it is started again", readsDirectly, observe.PrintReadings},
		{driverchild.ChildFlag, "reads the devices for a process that has a command to look after", "nothing: it is started again", readsDirectly, nil},
		{libcuda.ProbeFlag, "asks the CUDA driver for `explain --probe`", "the answer", readsNothing, func(context.Context, *machine.Host, []string) error { return explain.ServeProbe() }},
	}
}

// startRanks starts the processes of a job, or becomes one of them.
func startRanks(flag string) func(context.Context, *machine.Host, []string) error {
	return func(_ context.Context, host *machine.Host, args []string) error {
		return apprun.StartRanks(host, append([]string{flag}, args...))
	}
}

// helperOf is the helper that this process is by its command line; found is false for a command of a user.
func helperOf(args []string) (h helper, found bool) {
	if len(args) < 2 {
		return h, false
	}
	i := slices.IndexFunc(helpers(), func(h helper) bool { return h.name == args[1] })
	if i < 0 {
		return h, false
	}

	return helpers()[i], true
}
