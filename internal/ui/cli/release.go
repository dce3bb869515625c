package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *Program) release() *cobra.Command {
	return &cobra.Command{
		Use:   "release LEASE",
		Short: "End a lease whose command is gone but which something still holds",
		Long: `A lease ends with its command. If a helper that the command started (a tmux server, a daemon) still has the lease's
descriptor open, gpuard status says who, and release ends the lease. A lease whose command runs is not released: end the
command instead.`,
		Example: "  gpuard release k3f9",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.App.OwnLeases(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error {
				l, err := p.App.Release(cmd.Context(), args[0])
				if err == nil {
					fmt.Fprintf(p.Out, "released %s\n", l.ID)
				}
				return err
			})
		},
	}
}
