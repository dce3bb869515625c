package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
)

type runOptions struct {
	spec             specFlags
	care             careFlags
	ranks            rankFlags
	wait             waitFlags
	dry, json, quiet bool
	ask              bool
	verify           string
	keepWhile, name  string
}

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

func (p *Program) run() *cobra.Command {
	o := &runOptions{}
	cmd := p.starting(o)
	cmd.Use, cmd.Short = "run [flags] [--] [COMMAND [ARG...]]", "Run a command on a free GPU, leased until it ends"
	cmd.Long, cmd.Example, cmd.ValidArgsFunction = runLong, runExample, p.programs
	o.add(p, cmd)
	addOption(cmd, "keep-while", &o.keepWhile)
	addAsk(cmd, &o.ask)
	return cmd
}

// starting is a command that leases and starts its arguments, with the flags that are for any of them.
func (p *Program) starting(o *runOptions) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, care, err := o.parse(p, cmd, args)
			if err == nil {
				err = o.keep(cmd, &spec, care, p.filling.most)
			}
			if err == nil {
				spec, err = p.askDevice(cmd, o.ask, spec)
			}
			if err != nil {
				return &failure{err, exit.Run(err)}
			}
			return p.runWith(cmd, spec, care, o)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Bool(alert, false, "also show errors in a window, for a start without a terminal")
	addOption(cmd, "name", &o.name)
	f.BoolVar(&o.dry, "dry-run", false, "only show what would be chosen, and why")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object (on standard error when a command runs)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only errors")
	return cmd
}

// add registers the flags for devices, waiting, supervision and ranks.
func (o *runOptions) add(p *Program, cmd *cobra.Command) {
	o.spec.add(p, cmd)
	o.wait.add(cmd)
	p.privateState(cmd)
	o.care.add(cmd)
	o.ranks.add(cmd)
	addOption(cmd, "verify", &o.verify)
}

// parse checks those flags except --verify, which needs the machine.
func (o *runOptions) parse(p *Program, cmd *cobra.Command, command []string) (spec job.Spec, care *job.Care, err error) {
	if err = p.fill(cmd); err != nil {
		return spec, nil, err
	}
	if err = refuseAssignment(cmd, command); err != nil {
		return spec, nil, err
	}
	if spec, err = p.request(cmd, &o.spec, command); err == nil {
		spec.Name, err = o.name, plainName(cmd, o.name)
	}
	if err == nil {
		spec.Waiting, err = o.wait.parse(p, cmd)
	}
	if err == nil {
		care, err = o.care.care(cmd, &spec, o.ranks.given(cmd))
	}
	if err == nil {
		err = o.ranks.parse(cmd, &spec, &o.care, o.json)
	}
	return spec, care, p.atDefault(err)
}

// plainName refuses a --name that would break the lines in which it is shown.
func plainName(cmd *cobra.Command, name string) error {
	if !cmd.Flags().Changed("name") || len(name) <= 64 && regexp.MustCompile(`^[\pL\pN._/:@+-]+$`).MatchString(name) {
		return nil
	}
	return fmt.Errorf("cannot use --name %q: write letters, digits and . _ / : @ + -, at most 64 bytes", name)
}

// keep reads --keep-while. A holder process keeps the lease then, so keep refuses flags for which gpuard stays with the
// command. most is the time limit of a rule; the holder enforces it.
func (o *runOptions) keep(cmd *cobra.Command, spec *job.Spec, care *job.Care, most time.Duration) error {
	spec.KeepWhile = o.keepWhile
	switch {
	case o.keepWhile == "":
		return nil
	case care != nil:
		return errors.New("cannot use --keep-while with --timeout, --retry, --log, --notify or --drift: gpuard is the parent of the command then, and the lease ends with gpuard; leave one of them out")
	case spec.Quota == job.MPS || spec.Require == job.MPS:
		return errors.New("cannot use --keep-while with --quota mps: the share's own daemon ends with the command; leave one of them out")
	}
	spec.Timeout = most
	return nil
}

func (p *Program) runWith(cmd *cobra.Command, spec job.Spec, care *job.Care, o *runOptions) error {
	if o.quiet && !o.json {
		p.Host.Say = func(string) {}
	}
	p.sayRule(o.dry)
	p.showStanding(o.quiet || o.json)
	watch, err := p.verifyFlag(cmd, o.verify)
	if err == nil && p.filling.ruled == "" { // a rule has its own refusal
		err = run.RefuseCare(spec.Command, care, watch != nil)
	}
	switch {
	case err != nil:
	case o.dry:
		err = p.dryRun(cmd, spec, o.json)
	default:
		err = p.launch(cmd, spec, o, watch, care)
	}
	if err != nil {
		return &failure{err, exit.Run(err)}
	}
	return nil
}

// started is the JSON answer of a run, written just before it becomes the command.
type started struct {
	Schema string `json:"schema"` // "gpuard.run/1"
	Lease  string `json:"lease"`  // "" for a job without a device, and for --dry-run
	PID    int    `json:"pid"`    // the command's; 0 for --dry-run
	job.Plan
	Ranks *ranks.Plan `json:"ranks,omitempty"` // of --torchrun and --ranks
}

func (p *Program) launch(cmd *cobra.Command, spec job.Spec, o *runOptions, watch *run.Oversight, care *job.Care) error {
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
		watch.JSON = o.json
	}
	l.Oversee(watch)
	if care != nil {
		return p.supervise(cmd, l, care, o)
	}
	switch {
	case o.json:
		err = p.announce(l, os.Getpid(), o)
	default:
		err = p.announce(l, 0, o)
	}
	if err != nil {
		return err
	}
	return l.Exec()
}

// withLists replaces nil lists, which JSON would write as null, with empty ones.
func withLists(plan job.Plan) job.Plan {
	plan.Devices = append([]job.Given{}, plan.Devices...)
	plan.Reasons = append([]job.Reason{}, plan.Reasons...)
	plan.Notes = append([]string{}, plan.Notes...)
	return plan
}

// dryRun writes on standard output what run would choose now.
func (p *Program) dryRun(cmd *cobra.Command, spec job.Spec, asJSON bool) error {
	inside := run.InContainer(spec.Command)
	if err := claim.RefuseContainer(spec, spec.Command); err != nil && !inside {
		return err
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
		p.refuse(p.Out, refusal)
		return &silent{refusal}
	}
	many := run.Ranks(p.Host, spec, plan)
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
	plan.Notes = append(p.filling.lines(), plan.Notes...)
	if asJSON {
		plan.Notes = append(p.said, plan.Notes...)
		return writeJSON(p.Out, started{Schema: "gpuard.run/1", Plan: withLists(plan), Ranks: many})
	}
	if many != nil {
		plan.Notes = append(plan.Notes, many.String())
	}
	Plan(p.Out, plan, p.term(p.Out))
	return nil
}
