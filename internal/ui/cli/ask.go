package cli

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
)

// addAsk is the flag of what can ask somebody which device is wanted.
func addAsk(cmd *cobra.Command, ask *bool) {
	cmd.Flags().BoolVar(ask, "ask", false, "ask which device: on the terminal, else in a window (zenity or kdialog)")
}

// asked is the spec with what a person answered, or as it is where nobody is to be asked.
func (p *Program) asked(cmd *cobra.Command, ask bool, spec job.Spec) (job.Spec, error) {
	if !ask {
		return spec, nil
	}
	if err := askable(cmd); err != nil {
		return spec, err
	}
	return run.Ask(cmd.Context(), p.Host, spec)
}

// askable finds the flags that leave nothing to ask.
func askable(cmd *cobra.Command) error {
	var conflicts []conflict
	for _, name := range []string{"device", "mig", "cpu"} {
		conflicts = append(conflicts, conflict{"ask", name, "the device is known"})
	}
	for _, name := range []string{"ranks", "torchrun"} {
		conflicts = append(conflicts, conflict{"ask", name, "the number of processes follows from that of the devices"})
	}
	if err := together(cmd, conflicts); err != nil {
		return asUsage(err)
	}
	return nil
}
