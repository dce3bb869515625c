package seecmd

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/compare"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/projectfile"
)

type compareOptions struct {
	arms, metrics, device []string
	repeat, warmup        int
	seed                  uint64
	load, file            string
	csv, chart            string
	json                  bool
}

const (
	compareLong = `Runs the same commands in several placements on this machine, again and again,
and says what follows: medians, ratios with 95 % confidence intervals, and
whether a difference could be shown at all. The arms take turns in an order that
is drawn, and each run has leases of its own. The commands are called A, B, …

Arms: alone (one after the other, each on a GPU without the others), together
(all on one GPU), together:shares (each with an equal share of its memory),
together:mps (the same through MPS), apart (each on a GPU of its own), mig or
mig:PROFILE (each on a slice of one GPU). The first one is what the others are
compared with.

Besides time, load, memory, power and clocks it compares numbers that the
commands print: --metric NAME=REGEX takes the first group of the last match,
--metric NAME=json:KEY the key of the last JSON object on a line of its own.

Exit codes: 0 all runs count, 1 a command failed in some, 122 never on this
machine, 125 gpuard failed or was used wrongly, 126 not executable, 127 not
found.`

	compareExample = `  gpuard compare -- python a.py --and -- python b.py
  gpuard compare --arms together,apart --repeat 10 -- ./serve --and -- ./train
  gpuard compare --metric 'img/s=([0-9.]+) img/s' -- ./a --and -- ./b
  gpuard compare -f gpuard.yaml --load ./clients.sh llm image`
)

// commandSeparator is the word between two commands.
const commandSeparator = "--and"

// NewCompareCommand makes gpuard compare.
func NewCompareCommand(p *cli.Program) *cobra.Command {
	o := &compareOptions{}
	cmd := &cobra.Command{
		Use:   "compare [flags] -- COMMAND [ARG...] --and -- COMMAND [ARG...]",
		Short: "Compare speeds: one at a time, sharing, on own GPUs",
		Long:  compareLong, Example: compareExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: p.CompletePrograms,
		RunE:              func(cmd *cobra.Command, args []string) error { return compareWith(p, cmd, args, o) },
	}

	f := cmd.Flags()
	f.SetInterspersed(false)
	flagset.ListVar(f, &o.arms, "arms", []string{string(experiment.Alone), string(experiment.Together), string(experiment.Apart)}, "`LIST` of placements")
	f.IntVar(&o.repeat, "repeat", 5, "run each arm `N` times")
	f.IntVar(&o.warmup, "warmup", 1, "before that, `N` times without counting")
	f.Uint64Var(&o.seed, "seed", 1, "`NUMBER` from which the order of the runs is drawn")
	f.StringArrayVar(&o.metrics, "metric", nil, "a number that the commands print, `NAME=REGEX` or NAME=json:KEY; may be repeated")
	flagset.ListVar(f, &o.device, "device", nil, "`LIST` of the GPUs to use, as for gpuard run (default: those that it would take)")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object at the end")
	f.StringVar(&o.load, "load", "", "for servers: a shell `COMMAND` that uses one of them, named in GPUARD_COMPARE, while it runs; metrics are what it prints")
	f.StringVarP(&o.file, "file", "f", "", "with --load: compare services of this `FILE`, such as gpuard.yaml; write the names of the services in place of the commands")
	f.StringVar(&o.csv, "csv", "", "also write all runs into `FILE`")
	f.StringVar(&o.chart, "chart", "", "also draw the medians into `FILE`, an .svg or .png")
	jobflags.AddPrivateState(p, cmd)
	var arms []string
	for _, arm := range experiment.Arms() {
		arms = append(arms, string(arm))
	}

	_ = cmd.RegisterFlagCompletionFunc("arms", cobra.FixedCompletions(arms, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("repeat", cobra.FixedCompletions([]string{"5", "10", "20"}, flagset.NoFiles))
	for _, name := range []string{"warmup", "seed", "metric"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}

	return cmd
}

// compareAnswer is the JSON answer of compare.
type compareAnswer struct {
	Schema string `json:"schema"` // "gpuard.compare/1"
	// The commands in the order they were given.
	Commands []comparedCommand `json:"commands"`
	// That were used, without MIG slices.
	GPUs []comparedGPU `json:"gpus"`
	// Runs of each arm that were asked for.
	Repeat int `json:"repeat"`
	// Runs of each arm before those.
	Warmup int    `json:"warmup"`
	Seed   uint64 `json:"seed"` // of the order
	// false: it was interrupted.
	Complete bool `json:"complete"`
	// What follows, in words.
	Conclusion []string `json:"conclusion"`
	// What makes that doubtful.
	Warnings []string `json:"warnings"`
	// The first is what the others are compared with.
	Arms []experiment.Summary `json:"arms"`
	// Each one in each arm.
	Quantities []experiment.Quantity `json:"quantities"`
	// All, in the order they were made.
	Runs []experiment.Run `json:"runs"`
	// Folder with what failed commands printed; "" there is none.
	Outputs string   `json:"outputs"`
	Notes   []string `json:"notes"` // remarks
}

// comparedCommand is one command.
type comparedCommand struct {
	Command string `json:"command"` // its letter
	// Its name in the gpuard.yaml; "" it is none.
	Service string   `json:"service"`
	Argv    []string `json:"argv"`
}

// comparedGPU is one GPU.
type comparedGPU struct {
	UUID gpu.UUID `json:"uuid"`
	Name string   `json:"name"`
}

func compareWith(p *cli.Program, cmd *cobra.Command, args []string, o *compareOptions) error {
	if err := jobflags.FillDefaults(p, cmd); err != nil {
		return err
	}

	r := &compare.Request{Warmup: o.warmup, Repeat: o.repeat, Seed: o.seed, Devices: o.device, Load: o.load}
	var err error
	if o.file != "" {
		r.Commands, err = comparedServices(p, o, args)
	} else {
		r.Commands = splitCommands(args)
	}

	if err != nil {
		return err
	}
	if err := o.readFlags(r); err != nil {
		return failure.AsUsage(jobflags.LocateDefault(p, err))
	}

	for flag, path := range map[string]string{"csv": o.csv, "chart": o.chart} {
		if path == "" {
			continue
		}
		if err := jobflags.CheckWritable(flag, path, path); err != nil {
			// Better now than after an hour.
			return failure.AsUsage(err)
		}
	}

	if o.chart != "" && p.Views.Compared == nil {
		return p.BecomeView()
	}

	line := cli.NewProgressLine(p, o.json)
	got, broken := compare.Run(cmd.Context(), p.Host, r, func(now compare.Progress) {
		line.Show(func() string { return compareProgress(now) })
	})

	line.Wipe()
	if broken != nil && len(got.Runs) == 0 {
		return broken
	}

	a := newCompareAnswer(cmd, o, r, got)
	a.Notes = append(a.Notes, p.Remarks...)
	a.Complete = a.Complete && broken == nil
	if broken != nil && o.json {
		a.Notes = append(a.Notes, broken.Error())
	}

	if err := showCompared(p, o, a); err != nil {
		return err
	}

	switch {
	case broken != nil && o.json:
		return &failure.CodedError{Err: &failure.ShownError{Err: broken}, Code: exit.RunCode(broken)}
	case broken != nil:
		return broken
	}

	if got.Interrupted != nil {
		compare.DieBySignal(got.Interrupted)
	}

	if slices.ContainsFunc(got.Runs, func(run experiment.Run) bool { return run.Problem != "" }) {
		return &failure.CodedError{Err: &failure.ShownError{Err: errors.New("some runs do not count")}, Code: 1}
	}

	return nil
}

// splitCommands are the commands between the words --and, each of which may be followed by --.
func splitCommands(args []string) (list []compare.Command) {
	add := func(argv []string) {
		list = append(list, compare.Command{Name: experiment.CommandLetter(len(list)), Argv: argv})
	}
	for len(args) > 0 {
		end := slices.Index(args, commandSeparator)
		if end < 0 {
			add(args)
			break
		}

		add(args[:end])
		args = args[end+1:]
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}

		if len(args) == 0 {
			add(nil)
		}
	}
	return list
}

// comparedServices are services of a gpuard.yaml. Where they run is what is compared, so their own flags do not count.
func comparedServices(p *cli.Program, o *compareOptions, names []string) (list []compare.Command, err error) {
	if o.load == "" {
		return nil, failure.Usagef("cannot compare services without --load: they do not end by themselves; add --load 'COMMAND', which uses the service named in GPUARD_COMPARE and ends")
	}

	project, err := projectfile.LoadProject(p, o.file)
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		_, one, err := projectfile.ProjectsOf(p).Instance(project, name)
		if err != nil {
			return nil, err
		}
		if len(one.Command) == 0 {
			return nil, failure.Usagef("cannot compare service %s: it has several instances; name services with one", name)
		}

		c := compare.Command{Name: name, Argv: one.Command, Dir: one.WorkDir}
		for _, pair := range one.Env {
			name, value, _ := strings.Cut(pair, "=")
			c.Env = append(c.Env, visible.Var{Name: name, Value: value})
		}

		list = append(list, c)
	}

	return list, nil
}

// readFlags reads the flags, and checks what they and the commands are.
func (c *compareOptions) readFlags(r *compare.Request) (err error) {
	if err := r.Check(); err != nil {
		return err
	}
	if err := jobflags.RefuseRange("device", c.device); err != nil {
		return err
	}

	r.Arms, err = experiment.ParseArms(c.arms)
	if err != nil {
		return err
	}

	for _, text := range c.metrics {
		m, err := experiment.ParseMetric(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.Metrics, func(other experiment.Metric) bool { return other.Name == m.Name }) {
			return failure.Usagef("cannot use two metrics that are called %s: give each a name of its own", m.Name)
		}
		r.Metrics = append(r.Metrics, m)
	}

	return cli.CheckChart(c.chart)
}

func newCompareAnswer(cmd *cobra.Command, o *compareOptions, r *compare.Request, got *compare.Result) *compareAnswer {
	a := &compareAnswer{Schema: cli.SchemaOf(cmd), Commands: []comparedCommand{}, GPUs: []comparedGPU{}, Repeat: o.repeat, Warmup: o.warmup, Seed: o.seed, Complete: got.Interrupted == nil,
		Conclusion: got.Answer.Conclusion, Warnings: got.Answer.Warnings, Arms: got.Answer.Arms, Quantities: got.Answer.Quantities, Runs: got.Runs, Outputs: got.Kept, Notes: []string{}}
	for i, c := range r.Commands {
		one := comparedCommand{Command: experiment.CommandLetter(i), Argv: c.Argv}
		if one.Command != c.Name {
			one.Service = c.Name
		}
		a.Commands = append(a.Commands, one)
	}
	for i := range got.Devices {
		a.GPUs = append(a.GPUs, comparedGPU{got.Devices[i].UUID, got.Devices[i].Name})
	}

	return a
}

// compareProgress says which run goes, and when the end is expected.
func compareProgress(now compare.Progress) string {
	text := fmt.Sprintf("run %d of %d (%s)", now.Run, now.Runs, now.Arm)
	if now.Left != nil {
		text += ", about " + console.ElapsedText(*now.Left) + " left"
	}
	return text
}

// showCompared writes the answer, and then the files of --csv and --chart: the measuring took long, so a file that
// cannot be written must not lose the rest.
func showCompared(p *cli.Program, o *compareOptions, a *compareAnswer) error {
	err := p.Show(o.json, a, func(v *console.Page) { comparedView(v, a) })
	if err != nil {
		return err
	}

	if o.csv != "" {
		err := machine.WriteFile(o.csv, comparedCSV(a), 0o666)
		if err != nil {
			return &failure.CodedError{Err: fmt.Errorf("cannot write the runs: %w", err), Code: 1}
		}
	}

	err = cli.WriteChart(o.chart, func(png bool) ([]byte, error) { return p.Views.Compared(a.Quantities, png, p.Host.Localize) })
	if err != nil {
		return &failure.CodedError{Err: err, Code: 1}
	}

	return nil
}

// comparedCSV has a line for each command of each run.
func comparedCSV(a *compareAnswer) []byte {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	head := []string{"arm", "round", "problem", "command", "seconds", "company_ratio", "memory_bytes", "run_seconds", "run_load_ratio", "run_memory_bytes", "run_power_watts", "run_energy_joules", "run_clock_mhz", "run_throttled_ratio"}
	var metrics []string
	for i := range a.Quantities {
		if q := &a.Quantities[i]; !slices.Contains(metrics, q.Name) && q.Metric {
			metrics = append(metrics, q.Name)
		}
	}

	_ = w.Write(append(head, metrics...))
	for i := range a.Runs {
		run := &a.Runs[i]
		for c := range run.Commands {
			one := &run.Commands[c]
			row := []string{string(run.Arm), strconv.Itoa(run.Round), run.Problem, one.Command, numberCSV(&one.Seconds), numberCSV(one.Company), bytesCSV(one.Memory), numberCSV(&run.Seconds),
				numberCSV(run.Use.Load), bytesCSV(run.Use.Memory), numberCSV(run.Use.Power), numberCSV(run.Use.Energy), numberCSV(run.Use.Clock), numberCSV(run.Use.Throttled)}
			for _, name := range metrics {
				row = append(row, numberCSV(one.Value(name)))
			}
			_ = w.Write(row)
		}
	}

	w.Flush()

	return text.Bytes()
}

// numberCSV is empty for what is absent.
func numberCSV(v *float64) string {
	return prose.ValueOr(v, "", func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) })
}

func bytesCSV(v *gpu.Bytes) string {
	return prose.ValueOr(v, "", func(n gpu.Bytes) string { return strconv.FormatInt(int64(n), 10) })
}
