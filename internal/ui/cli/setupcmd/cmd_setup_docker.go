package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func setupDocker(p *cli.Program) *cobra.Command {
	var t setupFlags
	var file string
	cmd := t.addFlags(&cobra.Command{
		Use:   "docker --compose FILE [flags]",
		Short: "A project of Docker Compose: its services get leased GPUs",
		Long: `Writes compose.override.yaml beside FILE, which Compose reads by itself: every
service that asks for GPUs gets those of a lease. From then on the project is
started by gpuard docker -- compose up. docker compose ps, logs, stop and down
work as before.`,
		Example: `  gpuard setup docker --compose compose.yaml
  gpuard docker -- compose up -d
  gpuard setup docker --compose compose.yaml --remove`,
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return failure.Usagef("cannot set up docker without a project: write --compose compose.yaml; single containers need no setup: gpuard docker -- run IMAGE")
			}
			d := setup.Docker{Setup: &setup.Setup{Host: p.Host}, File: file}
			return runSetup(p, &t, setupPart{d.Key, func() (setup.ChangePlan, error) { return d.Wish(cmd.Context()) }})
		},
	})

	cmd.Flags().StringVar(&file, "compose", "", "the project's file")

	return cmd
}
