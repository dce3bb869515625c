package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/queue"
	"gpuard/internal/core/job"
	record "gpuard/internal/core/runs"
	"gpuard/internal/core/status"
)

func (p *Program) queue() *cobra.Command {
	o := &queueOptions{}
	cmd := &cobra.Command{
		Use:   "queue [flags]",
		Short: "Show your jobs that run or wait, and who else waits",
		Long: `Shows the jobs of gpuard submit that run or wait, why the first waits, when each
may start, and what else waits for a GPU. The times are estimates: of --time,
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
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error { return p.showQueues(cmd, o) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVar(&o.mine, "mine", false, "only your own jobs")
	f.StringVar(&o.watch, "watch", "", "show it again every `TIME` (default 2s)")
	f.Lookup("watch").NoOptDefVal = everyTwoSeconds
	cmd.AddCommand(p.pauseQueue("pause", "Start no more jobs for now; what runs goes on", "no more jobs are started; again: gpuard queue resume"),
		p.pauseQueue("resume", "Start jobs again after queue pause", "jobs are started again"), p.askQueue("hold", "Do not start jobs for now", record.Hold, "held"), p.askQueue("unhold", "Let held jobs start again", record.Unhold, "unheld"),
		p.askQueue("requeue", "Run jobs again that failed, were lost or cancelled", record.Again, "queued again"))
	return cmd
}

// queueOptions are the flags of queue.
type queueOptions struct {
	json, mine bool
	watch      string
}

func (p *Program) pauseQueue(name, short, done string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: short + ".", Example: "  gpuard queue " + name, Args: noArguments, RunE: func(*cobra.Command, []string) error {
		return report(func() error {
			q, err := queue.Open(p.Host, true)
			if err != nil {
				return err
			}
			defer q.Close()
			if err := q.Pause(name == "pause"); err != nil {
				return err
			}
			fmt.Fprintln(p.Out, done)
			return p.revive(q)
		})
	}}
}

// showQueues shows the queue once, or again and again.
func (p *Program) showQueues(cmd *cobra.Command, o *queueOptions) error {
	if o.watch == "" {
		return p.showQueue(cmd, o)
	}
	if o.json {
		return usagef("cannot use --watch with --json: leave one of them out")
	}
	every, err := interval(o.watch)
	if err != nil {
		return asUsage(err)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if p.term(p.Out).TTY {
			fmt.Fprint(p.Out, "\x1b[H\x1b[2J")
		}
		if err := p.showQueue(cmd, o); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Program) cancel() *cobra.Command {
	return p.askQueue("cancel", "End jobs of your queue, also before they start", record.Cancel, "cancelled")
}

// askQueue is a command that asks for something for some jobs.
func (p *Program) askQueue(name, short string, kind record.Kind, done string) *cobra.Command {
	path := name
	if name != "cancel" {
		path = "queue " + name
	}
	return &cobra.Command{
		Use: name + " JOB...", Short: short, Long: short + ".\nJOB is the number that gpuard submit and gpuard queue show. Either all are\n" + done + " or none.",
		Example:           "  gpuard " + path + " 17\n  gpuard " + path + " 17 18 19",
		ValidArgsFunction: p.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error {
				numbers, err := jobNumbers(args)
				if err != nil {
					return err
				}
				q, err := p.openQueue()
				if err != nil {
					return err
				}
				defer q.Close()
				if err := q.Ask(cmd.Context(), kind, numbers...); err != nil {
					return err
				}
				for _, n := range numbers {
					fmt.Fprintf(p.Out, "job %d is %s\n", n, done)
				}
				return p.revive(q)
			})
		},
	}
}

// openQueue opens the queue of this user, which has to be there.
func (p *Program) openQueue() (*queue.Queue, error) {
	q, err := queue.Open(p.Host, false)
	if err == nil && q == nil {
		err = exit.Usagef("cannot find a job: you have handed in none; see: gpuard submit --help")
	}
	return q, err
}

// revive starts the keeper of the queue where it is missing and something is to be done.
func (p *Program) revive(q *queue.Queue) error {
	state, err := q.Read()
	if err != nil || q.Kept() || !state.Startable() && state.Count.Running == 0 {
		return err
	}
	return q.Serve()
}

func jobNumbers(args []string) (list []int, err error) {
	if len(args) == 0 {
		return nil, usagef("cannot tell which job: write its number, such as 17; see: gpuard queue")
	}
	for _, word := range args {
		some, err := numbers(word, mostTasks)
		if err != nil || some[0] < 1 || len(some) > mostTasks {
			return nil, usagef("cannot find job %q: write its number, such as 17, or 17-36; see: gpuard queue", word)
		}
		list = append(list, some...)
	}
	return list, nil
}

// completeJobs offers the jobs that have not ended.
func (p *Program) completeJobs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	q, err := queue.Open(p.Host, false)
	if err != nil || q == nil {
		return nil, noFiles
	}
	defer q.Close()
	list, _ := q.List(func(s queue.State) bool { return !s.Over() })
	var words []string
	for _, e := range list {
		if n := strconv.Itoa(e.Number); !slices.Contains(args, n) {
			words = append(words, n+"\t"+e.Name)
		}
	}
	return words, noFiles
}

// shownJobs is how many of the jobs that wait are shown to people.
const shownJobs = 50

// queueAnswer is the JSON answer of queue.
type queueAnswer struct {
	Schema  string           `json:"schema"`  // "gpuard.queue/1"
	Kept    bool             `json:"kept"`    // processes that run the jobs are there
	Paused  bool             `json:"paused"`  // nothing is started before gpuard queue resume
	Problem string           `json:"problem"` // why they ended; "" none
	Jobs    []queue.Entry    `json:"jobs"`    // your own that have not ended, by number
	Reasons []job.Reason     `json:"reasons"` // why the first job that waits does: one per device
	Others  []status.Waiting `json:"others"`  // requests of others, and other requests of yours, in the order of the line
	Engines []queue.Trouble  `json:"engines"` // other schedulers that have jobs of yours and did not answer: those jobs are shown where they were last
}

func (p *Program) showQueue(cmd *cobra.Command, o *queueOptions) error {
	if q, err := queue.Open(p.Host, false); err != nil {
		return err
	} else if q != nil {
		defer q.Close()
		if err := p.revive(q); err != nil {
			return err
		}
	}
	most := shownJobs
	if o.json {
		most = math.MaxInt
	}
	a, more, err := p.queued(cmd.Context(), most, true)
	if err != nil {
		return err
	}
	if o.mine {
		a.Others = []status.Waiting{}
	}
	if o.json {
		return writeJSON(p.Out, a)
	}
	queueView(p.Out, &a, more, time.Now(), p.term(p.Out))
	return nil
}

// queued is the queue as it is now, with at most so many jobs that wait; more wait besides. With ask other schedulers are
// asked for their jobs.
func (p *Program) queued(ctx context.Context, most int, ask bool) (a queueAnswer, more int, err error) {
	a = queueAnswer{Schema: "gpuard.queue/1", Kept: true, Jobs: []queue.Entry{}, Reasons: []job.Reason{}, Others: []status.Waiting{}, Engines: []queue.Trouble{}}
	q, err := queue.Open(p.Host, false)
	if err != nil {
		return a, 0, err
	}
	if q != nil {
		defer q.Close()
		if a.Kept = q.Kept(); !a.Kept {
			a.Problem = q.Problem()
		}
		if ask {
			if a.Engines, err = p.catch(ctx, q); err != nil {
				return a, 0, err
			}
		}
		list, left, err := q.Next(most)
		if err != nil {
			return a, 0, err
		}
		more = left
		for i := range list {
			list[i].Asks = asked(&list[i].Spec)
		}
		a.Jobs = append(a.Jobs, list...)
		p.whyWaits(ctx, &a)
		state, err := q.Read()
		if err != nil {
			return a, 0, err
		}
		a.Paused = state.Paused
	}
	if s, err := leases.Status(ctx, p.Host); err == nil {
		for _, w := range s.Waiting {
			if q == nil || !q.Runs(w.PID) {
				a.Others = append(a.Others, w)
			}
		}
		queue.Forecast(a.Jobs, a.Others, &s)
	}
	return a, more, nil
}

// whyWaits says of the first job that waits what gpuard run would say of it now.
func (p *Program) whyWaits(ctx context.Context, a *queueAnswer) {
	i := slices.IndexFunc(a.Jobs, func(e queue.Entry) bool { return e.State == queue.Waiting && e.Engine == "" })
	if i < 0 {
		return
	}
	e := &a.Jobs[i]
	host := *p.Host
	host.Machine = e.Machine
	spec := e.Spec
	spec.Any = true // its mask is that of another shell
	_, err := claim.Decide(ctx, &host, spec)
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal):
		e.Remedy = refusal.Remedy
		e.Why, a.Reasons = refusal.Summary, append(a.Reasons, relevant(refusal.Reasons)...)
	case err != nil:
		e.Why = err.Error()
	}
}

func (p *Program) wait() *cobra.Command {
	var first bool
	cmd := &cobra.Command{
		Use:   "wait [flags] JOB...",
		Short: "Wait for the end of jobs, and end with their exit code",
		Long: `Waits until these jobs have ended. The exit code is that of the first of them
that did not end with 0, as a shell counts it (128 and the number of a signal),
and 1 for one that was cancelled, lost or not run. Ctrl-C ends only the waiting.`,
		Example:           "  gpuard wait 17 && ./publish.sh\n  gpuard wait --any 17 18",
		ValidArgsFunction: p.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := p.waitFor(cmd.Context(), args, first)
			if err == nil && code != 0 {
				err = &silent{fmt.Errorf("a job ended with %d", code)}
			}
			if err != nil {
				if code == 0 {
					code = exit.Run(err)
				}
				return &failure{err, code}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&first, "any", false, "until one of them has ended")
	return cmd
}

// follow is q.Changes, when the keeper that was just started has the lock.
func (p *Program) follow(q *queue.Queue) <-chan struct{} {
	for begun := time.Now(); !q.Kept() && time.Since(begun) < time.Second; time.Sleep(5 * time.Millisecond) {
		if state, err := q.Read(); err != nil || !state.Startable() && state.Count.Running == 0 {
			break
		}
	}
	return q.Changes()
}

func (p *Program) waitFor(ctx context.Context, args []string, first bool) (code int, err error) {
	numbers, err := jobNumbers(args)
	if err != nil {
		return 0, err
	}
	q, err := p.openQueue()
	if err != nil {
		return 0, err
	}
	defer q.Close()
	if err := p.revive(q); err != nil {
		return 0, err
	}
	changes, alive, asked, said := p.follow(q), true, p.askEngines(q), map[int]string{}
	for {
		list, err := asked(ctx)
		if err != nil {
			return 0, err
		}
		var over []*queue.Entry
		for _, n := range numbers {
			if n > len(list) {
				return 0, exit.Usagef("cannot find job %d: there are %d; see: gpuard queue", n, len(list))
			}
			if e := &list[n-1]; e.State.Over() {
				over = append(over, e)
			}
		}
		if len(over) == len(numbers) || first && len(over) > 0 {
			for _, e := range over {
				fmt.Fprintln(p.Err, "gpuard: "+endText(e))
				if code == 0 {
					code = e.Code(func(name string) int { return int(unix.SignalNum(name)) })
				}
			}
			return code, nil
		}
		p.sayWhy(list, numbers, said)
		poll := p.polled(list, numbers)
		if !alive && poll == nil {
			return 0, fmt.Errorf("cannot wait any longer: nothing runs the queue; %s", cmp.Or(q.Problem(), "see: gpuard queue"))
		}
		select {
		case _, alive = <-changes:
			changes = whileAlive(changes, alive)
		case <-poll:
		case <-ctx.Done():
			return 0, errors.New("cannot wait any longer: it was ended")
		}
	}
}
