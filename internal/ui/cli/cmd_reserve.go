package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/core/job"
)

// reserveOptions are the flags of reserve.
type reserveOptions struct {
	spec          specFlags
	wait          waitFlags
	length, shell string
	pid           int
	note, save    string
	ask, json     bool
}

func (p *Program) reserve() *cobra.Command {
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
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.reserveWith(cmd, o); err != nil {
				return &failure{err, exit.Run(err)}
			}
			return nil
		},
	}
	o.spec.add(p, cmd)
	o.wait.add(cmd)
	p.privateState(cmd)
	addAsk(cmd, &o.ask)
	f := cmd.Flags()
	f.Lookup("cpu").Hidden = true // it is refused
	f.Lookup("fallback").Usage = "what to try in place of waiting, in order: other (drops --device and --model), wait; with --shell also cpu"
	f.StringVar(&o.length, "for", "", "how long, a `TIME` such as 8h")
	f.IntVar(&o.pid, "pid", 0, "until this process ends: its `PID`, such as $$ for this shell")
	f.StringVar(&o.shell, "shell", "", "until this shell ends, which evaluates the output: `FORM` sh (also bash, zsh) or fish")
	f.Lookup("shell").NoOptDefVal = "sh"
	addOption(cmd, "note", &o.note)
	f.StringVar(&o.save, "save", "", "with --shell: save the variables as they were before, under the name `ID`; gpuard env --restore puts them back")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"1h", "4h", "8h", "1d"}, noFiles))
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions([]string{"sh", "fish"}, noFiles))
	_ = cmd.RegisterFlagCompletionFunc("pid", p.ownProcesses)
	return cmd
}

// reserveWith leases for what the flags name.
func (p *Program) reserveWith(cmd *cobra.Command, o *reserveOptions) error {
	spec, err := p.reserveSpec(cmd, o)
	if err != nil {
		return err
	}
	p.showStanding(o.json)
	switch {
	case o.length != "":
		return p.reserveTime(cmd, o, spec)
	case cmd.Flags().Changed("pid"):
		h, err := leases.Hold(cmd.Context(), p.Host, spec, o.pid)
		if err != nil {
			return err
		}
		return p.deliver(cmd, h, func() error { return p.showReservation(h, o.json) })
	}
	return p.reserveShell(cmd, o, spec)
}

// reserveSpec checks the flags and returns what is to be leased.
func (p *Program) reserveSpec(cmd *cobra.Command, o *reserveOptions) (spec job.Spec, err error) {
	if err := p.checkReserve(cmd, o); err != nil {
		return spec, asUsage(err)
	}
	if err := p.fill(cmd); err != nil {
		return spec, err
	}
	if spec, err = p.request(cmd, &o.spec, nil); err == nil {
		spec.Waiting, err = o.wait.parse(p, cmd)
	}
	switch {
	case err != nil:
		return spec, asUsage(p.atDefault(err))
	case spec.CPU:
		return spec, usagef("cannot use --cpu with reserve: there is no GPU to lease; variables that hide all GPUs: gpuard env --cpu")
	case o.length != "":
		if spec.Timeout, err = duration("for", o.length); err != nil {
			return spec, asUsage(err)
		}
		spec.Name = cmp.Or(o.note, "reserved")
	}
	return p.askDevice(cmd, o.ask, spec)
}

// checkReserve refuses flags of which not exactly one says when the lease ends, and those that do not go with it.
func (p *Program) checkReserve(cmd *cobra.Command, o *reserveOptions) error {
	const once = "a lease ends in one way"
	err := refuseTogether(cmd, []conflict{
		{"for", "pid", once}, {"for", "shell", once}, {"pid", "shell", once},
		{"note", "pid", "the lease is called as the process"}, {"note", "shell", "the lease is called as the shell"},
		{"save", "for", "no shell gets variables"}, {"save", "pid", "no shell gets variables"},
		{"json", "shell", "a shell evaluates the output"},
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
	case form && p.term(p.Out).TTY:
		return fmt.Errorf("cannot lease: no shell evaluates the output, which goes to the terminal; type: %s", evalLine(o.shell))
	}
	return nil
}

// evalLine is the command line by which a shell leases for itself.
func evalLine(form string) string {
	if form == "fish" {
		return "gpuard reserve --shell=fish | source"
	}
	return `eval "$(gpuard reserve --shell)"`
}

// reserveTime leases for a time.
func (p *Program) reserveTime(cmd *cobra.Command, o *reserveOptions, spec job.Spec) error {
	h, err := leases.Reserve(cmd.Context(), p.Host, spec)
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		refusal.Remedy = strings.ReplaceAll(refusal.Remedy, "--timeout", "--for")
	}
	if err != nil {
		return err
	}
	return p.deliver(cmd, h, func() error { return p.showReservation(h, o.json) })
}

// reserveShell leases for the shell and prints the variables of the lease.
func (p *Program) reserveShell(cmd *cobra.Command, o *reserveOptions, spec job.Spec) error {
	write, err := writerOf(o.shell)
	if err != nil {
		return err
	}
	keep, err := p.saveVariables(cmd, o.save)
	if err != nil {
		return err
	}
	h, err := leases.HoldShell(cmd.Context(), p.Host, spec)
	if err != nil {
		return err
	}
	return p.deliver(cmd, h, func() error {
		vars, err := keep(h.Variables, h)
		if err != nil {
			return err
		}
		for _, n := range h.Notes {
			_ = p.tell(n)
		}
		if h.Lease != "" {
			fmt.Fprintf(p.Err, "gpuard: %s, until this shell ends\n", h.Announce())
		}
		return write(p.Out, vars, nil)
	})
}

// deliver writes the answer, and gives the lease back if that fails. It catches SIGPIPE so that a closed pipe is an
// error of the write and does not kill gpuard.
func (p *Program) deliver(cmd *cobra.Command, h *leases.Holding, write func() error) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	err := write()
	if err == nil {
		return nil
	}
	return errors.Join(err, leases.Undo(cmd.Context(), p.Host, h))
}

// showReservation is the answer about a lease for a time or a process.
func (p *Program) showReservation(h *leases.Holding, asJSON bool) error {
	if asJSON {
		h.Notes = append(p.said, h.Notes...)
		h.Plan = withLists(h.Plan)
		return writeJSON(p.Out, h)
	}
	for _, n := range h.Notes {
		_ = p.tell(n)
	}
	if h.Until == nil {
		_, err := fmt.Fprintf(p.Out, "%s, until process %d ends\n", h.Announce(), h.PID)
		return err
	}
	_, err := fmt.Fprintf(p.Out, "%s, until %s\nuse it: GPUARD_LEASE=%[3]s gpuard run -- COMMAND; give it back: gpuard release %[3]s\n", h.Announce(), until(*h.Until, time.Now()), h.Lease)
	return err
}

// until is the end of a reservation; for less than a week, a day of the week says enough.
func until(end, now time.Time) string {
	if end.Sub(now) < 6*24*time.Hour {
		return end.Format("Mon 15:04")
	}
	return end.Format("Mon 2 Jan 2006 15:04")
}
