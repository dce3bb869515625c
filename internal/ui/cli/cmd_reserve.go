package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/core/job"
)

func (p *Program) reserve() *cobra.Command {
	var flags specFlags
	var wait waitFlags
	var howLong, note string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reserve --for TIME [flags]",
		Short: "Lease a GPU for a time, without a command",
		Long: `Leases now, or as soon as a GPU is free, for work by hand. The lease ends by
itself after that time, or earlier by gpuard release. Everything of yours that
is started with its name runs on it, one after the other or together.`,
		Example: `  gpuard reserve --for 8h --note "paper figures"
  GPUARD_LEASE=k3f9 gpuard run             a shell on it
  GPUARD_LEASE=k3f9 gpuard run -- python figures.py
  gpuard release k3f9                      give it back earlier`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := p.reserveSpec(cmd, &flags, &wait, howLong, note)
			if err != nil {
				return &failure{err, exit.Run(err)}
			}
			p.showStanding(asJSON)
			r, err := leases.Reserve(cmd.Context(), p.Host, spec)
			var refusal *job.Refusal
			if errors.As(err, &refusal) {
				refusal.Remedy = strings.ReplaceAll(refusal.Remedy, "--timeout", "--for")
			}
			if err != nil {
				return &failure{err, exit.Run(err)}
			}
			return p.deliver(cmd, &leases.Holding{Lease: r.Lease}, func() error { return p.showReservation(r, asJSON) })
		},
	}
	flags.add(p, cmd)
	wait.add(cmd)
	p.privateState(cmd)
	f := cmd.Flags()
	f.Lookup("cpu").Hidden = true // it is refused
	f.StringVar(&howLong, "for", "", "how long, a `TIME` such as 8h")
	f.StringVar(&note, "note", "", "`TEXT` for people, which status shows")
	f.BoolVar(&asJSON, "json", false, "answer as one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"1h", "4h", "8h", "1d"}, noFiles))
	_ = cmd.RegisterFlagCompletionFunc("note", cobra.NoFileCompletions)
	return cmd
}

func (p *Program) showReservation(r *leases.Reservation, asJSON bool) error {
	if asJSON {
		r.Notes = append(p.said, r.Notes...)
		r.Plan = withLists(r.Plan)
		return writeJSON(p.Out, r)
	}
	for _, n := range r.Notes {
		_ = p.tell(n)
	}
	_, err := fmt.Fprintf(p.Out, "%s, until %s\nuse it: GPUARD_LEASE=%[3]s gpuard run -- COMMAND; give it back: gpuard release %[3]s\n", claim.Announce(r.Plan, r.Lease), until(r.Until, time.Now()), r.Lease)
	return err
}

// until is the end of a reservation; for less than a week, a day of the week says enough.
func until(end, now time.Time) string {
	if end.Sub(now) < 6*24*time.Hour {
		return end.Format("Mon 15:04")
	}
	return end.Format("Mon 2 Jan 2006 15:04")
}

// reserveSpec checks the flags and returns what is to be leased.
func (p *Program) reserveSpec(cmd *cobra.Command, flags *specFlags, wait *waitFlags, howLong, note string) (spec job.Spec, err error) {
	if howLong == "" {
		return spec, usagef("cannot reserve without an end: write for how long, such as gpuard reserve --for 8h")
	}
	if err = refuseEmpty(cmd, "note"); err == nil {
		err = p.fill(cmd)
	}
	if err != nil {
		return spec, asUsage(err)
	}
	if spec, err = p.request(cmd, flags, nil); err == nil {
		spec.Waiting, err = wait.parse(p, cmd)
	}
	if err != nil {
		return spec, asUsage(p.atDefault(err))
	}
	if spec.CPU {
		return spec, usagef("cannot use --cpu with reserve: there is no GPU to lease; leave it out")
	}
	if spec.Timeout, err = duration("for", howLong); err != nil {
		return spec, asUsage(err)
	}
	spec.Name = cmp.Or(note, "reserved")
	return spec, nil
}
