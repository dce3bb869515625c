// Package compare runs an experiment on the real machine: the same commands in several placements, alternately, each
// run with leases of its own. Package core/experiment plans it and says what follows.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/judge"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proctree"
)

// Request is what is compared.
type Request struct {
	Arms     []experiment.Arm
	Commands []Command
	// Shell command that uses one command while that runs; "" the commands end by themselves.
	Load    string
	Metrics []experiment.Metric
	// Runs of each arm that do not count.
	Warmup int
	// Runs of each arm that count.
	Repeat int
	Seed   uint64
	// Whole GPUs to use; none: those that gpuard run would take.
	Devices []string
}

// Command is one of those that are compared.
type Command struct {
	// Its letter, or the name of its service.
	Name string
	Argv []string
	// The folder in which it runs; "" here.
	Dir string
	// The variables besides those of its lease.
	Env []visible.Var
}

// Result is what was measured.
type Result struct {
	Answer *experiment.Answer
	Runs   []experiment.Run
	// Whole ones that were used.
	Devices []gpu.Device
	// Folder with the output of the runs that failed; "" there was none.
	Kept string
	// That ended the experiment; nil: it is complete.
	Interrupted os.Signal
}

// Progress is how far an experiment is.
type Progress struct {
	// The one that runs, from 1.
	Run, Runs int
	Arm       experiment.Arm
	// Expected to the end; nil: nothing is known yet.
	Left *time.Duration
}

// experimentRun is a request on its way.
type experimentRun struct {
	*experimentDevices
	request *Request
	host    *machine.Host
	show    func(Progress)
	turns   []experiment.Turn
	result  *Result
	paths   []string // of the programs
	// Folder of what the commands print.
	output string
	null   *os.File
	tree   *proctree.Tree
	crew   awaitedChildren
	// Has a value when the user asks a second time to end.
	again <-chan struct{}
}

// Run runs the experiment. show is called several times a second. A placement that this machine can never give is
// refused before anything starts; one that is in use is waited for. An experiment that is interrupted, or that an error
// ends, has the runs that were complete.
func Run(ctx context.Context, host *machine.Host, r *Request, show func(Progress)) (*Result, error) {
	host.SurviveDriver()
	x := &experimentRun{request: r, host: host, show: show, result: &Result{Runs: []experiment.Run{}}}
	for _, c := range r.Commands {
		path, err := findProgram(host, &c)
		if err != nil {
			return x.result, err
		}

		x.paths = append(x.paths, path)
	}

	ctx, heard, stop := x.listenForSignals(ctx)
	defer stop()
	err := x.measureArms(ctx)

	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		x.result.Interrupted, err = heard(), nil
	}

	x.result.Answer = experiment.Conclude(x.coreExperiment(), x.result.Runs)

	return x.result, err
}

// findProgram finds the program of a command that can use a GPU.
func findProgram(host *machine.Host, c *Command) (path string, err error) {
	program := c.Argv[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		// Without a folder it would be looked for in PATH.
		program = cmp.Or(c.Dir, ".") + "/" + program
	}

	path, err = launch.FindCommand(program)
	if err != nil {
		return "", err
	}

	_, err = judge.Command(host, anyGPU, c.Argv, judge.Place{Many: true})

	return path, err
}

func (x *experimentRun) measureArms(ctx context.Context) error {
	err := x.prepareRuns(ctx)
	if err != nil {
		return err
	}

	return x.runTurns(ctx)
}

// coreExperiment is the experiment for its conclusion.
func (x *experimentRun) coreExperiment() *experiment.Experiment {
	e := &experiment.Experiment{Arms: x.request.Arms, Commands: len(x.request.Commands), Metrics: x.request.Metrics, Planned: x.request.Repeat}
	for i := range x.result.Devices {
		e.Models = append(e.Models, x.result.Devices[i].Name)
	}
	return e
}

// DieBySignal ends this process by the signal that ended an experiment.
func DieBySignal(sig os.Signal) { interrupt.DieBySignal(sig) }

// listenForSignals ends the context at a signal that asks this process to end. A stopped process would measure its own
// pause.
func (x *experimentRun) listenForSignals(parent context.Context) (ctx context.Context, heard func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	caught, first, again := interrupt.CatchSignals(), make(chan os.Signal, 1), make(chan struct{}, 1)
	x.again = again
	go func() {
		for ctx.Err() == nil {
			switch sig := <-caught.Signals; sig {
			case syscall.SIGCONT, nil:
			case syscall.SIGTSTP:
				x.host.Say("cannot be stopped while it measures; Ctrl-C ends it and shows what is there")
			default:
				first <- sig
				cancel()
			}
		}
		for sig := range caught.Signals {
			if sig != syscall.SIGCONT && sig != syscall.SIGTSTP {
				select {
				case again <- struct{}{}:
				default:
				}
			}
		}
	}()

	heard = func() os.Signal {
		select {
		case sig := <-first:
			return sig
		default:
			// The caller's context has ended.
			return syscall.SIGTERM
		}
	}

	return ctx, heard, func() {
		cancel()
		caught.Stop()
	}
}

// prepareRuns finds the places of all arms, and opens what the runs need.
func (x *experimentRun) prepareRuns(ctx context.Context) (err error) {
	x.experimentDevices, err = findPlaces(ctx, x.host, x.request)
	if err != nil {
		return err
	}

	x.result.Devices = x.devices
	draw := rand.New(rand.NewPCG(x.request.Seed, 0)) //nolint:gosec // repeatable on purpose
	x.turns = experiment.PlanTurns(x.request.Arms, len(x.request.Commands), x.request.Warmup, x.request.Repeat, draw.IntN)
	x.output, err = os.MkdirTemp("", "gpuard-compare-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the output of the commands: %w; name another one: TMPDIR=DIR", err)
	}

	x.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)

	return err
}

// runTurns runs all turns.
func (x *experimentRun) runTurns(ctx context.Context) error {
	// After the shares are settled: what measures them must not be adopted.
	x.tree = proctree.AdoptOrphans(x.crew.isAwaited, machine.IsOwnHelper, nil)
	defer func() {
		x.tree.StopReaping()
		_ = x.null.Close()
		if os.Remove(x.output) != nil {
			// Something is in it.
			x.result.Kept = x.output
		}
	}()

	told := map[experiment.Arm]bool{}
	for _, turn := range x.turns {
		run, err := x.runTurn(ctx, turn)
		if err != nil {
			return err
		}
		x.result.Runs = append(x.result.Runs, *run)
		if run.Problem != "" && !told[turn.Arm] {
			// The others are counted in the answer.
			told[turn.Arm] = true
			x.host.Say(fmt.Sprintf("a run of %s does not count: %s", turn.Arm, run.Problem))
		}
	}

	return nil
}

// showProgress tells how far the experiment is; the run that goes has lasted so long.
func (x *experimentRun) showProgress(arm experiment.Arm, lasted time.Duration) {
	done := len(x.result.Runs)
	p := Progress{Run: done + 1, Runs: len(x.turns), Arm: arm}
	if left := experiment.SecondsLeft(x.turns, x.result.Runs); left != nil {
		p.Left = new(max(time.Duration(*left*float64(time.Second))-lasted, 0))
	}
	x.show(p)
}

// Check refuses numbers that make no experiment.
func (r *Request) Check() error {
	switch {
	case len(r.Commands) < 2:
		return exit.Usagef("cannot compare one command: write two or more, such as gpuard compare -- python a.py --and -- python b.py; the same one twice is fine")
	case len(r.Commands) > 26:
		return exit.Usagef("cannot compare %d commands: 26 are the most", len(r.Commands))
	case r.Repeat < 1 || r.Repeat > 1000:
		return exit.Usagef("cannot run each arm %d times: write --repeat 5, or a number from 1 to 1000", r.Repeat)
	case r.Warmup < 0 || r.Warmup > 1000:
		return exit.Usagef("cannot leave out %d runs of each arm: write --warmup 1, or a number from 0 to 1000", r.Warmup)
	}
	for i := range r.Commands {
		if len(r.Commands[i].Argv) == 0 {
			return exit.Usagef("cannot run command %s: it is empty; write gpuard compare -- COMMAND --and -- COMMAND", experiment.CommandLetter(i))
		}
	}
	return nil
}
