package projectcmd

import (
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
	"gpuard/internal/ui/translate"
)

// NewSuperviseCommand is the hidden command that up, down and restart start in the background.
func NewSuperviseCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "project-supervise DIR", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Start and end the services of a project (gpuard up starts this)",
		RunE: func(cmd *cobra.Command, args []string) error {
			return failure.WithExitCode(func() error { return services.SuperviseProject(cmd.Context(), p.Host, args[0]) })
		},
	}
}

// NewKeepCommand is the hidden command that a supervisor starts for each instance. Its flags are those of run.
func NewKeepCommand(p *cli.Program) *cobra.Command {
	o, hash := &jobflags.RunOptions{}, ""
	cmd := &cobra.Command{
		Use: "project-keep DIR INSTANCE [flags] [-- COMMAND [ARG...]]", Hidden: true, Args: cobra.MinimumNArgs(2),
		Short: "Look after one instance of a service (gpuard up starts this)",
		RunE: func(cmd *cobra.Command, args []string) error {
			task := services.Task{Dir: args[0], Instance: args[1], Hash: hash}
			task.Standing = func(s status.Standing) string { return planview.StandingLine(s, time.Now(), translate.Language{}, 0) }
			if hash != "" {
				p.Host.Project = services.InstancePolicy(args[0], args[1], hash)
				var care *job.Care
				var err error
				task.Spec, care, err = o.Parse(p, cmd, args[2:])
				if err == nil {
					// It has a log.
					task.Care = *care
					task.Oversight, err = jobflags.ReadVerify(p, cmd, o.Verify)
				}

				if err != nil {
					// Keep refuses the instance with this error.
					task.Mistake = err
				}
			}

			return failure.WithExitCode(func() error { return services.KeepInstance(cmd.Context(), p.Host, task) })
		},
	}

	cmd.Flags().StringVar(&hash, "instance-hash", "", "which start of the instance is meant")
	o.Add(p, cmd)

	return cmd
}
