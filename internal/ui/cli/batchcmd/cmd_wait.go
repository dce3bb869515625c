package batchcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
)

// NewWaitCommand makes gpuard wait.
func NewWaitCommand(p *cli.Program) *cobra.Command {
	var first bool
	cmd := &cobra.Command{
		Use:   "wait [flags] JOB...",
		Short: "Wait for the end of jobs, and end with their exit code",
		Long: `Waits until these jobs have ended. The exit code is that of the first of them
that did not end with 0, as a shell counts it (128 and the number of a signal),
and 1 for one that was cancelled, lost or not run. Ctrl-C ends only the waiting.`,
		Example:           "  gpuard wait 17 && ./publish.sh\n  gpuard wait --any 17 18",
		ValidArgsFunction: CompleteJobs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := waitForJobs(cmd.Context(), p, args, first)
			if err == nil && code != 0 {
				err = &failure.ShownError{Err: fmt.Errorf("a job ended with %d", code)}
			}
			if err != nil {
				if code == 0 {
					code = exit.RunCode(err)
				}
				return &failure.CodedError{Err: err, Code: code}
			}

			return nil
		},
	}
	cmd.Flags().BoolVar(&first, "any", false, "until one of them has ended")

	return cmd
}

func waitForJobs(ctx context.Context, p *cli.Program, args []string, first bool) (code int, err error) {
	numbers, err := JobNumbers(args)
	if err != nil {
		return 0, err
	}

	q, err := OpenQueue(p)
	if err != nil {
		return 0, err
	}

	defer q.Close()
	f := Follower{P: p, Q: q}
	ended := map[int]*userqueue.Entry{}
	for rest := numbers; ; {
		list, err := f.Jobs(ctx, rest)
		if err != nil {
			return 0, err
		}

		over, open := SplitEnded(list)
		for _, e := range over {
			ended[e.Number] = e
		}

		rest = nil
		for _, e := range open {
			rest = append(rest, e.Number)
		}

		if len(open) == 0 || first && len(over) > 0 {
			for _, n := range numbers {
				e := ended[n]
				if e == nil {
					continue
				}
				_ = p.PrintMessage(EndText(e))
				if code == 0 {
					code = e.Code(func(name string) int { return int(unix.SignalNum(name)) })
				}
			}
			return code, nil
		}

		if err := f.AwaitChange(ctx, open, nil); err != nil {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, errors.New("cannot wait any longer: it was ended")
		}

		if len(rest) > 1 {
			// Of many jobs several end in a short time.
			time.Sleep(time.Duration(min(len(rest), 50)) * time.Millisecond)
		}
	}
}

// SplitEnded parts the jobs that have ended from the others.
func SplitEnded(list []userqueue.Entry) (over, open []*userqueue.Entry) {
	for i := range list {
		if e := &list[i]; e.State.Over() {
			over = append(over, e)
		} else {
			open = append(open, e)
		}
	}
	return over, open
}

// Follower waits for what happens in a queue. It starts the keeper again that was killed, and goes on waiting while
// none is needed because nothing may start.
type Follower struct {
	P *cli.Program
	Q *userqueue.Queue
	// The end of the keeper; nil: there is none.
	ended <-chan struct{}
	// When the keeper was started last.
	started time.Time
	// The starts in short succession.
	starts int
	said   string
	// When the other schedulers were asked last.
	asked time.Time
	// Those that did not answer.
	silent map[string]bool
	// Why jobs of theirs wait, as said last.
	whys map[int]string
}

// Jobs are these jobs as they are now, also at other schedulers; of one that does not answer it says so once.
func (f *Follower) Jobs(ctx context.Context, numbers []int) ([]userqueue.Entry, error) {
	// From here on nothing is missed that is written after the jobs were read.
	f.Q.Changes()
	if time.Since(f.asked) >= pollInterval(f.P) {
		troubles, err := f.Q.RefreshAway(ctx)
		if err != nil {
			return nil, err
		}

		silent := map[string]bool{}
		for _, t := range troubles {
			silent[t.Engine] = true
			if !f.silent[t.Engine] {
				sayTroubles(f.P, []userqueue.Trouble{t})
			}
		}

		f.silent, f.asked = silent, time.Now()
	}

	list, err := f.Q.Jobs(numbers)
	if f.whys == nil {
		f.whys = map[int]string{}
	}

	sayWhy(f.P, list, f.whys)

	return list, err
}

// AwaitChange returns when something has happened, or other is closed. open are the jobs that are waited for.
func (f *Follower) AwaitChange(ctx context.Context, open []*userqueue.Entry, other <-chan struct{}) error {
	written := f.Q.Changes()

	// Other schedulers do not say when something happens.
	var poll <-chan time.Time
	for _, e := range open {
		if e.Engine != "" {
			poll = time.After(pollInterval(f.P))
		}
	}

	if f.ended == nil {
		if err := f.ensureKeeper(open); err != nil {
			return err
		}
	}

	select {
	case <-written:
	case <-other:
	case <-poll:
	case <-f.ended:
		f.ended = nil
	case <-ctx.Done():
	}

	return nil
}

// ensureKeeper starts the keeper where there is something to do, else it says why there is not.
func (f *Follower) ensureKeeper(open []*userqueue.Entry) error {
	state, err := f.Q.Read()
	if err != nil {
		return err
	}

	if !state.HasStartable() && state.Count.Running == 0 {
		f.sayIdle(open, state.Paused)
		return nil
	}

	if !f.Q.HasKeeper() {
		if time.Since(f.started) > 2*time.Second {
			f.starts = 0
		}

		f.starts++
		if f.starts > 3 {
			return fmt.Errorf("cannot wait any longer: what runs the queue ends again and again; %s", cmp.Or(f.Q.Problem(), "see: gpuard queue"))
		}
		if err := f.Q.StartKeeper(); err != nil {
			return err
		}

		f.started = time.Now()

		for !f.Q.HasKeeper() && time.Since(f.started) < time.Second {
			// It has no lock yet.
			time.Sleep(5 * time.Millisecond)
		}
	}

	f.ended = f.Q.Ended()

	return nil
}

// sayIdle says once why the queue stands still.
func (f *Follower) sayIdle(open []*userqueue.Entry, paused bool) {
	text := "the queue is paused; go on with: gpuard queue resume"
	if !paused {
		text = ""
		for _, e := range open {
			if e.Engine != "" {
				continue
			}
			if e.State == userqueue.Held {
				text = fmt.Sprintf("job %d is held; let it start with: gpuard queue unhold %[1]d", e.Number)
				break
			}
			if e.State == userqueue.After {
				text = fmt.Sprintf("job %d waits for job %s, which does not run; see: gpuard queue", e.Number, joinNumbers(e.Awaits))
			}
		}
	}
	if text != "" && text != f.said {
		f.said = text
		_ = f.P.PrintMessage(text)
	}
}
