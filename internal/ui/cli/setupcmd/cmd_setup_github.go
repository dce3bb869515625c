package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
)

func setupGitHub(p *cli.Program) *cobra.Command {
	var t setupFlags
	cmd := t.addFlags(&cobra.Command{
		Use:   "github [flags] [-- COMMAND...]",
		Short: "A workflow that tests without a GPU and with one",
		Long: `Writes .github/workflows/gpuard.yml into this repository: COMMAND (pytest, if you
name none) runs on a runner of GitHub without a GPU and on one of your own with
GPUs, by the same line. Add what else the tests need yourself.`,
		Example: `  gpuard setup github
  gpuard setup github -- pytest -x tests/gpu
  gpuard setup github --remove`,
		RunE: func(_ *cobra.Command, args []string) error {
			g := setup.GitHub{Host: p.Host, Command: args}
			if len(args) == 0 {
				g.Command = []string{"pytest"}
			}
			return runSetup(p, &t, setupPart{g.Key, g.Wish})
		},
	})

	cmd.Flags().SetInterspersed(false)

	return cmd
}
