package batchcmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/run"
	sweeper "gpuard/internal/app/sweep"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/grid"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
)

type sweepOptions struct {
	spec                       jobflags.SpecFlags
	over                       []string
	csv, commands, resume, dir string
	care                       jobflags.CareFlags
	fallback                   string
	jobs, perGPU               int
	failed, dry, json, quiet   bool
}

const (
	sweepLong = `Runs COMMAND once for each combination of the values of --over, each line of a
CSV file, or each line of a file of commands, with a lease of its own for each
run: as many at a time as there are devices. A word such as {{.lr}} becomes the
value of that parameter, {{.Ordinal}} the number of the run, from 0. Each run
has its output in a log of its own, and GPUARD_SWEEP_RUN and GPUARD_SWEEP_DIR
in its environment. Finished runs are recorded: a sweep that was interrupted,
also by kill -9, continues with --resume DIR, and repeats none of them. While a
run runs it is looked after as by gpuard run (--timeout, --verify, --drift).

Exit codes: 0 all runs ended with 0, 1 some failed, 122 never on this machine,
125 gpuard failed or was used wrongly, 126 not executable, 127 not found.`

	sweepExample = `  gpuard sweep --over lr=0.1,0.01 --over s=1..5 -- python a.py {{.lr}} {{.s}}
  gpuard sweep --csv runs.csv --jobs-per-gpu 2 -- python train.py --lr {{.lr}}
  gpuard sweep --commands runs.txt --retry 2:any
  gpuard sweep --over part=0..1:0.25 --dry-run -- ./app --part {{.part}}
  gpuard sweep --resume gpuard-sweep-1`
)

// NewSweepCommand makes gpuard sweep.
func NewSweepCommand(p *cli.Program) *cobra.Command {
	o := &sweepOptions{}
	cmd := &cobra.Command{
		Use:   "sweep [flags] [--] [COMMAND [ARG...]]",
		Short: "Run a command many times, with different parameters",
		Long:  sweepLong, Example: sweepExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: p.CompletePrograms,
		RunE:              func(cmd *cobra.Command, args []string) error { return sweepWith(p, cmd, args, o) },
	}

	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.Add(p, cmd)
	o.spec.AddCommand(cmd)
	f.StringArrayVar(&o.over, "over", nil, "`NAME=VALUES` of a parameter: a list (0.1,0.01), ranges (1..10, 0..1:0.25), or both; each --over multiplies the runs")
	f.StringVar(&o.csv, "csv", "", "one run for each line of this `FILE`, whose first line names the parameters")
	f.StringVar(&o.commands, "commands", "", "one run for each line of this `FILE`, which is a command")
	f.StringVar(&o.resume, "resume", "", "continue the sweep in this folder, `DIR`")
	f.BoolVar(&o.failed, "failed", false, "with --resume: also repeat the runs that failed")
	f.StringVar(&o.dir, "dir", "", "`DIR` for logs and results (default gpuard-sweep-1, or the next number that is free)")
	f.IntVar(&o.jobs, "jobs", 0, "at most `N` runs at the same time (default: as many as fit; with --cpu one per processor)")
	f.IntVar(&o.perGPU, "jobs-per-gpu", 0, "`N` runs share a GPU: each gets an Nth of the memory that shares may use")
	f.StringVar(&o.fallback, "fallback", "", "`cpu`: run on the CPU where this machine can never give what is asked for; busy GPUs are waited for")
	o.care.AddLife(cmd)
	f.BoolVar(&o.dry, "dry-run", false, "only show what would be run, and where the first run would be placed")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object at the end")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only errors")
	jobflags.AddPrivateState(p, cmd)
	_ = cmd.RegisterFlagCompletionFunc("jobs-per-gpu", cobra.FixedCompletions([]string{"2", "3", "4", "8"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("fallback", cobra.FixedCompletions([]string{"cpu"}, flagset.NoFiles))
	for _, name := range []string{"over", "jobs"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}

	for _, name := range []string{"dir", "resume"} {
		_ = cmd.MarkFlagDirname(name)
	}

	return cmd
}

func sweepWith(p *cli.Program, cmd *cobra.Command, args []string, o *sweepOptions) error {
	if err := flagset.RefuseTogether(cmd, jobflags.SweepConflicts()); err != nil {
		return failure.AsUsage(err)
	}

	show := newSweepShow(p, o)
	if o.resume != "" {
		if flag := flagset.FlagBeside(cmd, "resume", "failed", "json", "quiet", "machine"); flag != "" {
			return failure.Usagef("cannot use --resume with --%s: the folder has the settings; to change them, write the whole command again with --dir DIR", flag)
		}
		if len(args) > 0 {
			return failure.Usagef("cannot use %q with --resume: the folder holds the command; to change it, begin another sweep", strings.Join(args, " "))
		}

		s, err := sweeper.Resume(p.Host, o.resume, show.sayBusy)
		if err == nil && o.failed {
			err = s.RetryFailed()
		}

		return conductSweep(p, cmd, s, o, show, err)
	}

	if err := jobflags.FillDefaults(p, cmd); err != nil {
		return err
	}

	q, err := sweepRequest(p, o, cmd, args)
	if err != nil {
		return failure.AsUsage(jobflags.LocateDefault(p, err))
	}

	if !o.quiet {
		jobflags.SayRule(p, false)
		jobflags.SayUnreadLines(p, cmd, args)
	}

	if o.dry {
		return previewSweep(p, cmd, q, o)
	}

	s, err := sweeper.Begin(p.Host, q, o.dir, show.sayBusy)

	return conductSweep(p, cmd, s, o, show, err)
}

// sweepRequest checks the flags and returns the sweep that they describe.
func sweepRequest(p *cli.Program, o *sweepOptions, cmd *cobra.Command, args []string) (q *sweeper.Request, err error) {
	q = &sweeper.Request{Command: args, Jobs: o.jobs, PerGPU: o.perGPU, ElseCPU: o.fallback == "cpu"}

	// The commands of all others are checked one by one, as they will be.
	var container []string
	if run.IsEngineCommand(args) {
		container = args
	}

	q.Spec, err = jobflags.ReadRequest(p, cmd, &o.spec, container)
	if err != nil {
		return nil, err
	}

	q.Spec.Command = nil
	if err := careOfRuns(p, o, cmd, q); err != nil {
		return nil, err
	}

	set := cmd.Flags().Changed
	switch {
	case o.failed:
		return nil, errors.New("cannot use --failed alone: it says which runs of a sweep are done again; add --resume DIR")
	case set("jobs") && o.jobs < 1:
		return nil, fmt.Errorf("cannot use --jobs %d: write 1 or more, or leave it out", o.jobs)
	case set("jobs-per-gpu") && (o.perGPU < 1 || o.perGPU > 64):
		return nil, fmt.Errorf("cannot run --jobs-per-gpu %d: write a number from 1 to 64", o.perGPU)
	case set("fallback") && o.fallback != "cpu":
		return nil, fmt.Errorf("cannot use --fallback %s: a sweep waits for GPUs; write --fallback cpu, or leave it out", o.fallback)
	case o.commands != "" && len(args) > 0:
		return nil, fmt.Errorf("cannot use %q with --commands: the file has the commands", strings.Join(args, " "))
	}

	switch {
	case o.csv != "":
		q.Grid, err = sweeper.ReadTable(o.csv)
	case o.commands != "":
		q.From = o.commands
		q.Grid, err = sweeper.ReadLines(o.commands)
	case len(o.over) > 0:
		q.Grid, err = grid.Product(o.over)
	default:
		err = errors.New("cannot tell what to run: name the parameters (--over seed=1..5), a table (--csv FILE), commands (--commands FILE), or a sweep to continue (--resume DIR)")
	}

	return q, err
}

// careOfRuns reads the flags that say how each run is looked after.
func careOfRuns(p *cli.Program, o *sweepOptions, cmd *cobra.Command, q *sweeper.Request) error {
	care, err := o.care.ReadFlags(cmd, &q.Spec)
	if err != nil {
		return err
	}

	one := q.Spec
	one.Command = q.Command
	if len(one.Command) == 0 {
		// Each line of a file is one.
		one.Command = []string{o.commands}
	}

	if err := o.care.ReadRanks(cmd, &one, false); err != nil {
		return err
	}

	q.Spec.Ranks = one.Ranks

	// The sweep starts it again.
	q.Notify, q.Grace, q.Retry = care.Notify, q.Spec.Grace, batchlog.Retry{Times: care.Retries, Any: care.Any}
	if isKept(cmd) {
		q.Care = keptCare(cmd, care)
	}

	q.Oversight, err = o.care.ReadVerifyLater(p, cmd)

	return err
}

// sweepPreview is the JSON answer of a dry run.
type sweepPreview struct {
	Schema string `json:"schema"` // "gpuard.sweep/1"
	// How many there would be.
	Runs int `json:"runs"`
	// The numbers of the runs in commands.
	Numbers []int `json:"numbers"`
	// The words of some runs, including the first and the last.
	Commands [][]string `json:"commands"`
	// Parameters that no word of the command uses.
	Unused []string `json:"unused"`
	Notes  []string `json:"notes"` // remarks
	// What the first run would get now.
	First job.Plan `json:"first"`
}

// previewSweep shows what would be run, and the devices that the first run would get now.
func previewSweep(p *cli.Program, cmd *cobra.Command, q *sweeper.Request, o *sweepOptions) error {
	most := 4
	if o.json {
		most = 100
	}

	runs, commands, unused, err := sweeper.PreviewRuns(p.Host, q, most)
	if err != nil {
		return err
	}

	if q.ElseCPU {
		q.Spec, err = claim.CPUIfImpossible(cmd.Context(), p.Host, q.Spec)
		if err != nil {
			return err
		}
	}

	if o.perGPU > 1 && !q.Spec.CPU {
		q.Spec.Share, err = claim.EqualShare(cmd.Context(), p.Host, q.Spec, o.perGPU)
		if err != nil {
			return err
		}
	}

	plan, err := claim.Decide(cmd.Context(), p.Host, q.Spec)
	var refusal *job.Refusal
	if err != nil && (!errors.As(err, &refusal) || refusal.Never) {
		return err
	}
	if o.json {
		return cli.WriteJSON(p.Out, sweepPreview{"gpuard.sweep/1", q.Grid.Len(), runs, commands, append([]string{}, unused...), append([]string{}, p.Remarks...), planview.WithLists(plan)})
	}

	fmt.Fprintf(p.Out, "%s:\n", prose.CountNoun(q.Grid.Len(), "run"))

	for i, run := range runs {
		if i > 0 && run > runs[i-1]+1 {
			fmt.Fprintln(p.Out, "  ...")
		}
		fmt.Fprintf(p.Out, "  %d: %s\n", run, console.CommandText(commands[i]))
	}

	if text := unusedText(unused); text != "" {
		fmt.Fprintln(p.Out, text)
	}

	if refusal != nil {
		fmt.Fprintln(p.Out, "The first run would wait:")
		planview.WriteRefusal(p.Out, refusal, p.Term(p.Out))
		return nil //nolint:nilerr // a sweep waits, so this is not an error
	}

	fmt.Fprintln(p.Out, "The first run would get now:")
	planview.WritePlan(p.Out, plan, p.Term(p.Out))

	return nil
}

// unusedText is the remark about parameters that the command does not use.
func unusedText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("no word of the command uses %s: write {{.%s}} where it belongs", strings.Join(names, ", "), names[0])
}
