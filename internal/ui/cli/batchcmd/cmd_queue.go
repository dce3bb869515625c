package batchcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/planview"
)

// NewQueueCommand makes gpuard queue and the commands below it.
func NewQueueCommand(p *cli.Program) *cobra.Command {
	o := &queueOptions{}
	cmd := &cobra.Command{
		Use:   "queue [flags]",
		Short: "Show your jobs that run or wait; hold, requeue, pause",
		Long: `Shows the jobs of gpuard submit that run or wait, why the first waits, when each
may start, and what else waits for a GPU. The times are estimates: of --expect,
else of the last runs of the same command, else of those of the queue. gpuard
history shows jobs that have ended. If the processes that run your queue were
killed, or the machine was started again, it starts them.`,
		Example: `  gpuard queue
  gpuard queue --watch                     again every 2 seconds
  gpuard queue --json                      for scripts
  gpuard queue hold 17                     do not start it for now
  gpuard queue unhold 17
  gpuard queue pause                       start nothing before queue resume
  gpuard queue requeue 12                  again, after a failure`,
		Args: flagset.IntervalArgument(&o.watch),
		RunE: func(cmd *cobra.Command, _ []string) error { return showQueues(p, cmd, o) },
	}

	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVar(&o.mine, "mine", false, "only your own jobs")
	f.StringVar(&o.watch, "watch", "", "show it again after each `TIME`, such as 1s, until Ctrl-C")
	f.Lookup("watch").NoOptDefVal = flagset.EveryTwoSeconds
	cmd.AddCommand(pauseQueue(p, "pause", "Start no more jobs for now; what runs goes on", "no more jobs are started; again: gpuard queue resume"),
		pauseQueue(p, "resume", "Start jobs again after queue pause", "jobs are started again"), askQueue(p, "hold", "Do not start jobs for now", batchlog.Hold, "held"), askQueue(p, "unhold", "Let held jobs start again", batchlog.Unhold, "unheld"),
		askQueue(p, "requeue", "Run jobs again that failed, were lost or cancelled", batchlog.Again, "queued again"))

	return cmd
}

// queueOptions are the flags of queue.
type queueOptions struct {
	json, mine bool
	watch      string
}

func pauseQueue(p *cli.Program, name, short, done string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: short + ".", Example: "  gpuard queue " + name, Args: flagset.NoArguments, RunE: func(*cobra.Command, []string) error {
		q, err := userqueue.Open(p.Host, true)
		if err != nil {
			return err
		}

		defer q.Close()
		if err := q.Pause(name == "pause"); err != nil {
			return err
		}

		_ = p.Answer("%s", done)

		return ReviveQueue(p, q)
	}}
}

// showQueues shows the queue once, or again and again.
func showQueues(p *cli.Program, cmd *cobra.Command, o *queueOptions) error {
	if o.watch == "" {
		return showQueue(p, cmd, o)
	}
	if o.json {
		return failure.Usagef("cannot use --watch with --json: leave one of them out")
	}

	every, err := flagset.ReadInterval(o.watch)
	if err != nil {
		return failure.AsUsage(err)
	}

	return console.Repeat(cmd.Context(), every, nil, func() error {
		if p.Term(p.Out).TTY {
			fmt.Fprint(p.Out, "\x1b[H\x1b[2J")
		}
		return showQueue(p, cmd, o)
	})
}

// askQueue is a command that asks for something for some jobs.
func askQueue(p *cli.Program, name, short string, kind batchlog.Kind, done string) *cobra.Command {
	return &cobra.Command{
		Use: name + " JOB...", Short: short, Long: short + ".\nJOB is the number that gpuard submit and gpuard queue show. Either all are\n" + done + " or none. Of a range, such as 17-36, it is those that can be.",
		Example:           strings.ReplaceAll("  gpuard queue NAME 17\n  gpuard queue NAME 17 18 19\n  gpuard queue NAME 20-39", "NAME", name),
		ValidArgsFunction: CompleteJobs(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return AskJobs(cmd.Context(), p, args, kind, done) },
	}
}

// AskJobs asks for something for some jobs, and says so.
func AskJobs(ctx context.Context, p *cli.Program, args []string, kind batchlog.Kind, done string) error {
	if _, err := JobNumbers(args); err != nil {
		return err
	}

	q, err := OpenQueue(p)
	if err != nil {
		return err
	}

	defer q.Close()
	numbers, err := possibleJobs(q, kind, args)
	if err != nil {
		return err
	}

	state, err := q.Read()
	if err != nil {
		return err
	}

	runs := state.RunsIn(batchlog.Begun, batchlog.Running)
	err = q.Ask(ctx, kind, numbers...)
	var wrong *exit.Usage
	switch {
	case errors.As(err, &wrong) && len(numbers) > 1:
		// It is asked of all or of none.
		return failure.Usagef("%v; nothing was %s", err, done)
	case err != nil:
		return err
	}

	for _, n := range numbers {
		text := done
		if kind == batchlog.Cancel && slices.Contains(runs, n-1) {
			text = "being ended"
		}
		_ = p.Answer("job %d is %s", n, text)
	}

	return ReviveQueue(p, q)
}

// possibleJobs are the jobs of these words; of a range, those that this can be asked of.
func possibleJobs(q *userqueue.Queue, kind batchlog.Kind, args []string) (all []int, err error) {
	for _, word := range args {
		list, err := JobNumbers([]string{word})
		if err != nil {
			return nil, err
		}

		var can []int
		for _, n := range list {
			if q.CheckRequest(kind, n) == nil {
				can = append(can, n)
			}
		}

		if len(list) > 1 && len(can) > 0 {
			list = can
		}

		all = append(all, list...)
	}
	return all, nil
}

// OpenQueue opens the queue of this user, which has to be there.
func OpenQueue(p *cli.Program) (*userqueue.Queue, error) {
	q, err := userqueue.Open(p.Host, false)
	if err == nil && q == nil {
		err = exit.Usagef("cannot find a job: you have handed in none; see: gpuard submit --help")
	}
	return q, err
}

// ReviveQueue starts the keeper of the queue where it is missing and something is to be done.
func ReviveQueue(p *cli.Program, q *userqueue.Queue) error {
	state, err := q.Read()
	if err != nil || q.HasKeeper() || !state.HasStartable() && state.Count.Running == 0 {
		return err
	}
	return q.StartKeeper()
}

// JobNumbers reads numbers and ranges of jobs, such as 17 and 20-39.
func JobNumbers(args []string) (list []int, err error) {
	if len(args) == 0 {
		return nil, failure.Usagef("cannot tell which job: write its number, such as 17; see: gpuard queue")
	}
	for _, word := range args {
		some, err := parseNumbers(word, mostTasks)
		if err != nil || some[0] < 1 || len(some) > mostTasks {
			return nil, failure.Usagef("cannot find job %q: write its number, such as 17, or 17-36; see: gpuard queue", word)
		}
		list = append(list, some...)
	}
	return list, nil
}

// CompleteJobs offers the jobs that have not ended.
func CompleteJobs(p *cli.Program) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		q, err := userqueue.Open(p.Host, false)
		if err != nil || q == nil {
			return nil, flagset.NoFiles
		}

		defer q.Close()
		list, _ := q.List(func(s userqueue.State) bool { return !s.Over() })
		var words []string
		for _, e := range list {
			if n := strconv.Itoa(e.Number); !slices.Contains(args, n) {
				words = append(words, n+"\t"+e.Name)
			}
		}

		return words, flagset.NoFiles
	}
}

// ShownJobs is how many of the jobs that wait are shown to people.
const ShownJobs = 50

// QueueAnswer is the JSON answer of queue.
type QueueAnswer struct {
	Schema string `json:"schema"` // "gpuard.queue/1"
	// Processes that run the jobs are there.
	Kept bool `json:"kept"`
	// Nothing is started before gpuard queue resume.
	Paused bool `json:"paused"`
	// Lines of its journal that cannot be read or are impossible, and were left out.
	Odd int `json:"odd"`

	// The first of them, for people.
	OddLines []string `json:"-"`
	// Why they ended; "" none.
	Problem string `json:"problem"`
	// Your own that have not ended, by number.
	Jobs []userqueue.Entry `json:"jobs"`
	// Why the first job that waits does: one per device.
	Reasons []job.Reason `json:"reasons"`
	// Requests of others, and other requests of yours, in the order of the line.
	Others []status.Waiting `json:"others"`
	// Other hosts with the same home that have jobs of yours: only gpuard queue there shows and runs them.
	Hosts []userqueue.HostJobs `json:"hosts"`
	// Other schedulers that have jobs of yours and did not answer: those jobs are shown where they were last.
	Engines []userqueue.Trouble `json:"engines"`
}

func showQueue(p *cli.Program, cmd *cobra.Command, o *queueOptions) error {
	q, err := userqueue.Open(p.Host, false)
	if err != nil {
		return err
	}

	if q != nil {
		defer q.Close()
		if err := ReviveQueue(p, q); err != nil {
			return err
		}
	}

	most := ShownJobs
	if o.json {
		most = math.MaxInt
	}

	a, more, err := ReadQueue(cmd.Context(), p, q, most, true)
	if err != nil {
		return err
	}

	a.Hosts = userqueue.OfOtherHosts(p.Host)
	if o.mine {
		a.Others = []status.Waiting{}
	}

	return p.Show(o.json, a, func(v *console.Page) { queueView(v, &a, more, time.Now()) })
}

// ReadQueue is the line of all, and the queue of this user, nil where there is none, as they are now, with at most so
// many jobs that wait; more wait besides. With ask other schedulers are asked for their jobs.
func ReadQueue(ctx context.Context, p *cli.Program, q *userqueue.Queue, most int, ask bool) (a QueueAnswer, more int, err error) {
	a = QueueAnswer{Schema: "gpuard.queue/1", Kept: true, Jobs: []userqueue.Entry{}, Reasons: []job.Reason{}, Others: []status.Waiting{}, Hosts: []userqueue.HostJobs{}, Engines: []userqueue.Trouble{}}
	if q != nil {
		a.Kept = q.HasKeeper()
		if !a.Kept {
			a.Problem = q.Problem()
		}

		if ask {
			a.Engines, err = refreshEngines(ctx, p, q)
			if err != nil {
				return a, 0, err
			}
		}

		list, left, err := q.NextJobs(most)
		if err != nil {
			return a, 0, err
		}

		more = left

		for i := range list {
			list[i].Asks = askedText(&list[i].Spec)
		}

		a.Jobs = append(a.Jobs, list...)
		whyWaits(ctx, p, &a)
		state, err := q.Read()
		if err != nil {
			return a, 0, err
		}

		a.Paused, a.Odd, a.OddLines = state.Paused, state.Odd, q.OddIn(state)
	}

	addOthers(ctx, p, q, &a)

	return a, more, nil
}

// addOthers adds what else waits for this machine, and when the jobs may start.
func addOthers(ctx context.Context, p *cli.Program, q *userqueue.Queue, a *QueueAnswer) {
	s, err := leases.Status(ctx, p.Host)
	if err != nil {
		return
	}

	for _, w := range s.Waiting {
		if q == nil || !q.IsRunner(w.PID) {
			a.Others = append(a.Others, w)
		}
	}

	name, err := machineOf(p)
	if err != nil {
		return
	}

	userqueue.ForecastJobs(a.Jobs, a.Others, &s, name)
}

// mostReasons is for how many different requests queue asks why they wait.
const mostReasons = 8

// whyWaits says of the jobs that wait what gpuard run would say of them now. Jobs that ask for the same share the
// answer.
func whyWaits(ctx context.Context, p *cli.Program, a *QueueAnswer) {
	type answer struct{ why, discreet, remedy string }
	known := map[string]answer{}
	for i := range a.Jobs {
		e := &a.Jobs[i]
		if e.State != userqueue.Waiting || e.Spec.CPU || e.Engine != "" {
			continue
		}

		host, spec := *p.Host, e.Spec
		host.Machine = e.Machine

		// Its mask is that of another shell.
		spec.Any = true
		spec.Name, spec.Time, spec.Nice = "", 0, 0
		key := fmt.Sprintf("%s %+v", e.Machine, spec)
		got, asked := known[key]
		if !asked && len(known) < mostReasons {
			_, err := claim.Decide(ctx, &host, spec)
			var refusal *job.Refusal
			switch {
			case errors.As(err, &refusal):
				got = answer{refusal.Summary, refusal.PublicView().Summary, refusal.Remedy}
				if len(a.Reasons) == 0 {
					a.Reasons = append(a.Reasons, planview.RelevantReasons(refusal.Reasons)...)
				}
			case err != nil:
				got.why = err.Error()
			}
			known[key] = got
		}

		e.Why, e.Discreet, e.Remedy = got.why, got.discreet, got.remedy
	}
}
