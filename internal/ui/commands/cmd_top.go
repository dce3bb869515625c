package commands

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// topThemes are the colours that gpuard top can be asked for.
func topThemes() []string { return []string{"auto", "dark", "light", "mono"} }

func topCommand(p *cli.Program) *cobra.Command {
	theme := ""
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show devices, jobs and what waits on the whole screen",
		Long: `Shows on the whole screen, each second: how many devices are free, when the
next request gets one and what is broken; for each device a band of its load
over time, with who had it; the jobs with their load, memory, and what they use
of processors and main memory; processes without a lease; and what waits, with
when and why. The last day is there if gpuard serve has watched it.

Keys: arrows choose a row, s sorts, / filters, u shows one user, t shows the
processes of each job, + and - change the time of the bands, o opens the log of
your job. x ends your job, r releases a lease, e ends a process without one, d
takes a GPU out of use or back; each asks first. ? shows all keys, q leaves.
NO_COLOR is obeyed: each colour is said in words, too.`,
		Example: "  gpuard top\n  gpuard top --theme light\n  gpuard top --machine demo",
		Args:    flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(topThemes(), theme) {
				return failure.Usagef("cannot use --theme %q: it is one of %s", theme, strings.Join(topThemes(), ", "))
			}
			if !p.Term(p.Out).TTY {
				return failure.Usagef("cannot show a screen: this is no terminal; gpuard status shows the same once")
			}
			if p.Views.Top == nil {
				return p.BecomeView()
			}

			view := newView(p)
			view.Theme = theme

			return p.Views.Top(cmd.Context(), view)
		},
	}

	cmd.Flags().StringVar(&theme, "theme", "auto", "colours for this `BACKGROUND`: auto, dark, light; or mono")
	_ = cmd.RegisterFlagCompletionFunc("theme", cobra.FixedCompletions(topThemes(), flagset.NoFiles))

	return cmd
}
