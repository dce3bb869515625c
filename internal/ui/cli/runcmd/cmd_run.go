// Package runcmd has the commands that lease for a command or a shell: run, docker, podman, reserve, release, env.
package runcmd

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
)

const (
	runLong = `Chooses devices that really are free, leases them, sets the variables of every
vendor and becomes COMMAND: same process, terminal, signals and exit code as
without gpuard, except that most ignored signals are not passed on. The lease
ends with the command, also after kill -9. While no GPU is free it waits in
line, unless --no-wait or --fallback says otherwise. Without COMMAND it starts
your shell. Flags after COMMAND belong to COMMAND.

With --timeout, --retry, --log, --notify or --drift it stays as the parent of
COMMAND and says how it ended. With --torchrun or --ranks it starts one process
per GPU; they connect through a port of their own, and when one fails the others
are ended.

Exit codes of gpuard itself: 120 no device now (--no-wait), 121 --wait ran out,
122 never on this machine, 124 ended by --timeout, 125 gpuard failed or was used
wrongly, 126 not executable, 127 not found.`

	runExample = `  gpuard run -- python train.py
  gpuard run --gpus 2 --mem 40G --torchrun -- train.py --epochs 3
  gpuard run --gpus 4 --ranks=own -- ./solver   each process sees its own GPU
  gpuard run --device 3,0 -- ./app         the program's device 0 is GPU 3
  gpuard run --wait 10m -- ./app           at most ten minutes in line
  gpuard run --fallback cpu -- pytest      without a GPU when none is free
  gpuard run --cpu -- pytest               no GPU at all
  gpuard run --ask -- ./app                asks you for the GPU
  gpuard run --timeout 24h --retry 3 --log train.log -- python train.py
  gpuard run --dry-run                     what would be chosen, and why`
)

// NewRunCommand makes gpuard run.
func NewRunCommand(p *cli.Program) *cobra.Command {
	o := &jobflags.RunOptions{}
	cmd := makeRun(p, o)
	cmd.Use, cmd.Short = "run [flags] [--] [COMMAND [ARG...]]", "Run a command on a free GPU, leased until it ends"
	cmd.Long, cmd.Example, cmd.ValidArgsFunction = runLong, runExample, p.CompletePrograms
	o.Add(p, cmd)
	flagset.AddOption(cmd, "keep-while", &o.KeepWhile)
	jobflags.AddAsk(cmd, &o.Ask)

	return cmd
}

// makeRun is a command that leases and starts its arguments, with the flags that are for any of them.
func makeRun(p *cli.Program, o *jobflags.RunOptions) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, care, err := readRun(p, cmd, o, args)
			if err != nil {
				return err
			}

			return runWith(p, cmd, spec, care, o)
		},
	}

	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Bool(cli.AlertFlag, false, "also show errors in a window, for a start without a terminal")
	flagset.AddOption(cmd, "name", &o.Name)
	f.BoolVar(&o.Dry, "dry-run", false, "only show what would be chosen, and why")
	f.BoolVar(&o.JSON, "json", false, "answer as one JSON object (on standard error when a command runs)")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "print only errors")

	return cmd
}

// readRun reads what is to be run, and asks for the device where that is wanted.
func readRun(p *cli.Program, cmd *cobra.Command, o *jobflags.RunOptions, args []string) (job.Spec, *job.Care, error) {
	spec, care, err := o.Parse(p, cmd, args)
	if err != nil {
		return spec, care, err
	}

	err = o.ApplyKeepWhile(cmd, &spec, care, p.Defaults.Longest)
	if err != nil {
		return spec, care, err
	}

	spec, err = jobflags.AskDevice(p, cmd, o.Ask, spec)

	return spec, care, err
}

func runWith(p *cli.Program, cmd *cobra.Command, spec job.Spec, care *job.Care, o *jobflags.RunOptions) error {
	if o.Quiet && !o.JSON {
		p.Host.Say = func(string) {}
	}

	jobflags.SayRule(p, o.Dry)
	if !o.Quiet && !o.JSON {
		jobflags.SayUnreadLines(p, cmd, spec.Command)
	}

	p.ShowStanding(o.Quiet || o.JSON)
	watch, err := o.ReadVerify(p, cmd)
	if err == nil && p.Defaults.Rule == "" {
		// A rule has its own refusal.
		wall := spec.Isolate
		if p.Defaults.HasDefault("isolate") {
			// That is for jobs that can have it.
			wall = job.NoIsolation
		}
		err = run.RefuseCare(p.Host, spec, care, watch != nil, wall)
	}

	switch {
	case err != nil:
		return err
	case o.Dry:
		return dryRun(p, cmd, spec, o.JSON)
	}

	return launchRun(p, cmd, spec, o, watch, care)
}

// runAnswer is the JSON answer of a run, written just before it becomes the command.
type runAnswer struct {
	// "gpuard.run/1".
	Schema string `json:"schema"`
	// "" for a job without a device, and for --dry-run.
	Lease string `json:"lease"`
	// The command's; 0 for --dry-run.
	PID int `json:"pid"`
	job.Plan
	// The plan of --torchrun and --ranks.
	Ranks *ranks.Plan `json:"ranks,omitempty"`
}

func launchRun(p *cli.Program, cmd *cobra.Command, spec job.Spec, o *jobflags.RunOptions, watch *run.Oversight, care *job.Care) error {
	if care != nil && care.Log != "" {
		log, err := run.CheckLog(p.Host, care.Log)
		if err != nil {
			return err
		}
		defer log.Close() //nolint:errcheck // nothing was written
	}

	l, err := run.Prepare(cmd.Context(), p.Host, spec)
	if err != nil {
		return err
	}

	if watch != nil {
		watch.JSON = o.JSON
	}

	l.SetOversight(watch)
	if care != nil {
		return superviseRun(p, cmd, l, care, o)
	}

	switch {
	case o.JSON:
		err = announceRun(p, l, os.Getpid(), o)
	default:
		err = announceRun(p, l, 0, o)
	}

	if err != nil {
		return err
	}

	return l.Exec()
}

// dryRun writes on standard output what run would choose now.
func dryRun(p *cli.Program, cmd *cobra.Command, spec job.Spec, asJSON bool) error {
	inside := run.IsEngineCommand(spec.Command)
	if inside {
		// As for run.
		spec.Isolate = job.NoIsolation
	}

	plan, err := claim.Decide(cmd.Context(), p.Host, spec)
	var refusal *job.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return err
	}

	switch {
	case refusal != nil && asJSON:
		return refusal
	case refusal != nil:
		p.PrintRefusal(p.Out, refusal)
		return &failure.ShownError{Err: refusal}
	}

	many := run.PlanRanks(p.Host, spec, plan)
	if inside && refusal == nil {
		note, err := run.ShowContainer(cmd.Context(), p.Host, spec, plan)
		if err != nil {
			return err
		}
		plan.Notes = append(plan.Notes, note)
	}

	if many != nil {
		plan.Notes = append(plan.Notes, run.RankNotes(p.Host, spec, plan)...)
	}

	plan.Notes = append(p.Defaults.Lines(), plan.Notes...)
	if asJSON {
		plan.Notes = append(p.Remarks, plan.Notes...)
		return cli.WriteJSON(p.Out, runAnswer{Schema: "gpuard.run/1", Plan: planview.WithLists(plan), Ranks: many})
	}

	if many != nil {
		plan.Notes = append(plan.Notes, many.String())
	}

	planview.WritePlan(p.Out, plan, p.Term(p.Out))

	return nil
}
