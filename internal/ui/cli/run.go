package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/job"
)

type runOptions struct {
	spec             specFlags
	dry, json, quiet bool
	noWait           bool
	verify           string
}

func (p *Program) run() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] [--] [COMMAND [ARG...]]",
		Short: "Run a command on a GPU that is free, leased until it ends",
		Long: `Chooses devices that really are free, leases them, sets the variables of every
vendor and becomes COMMAND: same process, terminal, signals and exit code as
without gpuard, except that an ignored SIGPIPE, and most other ignored signals,
are not passed on. The lease ends with the command, also after kill -9.
Without COMMAND it starts your shell. Flags behind COMMAND belong to COMMAND.

Exit codes of gpuard itself: 120 no device now, 122 never on this machine,
125 gpuard failed or was used wrongly, 126 not executable, 127 not found.`,
		Example: `  gpuard run -- python train.py
  gpuard run --gpus 2 --mem 40G -- torchrun --nproc-per-node 2 train.py
  gpuard run --device 3,0 -- ./app         the program's device 0 is GPU 3
  gpuard run --cpu -- pytest               no GPU at all
  gpuard run --dry-run                     what would be chosen, and why`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: p.programs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := o.spec.spec(cmd, args)
			if err != nil {
				return &failure{err, 125}
			}
			p.App.NoWait = o.noWait
			if o.quiet && !o.json {
				p.App.Say = func(string) {}
			}
			watch, err := p.overseen(cmd, o)
			switch {
			case err != nil:
			case o.dry:
				err = p.dryRun(cmd, spec, o.json)
			default:
				err = p.launch(cmd, spec, o, watch)
			}
			if err != nil {
				return &failure{err, app.RunExit(err)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.add(p, cmd)
	f.BoolVar(&o.noWait, "no-wait", false, "answer at once; without it, memory of a job that just ended is waited for (10 s)")
	f.BoolVar(&o.dry, "dry-run", false, "only say what would be chosen, and why")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object (on standard error when a command runs)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors")
	p.privateState(cmd)
	f.StringVar(&o.verify, "verify", "", "watch for this `TIME[,stop]` whether it is on its GPU, and say so; stop ends it if not")
	f.Lookup("verify").NoOptDefVal = "30s"
	return cmd
}

// started is the JSON answer of a run, written just before it becomes the command.
type started struct {
	Schema string `json:"schema"` // "gpuard.run/1"
	Lease  string `json:"lease"`  // "" for a job without a device, and for --dry-run
	PID    int    `json:"pid"`    // gpuard's, and then the command's; 0 for --dry-run
	job.Plan
}

func (p *Program) launch(cmd *cobra.Command, spec job.Spec, o *runOptions, watch *app.Oversight) error {
	l, err := p.App.Prepare(cmd.Context(), spec)
	if err != nil {
		return err
	}
	if watch != nil {
		watch.JSON = o.json
	}
	l.Oversee(watch)
	switch {
	case o.json:
		l.Plan.Notes = append(p.said, l.Plan.Notes...)
		if err := lineJSON(p.Err, started{"gpuard.run/1", l.Lease, os.Getpid(), whole(l.Plan)}); err != nil {
			return err
		}
	case !o.quiet:
		for _, n := range l.Plan.Notes {
			fmt.Fprintln(p.Err, "gpuard: "+n)
		}
		fmt.Fprintln(p.Err, "gpuard: "+l.Announce())
	}
	return l.Exec()
}

// whole has lists where a job without a device has none.
func whole(plan job.Plan) job.Plan {
	plan.Devices = append([]job.Given{}, plan.Devices...)
	plan.Reasons = append([]job.Reason{}, plan.Reasons...)
	plan.Notes = append([]string{}, plan.Notes...)
	return plan
}

// dryRun answers on standard output what run would answer now.
func (p *Program) dryRun(cmd *cobra.Command, spec job.Spec, asJSON bool) error {
	plan, err := p.App.Decide(cmd.Context(), spec)
	var refusal *job.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	switch {
	case refusal != nil && asJSON:
		return refusal
	case refusal != nil:
		Refusal(p.Out, refusal, p.term(p.Out))
		return &silent{refusal}
	case asJSON:
		plan.Notes = append(p.said, plan.Notes...)
		return writeJSON(p.Out, started{Schema: "gpuard.run/1", Plan: whole(plan)})
	}
	Plan(p.Out, plan, p.term(p.Out))
	return nil
}
