package seecmd

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/simulate"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/sim"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

type simulateOptions struct {
	gpus, place, guess, csv, chart string
	policies                       []string
	every                          int
	json                           bool
}

// NewSimulateCommand makes gpuard simulate.
func NewSimulateCommand(p *cli.Program) *cobra.Command {
	o := &simulateOptions{}
	var policies []string
	about := ""
	for _, one := range sim.Policies() {
		policies = append(policies, one.Name)
		about += fmt.Sprintf("\n  %-11s%s", one.Name, one.About)
	}

	cmd := &cobra.Command{
		Use:   "simulate [flags] [TRACE]",
		Short: "Replay recorded jobs on other numbers of GPUs",
		Long: `Replays a record of jobs on invented machines: how long would each have waited,
and how much of the machine would have been in use? Without TRACE it takes the
leases that have ended here, else the jobs of your queue. TRACE is a file,
.gz or not, or - for standard input: columns as in the Philly trace, a list of
pods of openb, the answer of sacct -P with Submit, ElapsedRaw and AllocTRES (and
User, TimelimitRaw), or that of gpuard history --json. What is not in it and was
made up is said with the result.

Policies:` + about,
		Example: `  gpuard simulate                          how many GPUs do we need?
  gpuard simulate --gpus 4..16 jobs.csv.gz
  gpuard simulate --gpus 8 --policy own,fifo,easy jobs.csv
  sacct -aPo Submit,ElapsedRaw,AllocTRES | gpuard simulate -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return showSimulation(p, cmd, o, args) },
	}

	f := cmd.Flags()
	f.StringVar(&o.gpus, "gpus", "", "`NUMBER` of GPUs, such as 8 or 4,8 or 4..16 (default: usual ones, from the largest job on)")
	flagset.ListVar(f, &o.policies, "policy", []string{"own"}, "rules to compare, as a `LIST`")
	f.StringVar(&o.place, "place", "", "`HOW` devices are chosen: packed or spread (default: as gpuard run does)")
	f.StringVar(&o.guess, "time-guess", string(sim.GuessGiven), "`WHAT` is known of the time a job takes: given, none, rough or exact")
	f.IntVar(&o.every, "every", 1, "replay only the first of each `N` jobs")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.StringVar(&o.csv, "csv", "", "also write the results into `FILE`")
	f.StringVar(&o.chart, "chart", "", "also draw the results into `FILE`, an .svg or .png")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(policies, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("place", cobra.FixedCompletions([]string{"packed", "spread"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("time-guess", cobra.FixedCompletions([]string{"given", "none", "rough", "exact"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("gpus", cobra.FixedCompletions([]string{"4", "8", "4..16"}, flagset.NoFiles))

	return cmd
}

// simulateAnswer is the JSON answer of simulate.
type simulateAnswer struct {
	// "gpuard.simulate/1".
	Schema string      `json:"schema"`
	Trace  traceAnswer `json:"trace"` // what was replayed
	// What of it was made up, in words.
	Synthetic []string `json:"synthetic"`
	// The results of each number of GPUs with each policy.
	Results []sim.Result `json:"results"`
}

// traceAnswer is what was replayed.
type traceAnswer struct {
	// The file; "" gpuard's own records.
	From   string `json:"from"`
	Format string `json:"format"` // in words
	Jobs   int    `json:"jobs"`   // in it
	Users  int    `json:"users"`  // in it
	// The time from the first arrival to the last.
	Span float64 `json:"span_seconds"`
	// What was left out or changed, with counts.
	Remarks []string `json:"remarks"`
}

func showSimulation(p *cli.Program, cmd *cobra.Command, o *simulateOptions, args []string) error {
	r, err := o.readRequest()
	if err != nil {
		return err
	}

	var sizes []int
	if o.gpus != "" {
		sizes, err = numbersOf(o.gpus)
		if err != nil {
			return err
		}
	}

	if o.chart != "" && p.Views.Waits == nil {
		return p.BecomeView()
	}

	a := simulateAnswer{Schema: cli.SchemaOf(cmd)}
	if len(args) == 1 {
		a.Trace.From = args[0]
		r.Trace, err = simulate.OpenTrace(args[0], cmd.InOrStdin())
	} else {
		r.Trace, err = ownTrace(cmd.Context(), p)
	}

	if err != nil {
		return err
	}

	r.Machines, err = simulatedMachines(p, cmd, sizes, r.Trace.Jobs)
	if err != nil {
		return err
	}

	t := &r.Trace
	a.Trace.Format, a.Trace.Jobs, a.Trace.Users, a.Trace.Remarks = t.Format, len(t.Jobs), len(t.Users), append([]string{}, t.Remarks...)
	a.Trace.Span = time.Duration(t.Jobs[len(t.Jobs)-1].Arrival - t.Jobs[0].Arrival).Seconds()
	line, began := cli.NewProgressLine(p, o.json), time.Now()
	a.Results, err = simulate.ReplayTrace(cmd.Context(), r, func(done float64) {
		line.Show(func() string { return simulationProgress(began, done) })
	})

	line.Wipe()
	if err != nil {
		return err
	}

	a.Synthetic = simulate.SyntheticNotes(r)
	if err := writeSimulation(p, o, a.Results); err != nil {
		return err
	}

	return p.Show(o.json, a, func(v *console.Page) { simulationView(v, &a) })
}

// readRequest reads the flags that need no trace.
func (s *simulateOptions) readRequest() (*simulate.Request, error) {
	r := &simulate.Request{Place: job.Place(s.place), Guess: sim.Guess(s.guess), Every: s.every}
	if !slices.Contains([]job.Place{job.Auto, job.Packed, job.Spread}, r.Place) {
		return nil, failure.Usagef("cannot place %q: write --place packed or --place spread", s.place)
	}
	if s.every < 1 {
		return nil, failure.Usagef("cannot keep the first of each %d jobs: write --every 1 or more", s.every)
	}
	if err := sim.SetEstimates(nil, r.Guess, nil); err != nil {
		return nil, failure.Usagef("%v", err)
	}
	if err := cli.CheckChart(s.chart); err != nil {
		return nil, err
	}

	for _, name := range s.policies {
		all := sim.Policies()
		i := slices.IndexFunc(all, func(one sim.Policy) bool { return one.Name == name })
		if i < 0 {
			return nil, failure.Usagef("cannot replay by %q: gpuard simulate --help lists the policies", name)
		}
		r.Policies = append(r.Policies, all[i])
	}

	return r, nil
}

// simulatedMachines are those of --machine and --gpus: of the sizes, else the machine itself, else usual ones.
func simulatedMachines(p *cli.Program, cmd *cobra.Command, sizes []int, jobs []sim.Job) ([]gpu.Machine, error) {
	first, err := gpu.InventMachine("demo:1xA100-80GB")
	if p.Host.Machine != "" {
		first, err = p.Host.Read(cmd.Context(), gpu.Identity)
	}

	switch {
	case err != nil:
		return nil, err
	case len(first.Devices) == 0 || slices.ContainsFunc(first.Devices, func(d gpu.Device) bool { return d.UsesMIG() || d.MemoryTotal == nil && d.MainMemory == nil }):
		return nil, failure.Usagef("cannot simulate this machine: it needs whole GPUs with a known memory, such as --machine demo:8xH100")
	}

	switch {
	case len(sizes) > 0:
	case p.Host.Machine == "":
		sizes = simulate.UsualSizes(jobs)
	default:
		whole := simulate.SizedMachine(first, len(first.Devices))
		for i := range whole.Devices {
			to, from := &whole.Devices[i], first.Devices[i]
			to.Name, to.MemoryTotal, to.MemoryReserved, to.MainMemory, to.MainAvailable = from.Name, from.MemoryTotal, from.MemoryReserved, from.MainMemory, from.MainAvailable
		}
		return []gpu.Machine{whole}, nil
	}

	var machines []gpu.Machine
	for _, n := range sizes {
		machines = append(machines, simulate.SizedMachine(first, n))
	}

	return machines, nil
}

// numbersOf reads "8", "4,8" and "4..16".
func numbersOf(text string) (list []int, err error) {
	fail := failure.Usagef("cannot simulate %q GPUs: write a number from 1 to 64, several, such as 4,8, or a range, such as 4..16", text)
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "..")
		if !ranged {
			to = from
		}

		low, err := strconv.Atoi(from)
		high, also := strconv.Atoi(to)
		if err != nil || also != nil || low < 1 || high > 64 || low > high {
			return nil, fail
		}

		for n := low; n <= high; n++ {
			list = append(list, n)
		}
	}
	slices.Sort(list)

	return slices.Compact(list), nil
}

// ownTrace is what gpuard has recorded: the leases that have ended, else the jobs of the own queue.
func ownTrace(ctx context.Context, p *cli.Program) (simulate.Trace, error) {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	seen, err := observe.EndedLeases(ctx, p.Host)
	if err != nil {
		return simulate.Trace{}, err
	}

	// When they ended is not known.
	seen = slices.DeleteFunc(seen, func(e trend.EndedLease) bool { return e.Unseen })
	for i := range seen {
		if err := lines.Encode(seen[i]); err != nil {
			return simulate.Trace{}, err
		}
	}

	found := len(seen) > 0
	if !found {
		q, err := userqueue.Open(p.Host, false)
		if err != nil {
			return simulate.Trace{}, err
		}
		if q != nil {
			defer q.Close()
			list, err := q.List(userqueue.State.Over)
			if err != nil {
				return simulate.Trace{}, err
			}

			found = len(list) > 0
			if found {
				if err := lines.Encode(map[string][]userqueue.Entry{"jobs": list}); err != nil {
					return simulate.Trace{}, err
				}
			}
		}
	}

	if !found {
		return simulate.Trace{}, failure.Usagef("cannot simulate your own jobs: none is recorded; let gpuard serve run for some days, or name a trace: gpuard simulate FILE")
	}

	return simulate.ReadTrace(&text, "your own jobs")
}

// simulationProgress says how much is done of what began then, and when the end is expected.
func simulationProgress(began time.Time, done float64) string {
	left := time.Duration(float64(time.Since(began)) * (1 - done) / max(done, 1e-9))
	return fmt.Sprintf("%.0f %% replayed, about %s left", 100*done, console.ElapsedText(left))
}

// writeSimulation writes the files of --csv and --chart.
func writeSimulation(p *cli.Program, o *simulateOptions, results []sim.Result) error {
	if o.csv != "" {
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		_ = w.Write([]string{"gpus", "policy", "jobs", "too_large", "completion_mean_seconds", "completion_median_seconds", "wait_mean_seconds", "wait_p99_seconds", "wait_max_seconds", "wait_large_mean_seconds", "slowdown_mean", "allocated_ratio", "fragmented_ratio"})
		for i := range results {
			r := &results[i]
			row := []string{strconv.Itoa(r.GPUs), r.Policy, strconv.Itoa(r.Jobs), strconv.Itoa(r.TooLarge)}
			for _, v := range []*float64{r.CompletionMean, r.CompletionMedian, r.WaitMean, r.WaitP99, r.WaitMax, r.WaitLarge, r.Slowdown, r.Allocated, r.Fragmented} {
				row = append(row, numberCSV(v))
			}
			_ = w.Write(row)
		}

		w.Flush()
		if err := machine.WriteFile(o.csv, text.Bytes(), 0o666); err != nil {
			return fmt.Errorf("cannot write the results: %w", err)
		}
	}

	return cli.WriteChart(o.chart, func(png bool) ([]byte, error) { return p.Views.Waits(results, png, p.Host.Localize) })
}
