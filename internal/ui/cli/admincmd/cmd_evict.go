package admincmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

type evictOptions struct {
	idle, grace string
	force, json bool
}

// NewEvictCommand makes gpuard evict.
func NewEvictCommand(p *cli.Program) *cobra.Command {
	o := &evictOptions{}
	cmd := &cobra.Command{
		Use:   "evict [flags] [PID...]",
		Short: "Show who uses GPUs without a lease; end them by PID",
		Long: `Lists processes that use GPU memory without a live lease: owner, memory, age and
idle time. With --idle it lists every process that has been idle for that long,
leased notebooks too.

Idle time needs at least two runs: each gpuard evict compares the processor time
of a process with that of the run before. Run it regularly, such as every ten
minutes from cron: idle time is as exact as that interval.

With process ids it asks these processes to end: your own, or any as root. It
ends only what has the GPU open, nothing that serves a display, no process in a
container, and none with a live lease unless --idle is given.`,
		Example: `  gpuard evict                processes without a lease
  gpuard evict --idle 2h      idle notebooks too
  gpuard evict 4711           end process 4711
  gpuard evict --force 4711   kill it when it does not end`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Complete(func(ctx context.Context, _ []string, _ string) []string { return leases.OwnLeftovers(ctx, p.Host) }),
		RunE:              func(cmd *cobra.Command, args []string) error { return evictOrList(p, cmd, o, args) },
	}

	f := cmd.Flags()
	f.StringVar(&o.idle, "idle", "", "processes that were idle for this `TIME`, such as 2h, with or without a lease")
	f.StringVar(&o.grace, "grace", "10s", "`TIME` that a process has to end")
	f.BoolVar(&o.force, "force", false, "kill processes that do not end in that time")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("grace", cobra.FixedCompletions([]string{"10s", "30s", "2m"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("idle", cobra.FixedCompletions([]string{"30m", "2h", "1d"}, flagset.NoFiles))

	return cmd
}

func evictOrList(p *cli.Program, cmd *cobra.Command, o *evictOptions, args []string) error {
	var idle time.Duration
	grace, err := flagset.ReadDuration("grace", o.grace)
	if err == nil && cmd.Flags().Changed("idle") {
		idle, err = flagset.ReadDuration("idle", o.idle)
	}

	if err != nil {
		return &exit.Usage{Text: err.Error()}
	}

	if len(args) == 0 {
		for _, name := range []string{"grace", "force"} {
			if cmd.Flags().Changed(name) {
				return &exit.Usage{Text: fmt.Sprintf("cannot use --%s without a process id: gpuard evict lists them", name)}
			}
		}

		rows, err := leases.Leftovers(cmd.Context(), p.Host, idle)
		if err != nil {
			return err
		}

		answer := evictAnswer{"gpuard.evict/1", rows, []leftover.Eviction{}}

		return p.Show(o.json, answer, func(v *console.Page) { leftoversView(v, rows, idle, time.Now()) })
	}

	pids, err := ProcessIDs(args)
	if err != nil {
		return err
	}

	ended, err := leases.Evict(cmd.Context(), p.Host, pids, idle, grace, o.force)
	if err != nil {
		return err
	}

	return showEvicted(p, ended, o.json)
}

// showEvicted reports the result for each process. It returns an error if one did not end.
func showEvicted(p *cli.Program, ended []leftover.Eviction, asJSON bool) error {
	stay := 0
	for _, e := range ended {
		if !e.Gone {
			stay++
		}
		switch {
		case asJSON:
		case e.Gone:
			_ = p.Answer("ended process %d (%s)", e.PID, e.Command)
		default:
			fmt.Fprintf(p.Err, "gpuard: cannot end process %d (%s): %s\n", e.PID, e.Command, e.Why)
		}
	}

	if asJSON {
		if err := cli.WriteJSON(p.Out, evictAnswer{"gpuard.evict/1", []leftover.Row{}, ended}); err != nil {
			return err
		}
	}

	if stay > 0 {
		return &failure.ShownError{Err: fmt.Errorf("cannot end %s", prose.CountNoun(stay, "process"))}
	}

	return nil
}

// evictAnswer is the JSON answer of evict.
type evictAnswer struct {
	Schema    string         `json:"schema"` // "gpuard.evict/1"
	Leftovers []leftover.Row `json:"leftovers"`
	// The result for each process id that was given.
	Evicted []leftover.Eviction `json:"evicted"`
}

// ProcessIDs reads the PIDs of processes.
func ProcessIDs(args []string) ([]int, error) {
	var pids []int
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil || n <= 0 {
			return nil, &exit.Usage{Text: fmt.Sprintf("cannot end %q: name process ids, such as gpuard evict 4711; gpuard evict lists them", a)}
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// leftoversView writes the list as text: a line for each process, with its owner, age and command below.
func leftoversView(p *console.Page, rows []leftover.Row, idle time.Duration, now time.Time) {
	if p.Term.Width <= 0 {
		p.Term.Width = console.UsualWidth
	}

	if len(rows) == 0 {
		text := "nothing is left over: all GPU memory in use belongs to a lease or to a display"
		if idle > 0 {
			text = "no process is known to be idle for " + console.AgeText(idle) + "; idle time needs two runs of gpuard evict"
		}

		p.WriteParagraph(console.Span{}, console.Normal, text)

		return
	}

	for _, r := range rows {
		size, process := "unknown size", "no visible process"
		if r.Memory != nil {
			size = r.Memory.String()
		}

		if r.PID > 0 {
			process = "process " + strconv.Itoa(r.PID)
		}

		p.Line(console.Bold.Span(fmt.Sprintf("GPU %d", r.Index)), console.Normal.Span(console.ColumnGap+process+console.ColumnGap+size))
		p.WriteParagraph(console.Dim.Span("  "), console.Normal, p.Text(describeLeftover(r, now)))
	}
}

// describeLeftover gives the owner, lease, age, idle time and command of a process.
func describeLeftover(r leftover.Row, now time.Time) string {
	if r.PID == 0 {
		return "a container, another PID namespace, or memory left by an ended process"
	}

	var parts []string
	add := func(yes bool, part string) {
		if yes {
			parts = append(parts, part)
		}
	}

	add(true, cmp.Or(r.User, "unknown user"))
	add(r.Zombie, "zombie")
	add(r.Lease != "", "lease "+r.Lease)
	if r.Since != nil {
		add(true, "for "+console.AgeText(now.Sub(*r.Since)))
	}

	if r.Idle != nil {
		add(true, "idle for "+console.AgeText(*r.Idle))
	}

	if r.Command == "" {
		return strings.Join(parts, ", ") + ": what it runs is not known; if it has ended and its memory stays: gpuard doctor"
	}

	return strings.Join(parts, ", ") + ": " + prose.Clean(r.Command)
}
