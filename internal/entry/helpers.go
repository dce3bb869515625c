package entry

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/explain"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/observe"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/app/services"
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
	"gpuard/internal/ui/projectfile"
)

// helper is a process that gpuard starts for itself. The first argument of its command line says which one it is.
type helper struct {
	name string
	// What it does, for people.
	is string
	// What is lost when exactly this process is killed.
	lost string
	readMode
	run helperFunc
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
			withOrders(4, holder.HoldLease)},
		{machine.KeeperFlag, "the keeper of a job of a queue or a sweep: does for it what `gpuard run` does as the parent of its command",
			"its end is still known, and its `--timeout` counts; what else was asked for ends", readsInChild, withInput(1, runner.KeepJob)},
		{userqueue.Flag, "the keeper of a user's queue, while there is work: starts the runner, and waits for jobs that a killed runner leaves",
			"nothing: the runner goes on, and starts another one at its end", readsInChild, withWords(1, func(ctx context.Context, host *machine.Host, args []string) error {
				host.Say = sayOnError
				return userqueue.KeepQueue(ctx, host, args[0])
			})},
		{userqueue.RunnerFlag, "the runner of a queue: leases for its jobs and starts them", "nothing: the keeper of the queue waits for the jobs and starts another runner", readsInChild,
			withWords(1, runFolder(userqueue.RunnerWork))},
		{sweep.Flag, "the runner of a sweep", "nothing: `gpuard sweep` waits for the runs and starts another runner", readsInChild, withWords(1, runFolder(sweep.RunnerWork))},
		{services.SupervisorFlag, "the supervisor of the services of `gpuard up`: decides what is to run, and starts their keepers",
			"nothing: the services and their keepers go on, and the next command about the project starts another one", readsNothing,
			withWords(1, func(ctx context.Context, host *machine.Host, args []string) error {
				return services.SuperviseProject(ctx, host, args[0])
			})},
		{services.KeeperFlag, "the keeper of a service: does for it what `gpuard run` does as the parent of its command",
			"the service runs on, and another keeper takes over. How it ends meanwhile is known since Linux 6.15; before, that counts as a failure", readsInChild,
			withOrders(1, func(ctx context.Context, host *machine.Host, args []string, o services.KeeperOrders) error {
				host.Say = sayOnError
				return services.KeepInstance(ctx, host, args[0], o, projectfile.KeeperWords())
			})},
		{limits.ExecFlag, "becomes a job, with the limits (`ulimit`) of the shell that handed it in", "the job", readsInChild,
			func(_ context.Context, _ *machine.Host, args []string) error { return limits.Exec(args) }},
		{quotawatch.MeasureFlag, "measures all shares of a user once a second, and ends a job that uses more than its share; another one measures every ten seconds what the other leases use, for the history",
			"nothing: the holder of one of those leases starts another one at once, up to five times a minute", readsInChild, withWords(4, measure.RunMeasurer)},
		{isolation.WallFlag, "builds the wall of `--isolate` around itself and becomes the command behind it", "the command, which was not started yet", readsNothing,
			func(_ context.Context, _ *machine.Host, args []string) error {
				// Which it inherits.
				launch.DefaultSignals()
				return isolation.Become(args)
			}},
		{isolation.FailedFlag, "says why a wall could not be built; the command was not started", "that reason", readsNothing,
			func(_ context.Context, _ *machine.Host, args []string) error { return isolation.FailedStepError(args) }},
		{verify.Flag, "looks where a job with `--verify` runs, and says so once", "that line", readsInChild, withOrders(2, verify.RunVerifier)},
		{machine.RanksFlag, "starts the processes of `--ranks`, and ends them all when one fails", "that: the others run on", readsInChild, startRanks(machine.RanksFlag)},
		{machine.RankFlag, "becomes a process of `--torchrun`, beside its GPU", "that process", readsInChild, startRanks(machine.RankFlag)},
		{apprun.JoinFlag, "names the processes of `--torchrun` that do not join the others", "that hint", readsNothing, withOrders(2, apprun.WatchTorchrun)},
		{logfile.CopyFlag, "copies what a command prints into the file of `--log`", "what the command prints from then on; most programs end when they print (SIGPIPE)", readsNothing,
			withOrders(0, func(_ context.Context, _ *machine.Host, _ []string, o logfile.CopyOrders) error {
				return logfile.CopyOutput(o)
			})},
		{leases.ReserveFlag, "stands for a reservation without a command", "the reservation", readsInChild,
			withWords(1, func(_ context.Context, _ *machine.Host, args []string) error { return leases.SleepOut(args[0]) })},
		{observe.Flag, "reads the devices again and again for `serve` and `top`", "nothing: it is started again", readsDirectly,
			withWords(1, func(ctx context.Context, host *machine.Host, args []string) error {
				return observe.PrintReadings(ctx, host, args[0])
			})},
		{driverchild.ChildFlag, "reads the devices for a process that has a command to look after", "nothing: it is started again", readsDirectly, nil},
		{libcuda.ProbeFlag, "asks the CUDA driver for `explain --probe`", "the answer", readsNothing, func(context.Context, *machine.Host, []string) error { return explain.ServeProbe() }},
	}
}

// helperFunc is the life of a helper; args follow its name on the command line.
type helperFunc func(ctx context.Context, host *machine.Host, args []string) error

// errByHand refuses a helper that a person has called.
func errByHand() error {
	return exit.Usagef("cannot start this by hand: gpuard starts the processes that it needs itself")
}

// withWords is a helper that gets so many words.
func withWords(count int, run helperFunc) helperFunc {
	return func(ctx context.Context, host *machine.Host, args []string) error {
		if len(args) != count {
			return errByHand()
		}
		return run(ctx, host, args)
	}
}

// withOrders is a helper that gets so many words, by which it is found or which are its descriptors, and then its
// orders as JSON.
func withOrders[T any](words int, run func(ctx context.Context, host *machine.Host, args []string, orders T) error) helperFunc {
	return withWords(words+1, func(ctx context.Context, host *machine.Host, args []string) error {
		var orders T
		if json.Unmarshal([]byte(args[words]), &orders) != nil {
			return errByHand()
		}
		return run(ctx, host, args[:words], orders)
	})
}

// withInput is likewise, and reads its orders from its standard input: those of a command may be long.
func withInput[T any](words int, run func(ctx context.Context, host *machine.Host, args []string, orders T) error) helperFunc {
	return withWords(words, func(ctx context.Context, host *machine.Host, args []string) error {
		var orders T
		if json.NewDecoder(os.Stdin).Decode(&orders) != nil {
			return errByHand()
		}
		return run(ctx, host, args, orders)
	})
}

func sayOnError(text string) { fmt.Fprintln(os.Stderr, "gpuard: "+text) }

// runFolder is the life of a runner.
func runFolder(open func(ctx context.Context, host *machine.Host, dir string) (*runner.FolderWork, error)) helperFunc {
	return func(ctx context.Context, host *machine.Host, args []string) error {
		runner.RunFolder(ctx, host, args[0], open)
		return nil
	}
}

// startRanks starts the processes of a job, or becomes one of them.
func startRanks(flag string) helperFunc {
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
