package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
)

func (p *Program) hold() *cobra.Command {
	var flags specFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hold [flags] PID",
		Short: "Lease a GPU for the life of a process that runs already",
		Long: `Leases for a shell, a notebook or any other process of yours, and frees the
device when that process ends. A process that is on devices already gets those.
It keeps the environment it has: hold cannot change what it sees, and says so
when the process does not see what was leased.
For your own shell: eval "$(gpuard env --lease)".`,
		Example: `  gpuard hold 4242                 the GPU that process 4242 uses, or a free one
  gpuard hold --device 1 $$        GPU 1 for this shell`,
		Args: oneProcess, ValidArgsFunction: p.ownProcesses,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := flags.spec(cmd, nil)
			if err != nil {
				return &failure{err, 125}
			}
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return &failure{usagef("cannot hold for %q: write a process id, such as gpuard hold $$", args[0]), 125}
			}
			if spec.CPU {
				return &failure{usagef("cannot hold no GPU: leave --cpu out"), 125}
			}
			h, err := p.App.Hold(cmd.Context(), spec, pid)
			if err != nil {
				return &failure{err, app.RunExit(err)}
			}
			if asJSON {
				return writeJSON(p.Out, h)
			}
			for _, n := range h.Notes {
				fmt.Fprintln(p.Err, "gpuard: "+n)
			}
			fmt.Fprintf(p.Out, "%s, until process %d ends\n", h.Announce(), h.PID)
			return nil
		},
	}
	flags.add(p, cmd)
	p.privateState(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	return cmd
}

func oneProcess(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("cannot hold for %d processes: write one process id, such as gpuard hold $$", len(args))
	}
	return nil
}
