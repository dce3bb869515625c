package runcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
)

// reserveOptions are the flags of reserve.
type reserveOptions struct {
	spec          jobflags.SpecFlags
	wait          jobflags.WaitFlags
	length, shell string
	pid           int
	note, save    string
	ask, json     bool
}

// NewReserveCommand makes gpuard reserve.
func NewReserveCommand(p *cli.Program) *cobra.Command {
	o := &reserveOptions{}
	cmd := &cobra.Command{
		Use:   "reserve --for TIME|--pid PID|--shell [flags]",
		Short: "Keep a GPU: --for TIME, --pid PID, or for this --shell",
		Long: `Leases now, or as soon as a GPU is free, without starting anything. The lease
ends by itself, or earlier by gpuard release.

With --for it is for work by hand: everything of yours that is started with its
name runs on it, one after the other or together.

With --pid it is for a process of yours that runs already, and ends with it. A
process that uses devices gets a lease of these. Any other gets devices that it
sees by the variables of its start, which nothing can change any more. A process
that has a lease keeps it.

With --shell the shell that evaluates the output has the lease, with its
variables, until that shell ends. If no device can be given the output is the
command false, so that the eval fails.`,
		Example: `  gpuard reserve --for 8h --note "paper figures"
  GPUARD_LEASE=k3f9 gpuard run             a shell on it
  GPUARD_LEASE=k3f9 gpuard run -- python figures.py
  gpuard release k3f9                      give it back earlier
  gpuard reserve --pid 4242                the GPU that process 4242 uses, or a
                                           free one
  eval "$(gpuard reserve --shell)"         a GPU for this shell, until it ends
  gpuard reserve --shell=fish | source`,
		Args: flagset.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return reserveWith(p, cmd, o) },
	}

	o.spec.Add(p, cmd)
	o.wait.Add(cmd)
	jobflags.AddPrivateState(p, cmd)
	jobflags.AddAsk(cmd, &o.ask)
	f := cmd.Flags()

	// It is refused.
	f.Lookup("cpu").Hidden = true
	f.Lookup("fallback").Usage = "what to try in place of waiting, in order: other (drops --device and --model), wait; with --shell also cpu"
	f.StringVar(&o.length, "for", "", "how long, a `TIME` such as 8h")
	f.IntVar(&o.pid, "pid", 0, "until this process ends: its `PID`, such as $$ for this shell")
	f.StringVar(&o.shell, "shell", "", "until this shell ends, which evaluates the output: `FORM` sh (also bash, zsh) or fish")
	f.Lookup("shell").NoOptDefVal = "sh"
	flagset.AddOption(cmd, "note", &o.note)
	f.StringVar(&o.save, "save", "", "with --shell: save the variables as they were before, under the name `ID`; gpuard env --restore puts them back")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"1h", "4h", "8h", "1d"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions([]string{"sh", "fish"}, flagset.NoFiles))
	_ = cmd.RegisterFlagCompletionFunc("pid", cli.Complete(func(_ context.Context, _ []string, typed string) []string { return leases.OwnProcesses(p.Host, typed) }))

	return cmd
}

// reserveWith leases for what the flags name.
func reserveWith(p *cli.Program, cmd *cobra.Command, o *reserveOptions) error {
	spec, err := reserveSpec(p, cmd, o)
	if err != nil {
		return err
	}

	p.ShowStanding(o.json)

	switch {
	case o.length != "":
		return reserveTime(p, cmd, o, spec)
	case cmd.Flags().Changed("pid"):
		h, err := leases.HoldProcess(cmd.Context(), p.Host, spec, o.pid)
		if err != nil {
			return err
		}
		return deliverAnswer(p, cmd, h, func() error { return showReservation(p, h, o.json) })
	}

	return reserveShell(p, cmd, o, spec)
}

// reserveSpec checks the flags and returns what is to be leased.
func reserveSpec(p *cli.Program, cmd *cobra.Command, o *reserveOptions) (spec job.Spec, err error) {
	if err := checkReserve(p, cmd, o); err != nil {
		return spec, failure.AsUsage(err)
	}
	if err := jobflags.FillDefaults(p, cmd); err != nil {
		return spec, err
	}

	spec, err = jobflags.ReadRequest(p, cmd, &o.spec, nil)
	if err != nil {
		return spec, failure.AsUsage(jobflags.LocateDefault(p, err))
	}

	spec.Waiting, err = o.wait.Parse(p, cmd)
	switch {
	case err != nil:
		return spec, failure.AsUsage(jobflags.LocateDefault(p, err))
	case spec.CPU:
		return spec, failure.Usagef("cannot use --cpu with reserve: there is no GPU to lease; variables that hide all GPUs: gpuard env --cpu")
	case o.length != "":
		spec.Timeout, err = flagset.ReadDuration("for", o.length)
		if err != nil {
			return spec, failure.AsUsage(err)
		}
		spec.Name = cmp.Or(o.note, "reserved")
	}

	return jobflags.AskDevice(p, cmd, o.ask, spec)
}

// checkReserve refuses flags of which not exactly one says when the lease ends, and those that do not go with it.
func checkReserve(p *cli.Program, cmd *cobra.Command, o *reserveOptions) error {
	const once = "a lease ends in one way"
	err := flagset.RefuseTogether(cmd, []flagset.Conflict{
		{One: "for", Other: "pid", Why: once}, {One: "for", Other: "shell", Why: once}, {One: "pid", Other: "shell", Why: once},
		{One: "note", Other: "pid", Why: "the lease is called as the process"}, {One: "note", Other: "shell", Why: "the lease is called as the shell"},
		{One: "save", Other: "for", Why: "no shell gets variables"}, {One: "save", Other: "pid", Why: "no shell gets variables"},
		{One: "json", Other: "shell", Why: "a shell evaluates the output"},
	})

	form := cmd.Flags().Changed("shell")
	switch {
	case err != nil:
		return err
	case o.length == "" && !form && !cmd.Flags().Changed("pid"):
		return errors.New(`cannot reserve without an end: say for how long, such as gpuard reserve --for 8h; for a process, --pid 4242; for this shell, eval "$(gpuard reserve --shell)"`)
	case cmd.Flags().Changed("pid") && o.pid <= 0:
		return fmt.Errorf("cannot read --pid %d: write a process id, such as --pid $$", o.pid)
	case form && !slices.Contains([]string{"sh", "fish"}, o.shell):
		return fmt.Errorf("cannot read --shell=%s: write sh (also for bash and zsh) or fish", o.shell)
	case form && p.Term(p.Out).TTY:
		return fmt.Errorf("cannot lease: no shell evaluates the output, which goes to the terminal; type: %s", flagset.EvalLine(o.shell))
	}

	return nil
}

// reserveTime leases for a time.
func reserveTime(p *cli.Program, cmd *cobra.Command, o *reserveOptions, spec job.Spec) error {
	h, err := leases.Reserve(cmd.Context(), p.Host, spec)
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		refusal.Remedy = strings.ReplaceAll(refusal.Remedy, "--timeout", "--for")
	}

	if err != nil {
		return err
	}

	return deliverAnswer(p, cmd, h, func() error { return showReservation(p, h, o.json) })
}

// reserveShell leases for the shell and prints the variables of the lease.
func reserveShell(p *cli.Program, cmd *cobra.Command, o *reserveOptions, spec job.Spec) error {
	write, err := writerOf(o.shell)
	if err != nil {
		return err
	}

	keep, err := saveVariables(p, cmd, o.save)
	if err != nil {
		return err
	}

	h, err := leases.HoldShell(cmd.Context(), p.Host, spec)
	if err != nil {
		return err
	}

	return deliverAnswer(p, cmd, h, func() error {
		vars, err := keep(h.Variables, h)
		if err != nil {
			return err
		}

		for _, n := range h.Notes {
			_ = p.PrintMessage(n)
		}

		if h.Lease != "" {
			fmt.Fprintln(p.Err, "gpuard: "+p.Host.Localize(h.PlanLine()+", until this shell ends"+limitText(h)))
		}

		return write(p.Out, vars, nil)
	})
}

// deliverAnswer writes the answer, and gives the lease back if that fails. It catches SIGPIPE so that a closed pipe is
// an error of the write and does not kill gpuard.
func deliverAnswer(p *cli.Program, cmd *cobra.Command, h *leases.HeldLease, write func() error) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	err := write()
	if err != nil {
		return errors.Join(err, leases.UndoHold(cmd.Context(), p.Host, h))
	}

	return nil
}

// showReservation is the answer about a lease for a time or a process.
func showReservation(p *cli.Program, h *leases.HeldLease, asJSON bool) error {
	if asJSON {
		h.Notes = append(p.Remarks, h.Notes...)
		h.Plan = planview.WithLists(h.Plan)
		return cli.WriteJSON(p.Out, h)
	}

	for _, n := range h.Notes {
		_ = p.PrintMessage(n)
	}

	if h.Until == nil || h.Limit != "" {
		return p.Answer("%s, until process %d ends%s", h.PlanLine(), h.PID, limitText(h))
	}
	if err := p.Answer("%s, until %s", h.PlanLine(), untilText(*h.Until, time.Now())); err != nil {
		return err
	}

	return p.Answer("use it: GPUARD_LEASE=%s gpuard run -- COMMAND; give it back: gpuard release %[1]s", h.Lease)
}

// limitText says when a rule ends the lease of a process that still runs then; "" none does.
func limitText(h *leases.HeldLease) string {
	if h.Limit == "" {
		return ""
	}
	return fmt.Sprintf(", %s at the latest (policy: %s)", untilText(*h.Until, time.Now()), h.Limit)
}

// untilText is the end of a reservation; for less than a week, a day of the week says enough.
func untilText(end, now time.Time) string {
	if end.Sub(now) < 6*24*time.Hour {
		return end.Format("Mon 15:04")
	}
	return end.Format("Mon 2 Jan 2006 15:04")
}
