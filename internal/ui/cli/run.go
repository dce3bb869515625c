package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/job"
)

type runOptions struct {
	spec                      specFlags
	dry, json, quiet, private bool
	noWait                    bool
}

func (p *Program) run() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] [--] [COMMAND [ARG...]]",
		Short: "Run a command on a GPU that is free, and lease it until the command ends",
		Long: `Chooses devices that really are free, leases them, sets the variables of every vendor and becomes COMMAND:
same process, terminal, signals and exit code as without gpuard. The lease ends with the command, also after kill -9.
Without COMMAND it starts your shell.`,
		Example: `  gpuard run -- python train.py
  gpuard run --gpus 2 --mem 40G -- torchrun --nproc-per-node 2 train.py
  gpuard run --device 3,0 -- ./app         the program's device 0 is GPU 3
  gpuard run --cpu -- pytest               no GPU at all
  gpuard run --dry-run                     what would be chosen, and why`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := o.spec.spec(cmd, args)
			if err != nil {
				return &failure{err, 125}
			}
			p.App.PrivateState = o.private
			if o.dry {
				err = p.dryRun(cmd, spec, o.json)
			} else {
				err = p.launch(cmd, spec, o)
			}
			if err != nil {
				return &failure{err, app.RunExit(err)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.add(cmd)
	f.BoolVar(&o.noWait, "no-wait", false, "answer at once (always so for now: nothing waits yet)")
	f.BoolVar(&o.dry, "dry-run", false, "only say what would be chosen, and why")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object (on standard error when a command runs)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say what was given")
	f.BoolVar(&o.private, "private-state", false, "lease inside a container although nobody outside sees it")
	return cmd
}

func (p *Program) launch(cmd *cobra.Command, spec job.Spec, o *runOptions) error {
	l, err := p.App.Prepare(cmd.Context(), spec)
	if err != nil {
		return p.refuse(err, o.json, "run")
	}
	switch {
	case o.json:
		data, err := l.JSON()
		if err != nil {
			return err
		}
		fmt.Fprintln(p.Err, string(data))
	case !o.quiet:
		for _, n := range l.Plan.Notes {
			fmt.Fprintln(p.Err, "gpuard: "+n)
		}
		fmt.Fprintln(p.Err, "gpuard: "+l.Announce())
	}
	return l.Exec()
}

// refuse shows a refusal as JSON where asked, in place of the text.
func (p *Program) refuse(err error, asJSON bool, command string) error {
	var refusal *job.Refusal
	if !asJSON || !errors.As(err, &refusal) {
		return err
	}
	data, jerr := json.Marshal(refusalJSON{"gpuard." + command + "/1", refusal})
	if jerr != nil {
		return jerr
	}
	fmt.Fprintln(p.Err, string(data))
	return &silent{refusal}
}

type refusalJSON struct {
	Schema string `json:"schema"`
	*job.Refusal
}

// silent is an error that was shown already.
type silent struct{ err error }

func (s *silent) Error() string { return s.err.Error() }
func (s *silent) Unwrap() error { return s.err }

// dryRun answers on standard output what run would answer now.
func (p *Program) dryRun(cmd *cobra.Command, spec job.Spec, asJSON bool) error {
	plan, err := p.App.Decide(cmd.Context(), spec)
	var refusal *job.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	switch {
	case asJSON && refusal != nil:
		err = errors.Join(writeJSON(p.Out, refusalJSON{"gpuard.run/1", refusal}), &silent{refusal})
	case asJSON:
		err = writeJSON(p.Out, struct {
			Schema string `json:"schema"`
			job.Plan
		}{"gpuard.run/1", plan})
	case refusal != nil:
		Refusal(p.Out, refusal, p.term(p.Out))
		err = &silent{refusal}
	default:
		Plan(p.Out, plan, p.term(p.Out))
	}
	return err
}
