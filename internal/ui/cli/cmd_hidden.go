package cli

import (
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
)

// superviseProject is the hidden command that up, down and restart start in the background.
func (p *Program) superviseProject() *cobra.Command {
	return &cobra.Command{
		Use: "project-supervise DIR", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Start and end the services of a project (gpuard up starts this)",
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return services.Supervise(cmd.Context(), p.Host, args[0]) })
		},
	}
}

// keepInstance is the hidden command that a supervisor starts for each instance. Its flags are those of run.
func (p *Program) keepInstance() *cobra.Command {
	o, hash := &runOptions{}, ""
	cmd := &cobra.Command{
		Use: "project-keep DIR INSTANCE [flags] [-- COMMAND [ARG...]]", Hidden: true, Args: cobra.MinimumNArgs(2),
		Short: "Look after one instance of a service (gpuard up starts this)",
		RunE: func(cmd *cobra.Command, args []string) error {
			task := services.Task{Dir: args[0], Instance: args[1], Hash: hash}
			task.Standing = func(s status.Standing) string { return Standing(s, time.Now(), 0) }
			if hash != "" {
				p.Host.Project = services.Policy(args[0], args[1], hash)
				var care *job.Care
				var err error
				if task.Spec, care, err = o.parse(p, cmd, args[2:]); err == nil {
					task.Care = *care // it has a log
					task.Oversight, err = p.verifyFlag(cmd, o.verify)
				}
				if err != nil { // Keep refuses the instance with this error
					task.Mistake = err
				}
			}
			return report(func() error { return services.Keep(cmd.Context(), p.Host, task) })
		},
	}
	cmd.Flags().StringVar(&hash, "instance-hash", "", "which start of the instance is meant")
	o.add(p, cmd)
	return cmd
}
