package runcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/ui/cli"
)

// NewReleaseCommand makes gpuard release.
func NewReleaseCommand(p *cli.Program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "release [LEASE]",
		Short: "Give a reserved GPU back before its time",
		Long: `A lease ends with its command. If a process that the command started (a tmux
server, a daemon) still has the lease's descriptor open, gpuard status shows it,
and release ends the lease. A lease of gpuard reserve can be given back at any
time; its process keeps running with the variables that it has. The lease of
a running command of gpuard run is not released: end the command instead. In a
shell with a lease, release alone gives that one back.`,
		Example: "  gpuard release k3f9\n  gpuard release       the lease of this shell",
		Args:    oneLease(p),
		ValidArgsFunction: cli.Complete(func(ctx context.Context, args []string, _ string) []string {
			if len(args) > 0 {
				return nil
			}
			return leases.OwnLeases(ctx, p.Host)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				lease, _ := p.Host.Env.Lookup("GPUARD_LEASE")
				args = []string{lease}
			}

			l, err := leases.Release(cmd.Context(), p.Host, args[0])
			if err == nil && asJSON {
				return cli.WriteJSON(p.Out, releasedAnswer{"gpuard.release/1", l.ID})
			}

			switch {
			case err != nil:
			case l.IsReservation():
				_ = p.Answer("released %s", l.ID)
			case l.Apart && isInLease(p, l.ID):
				_ = p.Answer("released %s; process %d keeps running with the variables that it has: for other GPUs open a new shell, or write gpuard run --any", l.ID, l.PID)
			case l.Apart:
				_ = p.Answer("released %s; process %d keeps running with the variables that it has", l.ID, l.PID)
			case l.StoppedHolder() != nil:
				_ = p.Answer("released %s; process %d, which held it, is stopped: kill -CONT %[2]d continues it", l.ID, l.StoppedHolder().PID)
			default:
				_ = p.Answer("released %s", l.ID)
			}

			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")

	return cmd
}

// isInLease reports whether the caller runs in this lease.
func isInLease(p *cli.Program, lease string) bool {
	mine, _ := p.Host.Env.Lookup("GPUARD_LEASE")
	return mine == lease
}

// releasedAnswer is the JSON answer of release.
type releasedAnswer struct {
	Schema string `json:"schema"` // "gpuard.release/1"
	// The lease that has ended.
	Lease string `json:"lease"`
}

// oneLease accepts the name of a lease, or none inside of one.
func oneLease(p *cli.Program) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && !isInLease(p, ""):
			return nil
		case len(args) == 0:
			return errors.New("cannot release: name the lease, such as gpuard release k3f9; gpuard status lists them")
		case len(args) > 1:
			return fmt.Errorf("cannot release %d leases with one command: name one", len(args))
		}
		return nil
	}
}
