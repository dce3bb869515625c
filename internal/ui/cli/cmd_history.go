package cli

import (
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/observe"
	"gpuard/internal/app/queue"
	"gpuard/internal/core/trend"
)

type historyOptions struct {
	json      bool
	by, since string
}

func (p *Program) history() *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:   "history [flags]",
		Short: "Show the jobs of your queue that have ended",
		Long: `Shows each job of gpuard submit that has ended: how, after what time, on
which GPUs, and what was measured there every 10 seconds: the most memory of a
GPU, and the mean load. A job that ran when the machine went down is lost:
nobody saw its end. With --by it adds up hours of one GPU: granted, used by
the measured load, and idle; of all leases of all users that gpuard serve has
seen, and where none has run, of your queue.`,
		Example: `  gpuard history
  gpuard history --since 7d
  gpuard history --by command --since 30d
  gpuard history --json                    for scripts`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error { return p.showHistory(cmd, o) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.StringVar(&o.by, "by", "", "add up by `WHAT`: user, gpu or command")
	f.StringVar(&o.since, "since", "", "only what has ended within this `TIME`, such as 30d")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(queue.By(), noFiles))
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]string{"1d", "7d", "30d"}, noFiles))
	return cmd
}

// historyAnswer is the JSON answer of history.
type historyAnswer struct {
	Schema string        `json:"schema"` // "gpuard.history/1"
	Jobs   []queue.Entry `json:"jobs"`   // those that have ended, by number; none with --by
	Use    []queue.Use   `json:"use"`    // of --by: the largest first
}

func (p *Program) showHistory(cmd *cobra.Command, o *historyOptions) error {
	if err := refuseEmpty(cmd, "by", "since"); err != nil {
		return asUsage(err)
	}
	if o.by != "" && !slices.Contains(queue.By(), o.by) {
		return usagef("cannot add up by %q: write --by user, --by gpu or --by command", o.by)
	}
	var since time.Duration
	if o.since != "" {
		var err error
		if since, err = duration("since", o.since); err != nil {
			return asUsage(err)
		}
	}
	list := []queue.Entry{}
	q, err := queue.Open(p.Host, false)
	if q != nil {
		defer q.Close()
		troubles, cerr := p.catch(cmd.Context(), q)
		p.sayTroubles(troubles)
		if list, err = q.List(queue.State.Over); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return err
	}
	now := time.Now()
	list = slices.DeleteFunc(list, func(e queue.Entry) bool {
		return e.State == queue.Refused || since > 0 && (e.Ended == nil || now.Sub(*e.Ended) > since)
	})
	for i := range list {
		list[i].Asks = asked(&list[i].Spec)
	}
	a := historyAnswer{Schema: schema(cmd), Jobs: append([]queue.Entry{}, list...), Use: []queue.Use{}}
	if o.by != "" {
		use, err := p.use(o.by, since)
		if err != nil {
			return err
		}
		a.Jobs, a.Use = []queue.Entry{}, append(a.Use, use...)
	}
	switch {
	case o.json:
		return writeJSON(p.Out, a)
	case o.by != "":
		useView(p.Out, a.Use, p.term(p.Out))
	default:
		historyView(p.Out, list, p.term(p.Out))
	}
	return nil
}

// use adds up the leases that gpuard serve has seen, within this time or all; where there was none, the jobs of the own
// queue.
func (p *Program) use(by string, since time.Duration) ([]queue.Use, error) {
	now := time.Now()
	seen, found, err := observe.Leases(p.Host)
	if err != nil {
		return nil, err
	}
	if found {
		return queue.UseOfLeases(slices.DeleteFunc(seen, func(e trend.Ended) bool { return since > 0 && now.Sub(e.Until) > since }), by), nil
	}
	q, err := queue.Open(p.Host, false)
	if err != nil || q == nil {
		return nil, err
	}
	defer q.Close()
	list, err := q.List(queue.State.Over)
	list = slices.DeleteFunc(list, func(e queue.Entry) bool { return since > 0 && (e.Ended == nil || now.Sub(*e.Ended) > since) })
	return queue.UseOf(list, by, p.Host.Names(uint32(os.Geteuid()))), err //nolint:gosec // a uid
}
