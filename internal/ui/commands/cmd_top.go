package commands

import (
	"github.com/spf13/cobra"

	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func top(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show devices, leases and processes on the whole screen",
		Long: `Shows the devices with their last seconds, who has them, processes without a
lease, and what waits, on the whole screen, each second. Keys: arrows choose a
row, s sorts, / filters, r releases a lease, e ends a process without a lease, d
takes the GPU out of use or back; each asks first. ? shows the keys, q or Ctrl-C
leaves.`,
		Example: "  gpuard top\n  gpuard top --machine demo",
		Args:    flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failure.Report(func() error {
				if !p.Term(p.Out).TTY {
					return failure.Usagef("cannot show a screen: this is no terminal; gpuard status shows the same once")
				}
				if p.Views.Top == nil {
					return p.BecomeView()
				}
				return p.Views.Top(cmd.Context(), watched(p))
			})
		},
	}
}
