package batchcmd

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/observe"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

type historyOptions struct {
	json             bool
	by, since, chart string
}

// NewHistoryCommand makes gpuard history.
func NewHistoryCommand(p *cli.Program) *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:   "history [flags]",
		Short: "Show jobs that have ended, and hours of GPUs",
		Long: `Shows each job of gpuard submit that has ended: how, after what time, on
which GPUs, and what was measured there every 10 seconds: the most memory of a
GPU, and the mean load. A job that ran when the machine went down is lost:
nobody saw its end.

With --by it adds up hours of one GPU, of all leases that have ended: granted,
used by the measured load, and idle. Every lease of yours leaves a line at its
end. Memory, and the load of whole GPUs, are measured once it is 10 seconds old.
You see your own leases, and those of others that root's gpuard serve has seen;
root sees those of all users. Of leases that share a GPU, each is granted its
part of the time. --chart draws the same as a picture.`,
		Example: `  gpuard history
  gpuard history --since 7d
  gpuard history --by command --since 30d
  gpuard history --by day --chart month.svg --since 30d
  gpuard history --json                    for scripts`,
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return showHistory(p, cmd, o) },
	}

	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.StringVar(&o.by, "by", "", "add up by `WHAT`: user, gpu, command or day")
	f.StringVar(&o.since, "since", "", "only what has ended within this `TIME`, such as 30d")
	f.StringVar(&o.chart, "chart", "", "with --by: write a picture to this `FILE`, .svg or .png")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(trend.SumKeys(), flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]string{"1d", "7d", "30d"}, flagset.NoFiles))

	return cmd
}

// historyAnswer is the JSON answer of history.
type historyAnswer struct {
	Schema string `json:"schema"` // "gpuard.history/1"
	// Those that have ended, by number; none with --by.
	Jobs []userqueue.Entry `json:"jobs"`
	// The use for --by: the largest first; days in their order.
	Use []trend.Use `json:"use"`
}

func showHistory(p *cli.Program, cmd *cobra.Command, o *historyOptions) error {
	if err := o.checkOptions(); err != nil {
		return err
	}

	var since time.Duration
	if o.since != "" {
		var err error
		since, err = flagset.ReadDuration("since", o.since)
		if err != nil {
			return failure.AsUsage(err)
		}
	}

	if o.by != "" {
		return showUse(p, cmd, o, since)
	}

	list := []userqueue.Entry{}
	q, err := userqueue.Open(p.Host, false)
	if q != nil {
		defer q.Close()
		troubles, cerr := refreshEngines(cmd.Context(), p, q)
		sayTroubles(p, troubles)
		list, err = q.List(userqueue.State.Over)
		err = cmp.Or(err, cerr)
	}

	if err != nil {
		return err
	}

	now := time.Now()
	list = slices.DeleteFunc(list, func(e userqueue.Entry) bool {
		return e.State == userqueue.Refused || since > 0 && (e.Ended == nil || now.Sub(*e.Ended) > since)
	})

	for i := range list {
		list[i].Asks = askedText(&list[i].Spec)
	}

	answer := historyAnswer{Schema: cli.SchemaOf(cmd), Jobs: append([]userqueue.Entry{}, list...), Use: []trend.Use{}}

	return p.Show(o.json, answer, func(v *console.Page) { historyView(v, list, now) })
}

// checkOptions is what cannot be asked for.
func (h *historyOptions) checkOptions() error {
	switch {
	case h.by != "" && !slices.Contains(trend.SumKeys(), h.by):
		return failure.Usagef("cannot add up by %q: write --by user, --by gpu, --by command or --by day", h.by)
	case h.chart == "":
		return nil
	case h.by == "":
		return failure.Usagef("cannot draw the jobs of the queue: say what to add up by, such as --by user")
	case h.json:
		return failure.Usagef("cannot use --chart and --json together: call gpuard history once for each")
	}
	return cli.CheckChart(h.chart)
}

// showUse adds up the leases that have ended within this time, or all.
func showUse(p *cli.Program, cmd *cobra.Command, o *historyOptions, since time.Duration) error {
	if o.chart != "" && p.Views.Used == nil {
		return p.BecomeView()
	}

	now := time.Now()
	if note := p.Host.EndedNote(); note != "" {
		p.Host.Say(note)
	}

	list, err := observe.EndedLeases(cmd.Context(), p.Host)
	if err != nil {
		return err
	}

	list = slices.DeleteFunc(list, func(e trend.EndedLease) bool { return since > 0 && now.Sub(e.Until) > since })
	use := trend.SumUse(list, o.by, time.Local)
	if o.chart != "" {
		return cli.WriteChart(o.chart, func(png bool) ([]byte, error) {
			return p.Views.Used(trend.UseTable{By: o.by, Use: use}, png, p.Host.Localize)
		})
	}

	answer := historyAnswer{Schema: cli.SchemaOf(cmd), Jobs: []userqueue.Entry{}, Use: use}

	return p.Show(o.json, answer, func(v *console.Page) { useView(v, use) })
}
