// Package batchcmd has the commands about jobs that wait: submit, queue, wait, sweep, history, and export for other
// schedulers.
package batchcmd

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/run"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/container"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

type submitOptions struct {
	spec jobflags.SpecFlags
	batchFlags
	engineFlags
	json, quiet bool
}

// NewSubmitCommand makes gpuard submit.
func NewSubmitCommand(p *cli.Program) *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit [flags] [--] COMMAND [ARG...]",
		Short: "Run it later, when a GPU is free, also after a logout",
		Long: `Puts COMMAND into your queue and returns. It will run in this folder, with the
environment that this shell has now, on a GPU that is leased for it. Its output
goes to the file that is named. Between users the line is that of gpuard run:
nobody gets ahead by handing in more jobs.

While it runs it is looked after as by gpuard run: --timeout, --verify, --drift,
--ranks and the like. What gpuard says of it is in its log.

With --engine the job goes to another scheduler, and has a number of this queue
all the same: queue, logs, wait and cancel know it.

Exit codes: 0 the job is on the disk, 125 gpuard failed or was used wrongly, 126
not executable, 127 not found.`,
		Example: `  gpuard submit --gpus 2 -- python train.py
  gpuard submit --after 17 -- python eval.py     when job 17 has ended with 0
  gpuard submit --array 1-20%4 -- ./one.sh       20 jobs, 4 at a time; each has
                                                 its $GPUARD_ARRAY_TASK
  gpuard submit ./train.sh                       with lines "#GPUARD --gpus 2"
  id=$(gpuard submit -q -- ./train.sh)           only the number
  gpuard submit --engine slurm --gpus 2 -- python train.py
  gpuard submit --engine slurm -f gpuard.yaml train
  gpuard submit -f gpuard.yaml train             a service that ends, here or on
                                                 its own engine
  gpuard submit --engine kubernetes --image train:1 -- python train.py
  gpuard queue                                   what runs and what waits
  gpuard logs -f 17`,
		ValidArgsFunction: p.CompletePrograms,
		RunE:              func(cmd *cobra.Command, args []string) error { return submitWith(p, cmd, o, args) },
	}

	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.Add(p, cmd)
	o.spec.AddCommand(cmd)
	o.addBatchFlags(cmd)
	o.addEngineFlags(cmd)
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the number of the job")
	jobflags.AddPrivateState(p, cmd)

	return cmd
}

// submitAnswer is the JSON answer of submit.
type submitAnswer struct {
	Schema string `json:"schema"` // "gpuard.submit/1"
	// Its number; of --array, that of the first.
	Job int `json:"job"`
	// How many they are; their numbers follow each other.
	Jobs int `json:"jobs"`
	// File for the output of the first.
	Log string `json:"log"`
	// That it was handed to, such as "slurm"; "" this machine.
	Engine string `json:"engine"`
	// What the engine calls the first; "" on this machine.
	ID string `json:"engine_job"`
	// The answer of the engine to --dry-run; nothing was handed in.
	Test string `json:"test"`
}

func submitWith(p *cli.Program, cmd *cobra.Command, o *submitOptions, args []string) error {
	if len(args) == 0 {
		return failure.Usagef("cannot queue nothing: write a command, such as gpuard submit -- python train.py")
	}

	lines, err := scriptFlags(p, cmd, o.file, args)
	if err != nil {
		return failure.AsUsage(err)
	}

	if err := flagset.RefuseAssignment(cmd, args); err != nil {
		return failure.AsUsage(err)
	}

	scheduler, err := engineOf(p, cmd, &o.engineFlags, args[0])
	if err != nil {
		return err
	}

	if scheduler != nil {
		return handIn(p, cmd, scheduler, o, lines, args)
	}

	lines.sayTo(p, nil)

	if o.file != "" {
		words, err := serviceJob(p, cmd, o, args)
		if err != nil {
			return failure.AsUsage(err)
		}
		args = words
	}

	return submitHere(p, cmd, o, args)
}

// submitHere puts the job into the queue of this machine.
func submitHere(p *cli.Program, cmd *cobra.Command, o *submitOptions, args []string) error {
	if err := jobflags.FillDefaults(p, cmd); err != nil {
		return err
	}

	what, j, err := jobOf(p, cmd, o, args)
	if err != nil {
		return failure.AsUsage(jobflags.LocateDefault(p, err))
	}

	tasks, most, err := arrayTasks(o.array, o.care.Log())
	if err != nil {
		return failure.AsUsage(err)
	}

	if !j.Spec.StartsTorchrun() {
		j.Path, err = userqueue.FindProgram(args[0])
		if err != nil {
			return err
		}
	}

	q, err := userqueue.Open(p.Host, len(what.After) == 0)
	switch {
	case err != nil:
		return err
	case q == nil:
		return exit.Usagef("cannot wait for job %d: you have handed in none", what.After[0].Run+1)
	}

	defer q.Close()
	if err := mayQueue(cmd.Context(), p, j.Spec); err != nil {
		return err
	}
	if err := queueRoom(p, q, max(1, len(tasks))); err != nil {
		return err
	}

	number, logs, err := q.Submit(what, j, p.Host.Env, tasks, most)

	for _, line := range q.OddLines() {
		p.Host.Say(line)
	}

	if err == nil && !what.Held && !q.HasKeeper() {
		// One that is held starts nothing.
		err = q.StartKeeper()
	}

	if err != nil {
		return err
	}

	return saySubmitted(p, cmd, o, number, logs)
}

// saySubmitted says the number of a job of this machine, or those of an array.
func saySubmitted(p *cli.Program, cmd *cobra.Command, o *submitOptions, number int, logs []string) error {
	switch {
	case o.json:
		return cli.WriteJSON(p.Out, submitAnswer{Schema: cli.SchemaOf(cmd), Job: number, Jobs: len(logs), Log: logs[0]})
	case o.quiet:
		_, err := fmt.Fprintln(p.Out, number)
		return err
	case len(logs) > 1 || o.array != "":
		return p.Answer("jobs %d-%d are queued; the output of the first: %s", number, number+len(logs)-1, logs[0])
	}
	return p.Answer("job %d is queued; its output: %s", number, logs[0])
}

// refuseInQueue refuses a container that would outlive its job, or whose GPUs depend on what it is when it is started.
func refuseInQueue(p *cli.Program, spec job.Spec, care *job.Care, verified bool) error {
	if !run.IsEngineCommand(spec.Command) {
		return nil
	}
	call, err := container.ReadCall(spec.Command)
	switch {
	case err != nil:
		return fmt.Errorf("cannot read the command line of %s: %w; see: %[1]s --help", spec.Command[0], err)
	case call.StartsContainer() && (call.Verb != "run" || call.Compose != nil):
		return fmt.Errorf("cannot queue this command of %s: of containers a queue starts those of %[1]s run alone; write that, or start it now: gpuard %[1]s -- …", call.Engine)
	case call.StartsContainer() && !call.IsAttached():
		return fmt.Errorf("cannot queue a container in the background: its job would be over while it runs; write %s run without --detach", call.Engine)
	}

	return run.RefuseCare(p.Host, spec, care, verified, job.NoIsolation)
}

// jobOf checks the flags and returns the job that they describe.
func jobOf(p *cli.Program, cmd *cobra.Command, o *submitOptions, args []string) (what batchlog.Job, j userqueue.Job, err error) {
	spec, err := jobflags.ReadRequest(p, cmd, &o.spec, args)
	if err != nil {
		return what, j, err
	}

	j.Folder, err = thisFolder()
	if err != nil {
		return what, j, err
	}

	care, err := o.careOf(cmd, &spec)
	if err != nil {
		return what, j, err
	}

	spec.Waiting, err = o.wait.Parse(p, cmd)
	if err != nil {
		return what, j, err
	}

	j.Fallback = spec.Waiting.Fallback
	if slices.Equal(j.Fallback, []string{"other"}) {
		// A job of the queue waits for its turn.
		j.Fallback = append(j.Fallback, "wait")
	}

	err = refuseInQueue(p, spec, care, o.care.Verify != "")
	if err != nil {
		return what, j, err
	}

	what.Time, spec.Time = spec.Time, 0
	if isKept(cmd) || run.IsEngineCommand(args) {
		// An engine is told of its GPUs at the start.
		j.Care = keptCare(cmd, care)
	}

	j.Oversight, err = o.care.ReadVerifyLater(p, cmd)
	if err != nil {
		return what, j, err
	}

	// The queue starts it again.
	what.Retry = batchlog.Retry{Times: care.Retries, Any: care.Any}
	if care.Log != "" {
		j.Log, err = filepath.Abs(care.Log)
		if err != nil {
			return what, j, err
		}
		if err := jobflags.CheckWritable("log", j.Log, care.Log); err != nil {
			return what, j, err
		}
	}

	what.After, err = parseAfter(o.after)
	if err != nil {
		return what, j, err
	}

	spec.Name = o.name
	j.Command, j.Spec, j.Note, j.Notify, j.Private = args, spec, o.note, care.Notify, p.Host.PrivateState
	j.Limits = userqueue.CallerLimits()
	j.Umask = syscall.Umask(0)
	syscall.Umask(j.Umask)
	j.Machine, err = machineOf(p)
	if err != nil {
		return what, j, err
	}

	what.Name, what.Nice, what.Held, what.CPU, what.Kind, what.GPUs = machine.JobName(spec), o.nice, o.hold, spec.CPU, userqueue.CommandHash(args), pick.DeviceCount(spec)

	return what, j, nil
}
