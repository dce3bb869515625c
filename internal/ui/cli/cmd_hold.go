package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
)

func (p *Program) hold() *cobra.Command {
	var flags specFlags
	var wait waitFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hold [flags] PID",
		Short: "Lease a GPU for the life of a process that runs already",
		Long: `Leases for a shell, a notebook or any other process of yours. The lease ends
with that process, or by gpuard release. A process that uses devices already
gets a lease of these. Any other gets devices that it sees by the variables of
its start, which hold cannot change. A process that has a lease keeps it.
For your own shell: eval "$(gpuard env --lease)".`,
		Example: `  gpuard hold 4242                 the GPU that process 4242 uses, or a free one
  gpuard hold --device 1 $$        GPU 1 for this shell`,
		Args: oneProcess, ValidArgsFunction: p.ownProcesses,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.fill(cmd); err != nil {
				return &failure{err, 125}
			}
			spec, err := p.request(cmd, &flags, nil)
			if err == nil {
				spec.Waiting, err = wait.parse(p, cmd)
			}
			if err != nil {
				return &failure{p.atDefault(err), 125}
			}
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return &failure{usagef("cannot hold for %q: write a process id, such as gpuard hold $$", args[0]), 125}
			}
			if spec.CPU {
				return &failure{usagef("cannot use --cpu with hold: there is no GPU to lease; leave it out"), 125}
			}
			p.showStanding(asJSON)
			h, err := leases.Hold(cmd.Context(), p.Host, spec, pid)
			if err != nil {
				return &failure{err, exit.Run(err)}
			}
			return p.deliver(cmd, h, func() error { return p.showHolding(h, asJSON) })
		},
	}
	flags.add(p, cmd)
	wait.add(cmd)
	p.privateState(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	return cmd
}

func (p *Program) showHolding(h *leases.Holding, asJSON bool) error {
	if asJSON {
		h.Notes = append(p.said, h.Notes...)
		h.Plan = withLists(h.Plan)
		return writeJSON(p.Out, h)
	}
	for _, n := range h.Notes {
		_ = p.tell(n)
	}
	_, err := fmt.Fprintf(p.Out, "%s, until process %d ends\n", h.Announce(), h.PID)
	return err
}

func oneProcess(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("cannot hold for %d processes: write one process id, such as gpuard hold $$", len(args))
	}
	return nil
}
