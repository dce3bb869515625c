package cli

import "github.com/spf13/cobra"

func (p *Program) top() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show devices, leases and processes on the whole screen",
		Long: `Shows the devices with their last seconds, who has them, processes without a
lease, and what waits, on the whole screen, each second. Keys: arrows choose a
row, s sorts, / filters, r releases a lease, e ends a process without a lease, d
takes the GPU out of use or back; each asks first. ? shows the keys, q or Ctrl-C
leaves.`,
		Example: "  gpuard top\n  gpuard top --machine demo",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error {
				if !p.term(p.Out).TTY {
					return usagef("cannot show a screen: this is no terminal; gpuard status shows the same once")
				}
				if p.Views.Top == nil {
					return p.view()
				}
				return p.Views.Top(cmd.Context(), p.watched())
			})
		},
	}
}
