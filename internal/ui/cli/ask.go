package cli

import (
	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
)

// addAsk is the flag of what can ask somebody which device is wanted.
func addAsk(cmd *cobra.Command, ask *bool) {
	cmd.Flags().BoolVar(ask, "ask", false, "ask which device: on the terminal, else in a window (zenity or kdialog)")
}

// asked is the spec with what a person answered, or as it is where nobody is to be asked.
func (p *Program) askDevice(cmd *cobra.Command, ask bool, spec job.Spec) (job.Spec, error) {
	if !ask {
		return spec, nil
	}
	if err := checkAsk(cmd); err != nil {
		return spec, err
	}
	return p.App.Ask(cmd.Context(), spec)
}

// askable finds the flags that leave nothing to ask.
func checkAsk(cmd *cobra.Command) error {
	var conflicts []conflict
	for _, name := range []string{"device", "mig", "cpu"} {
		conflicts = append(conflicts, conflict{"ask", name, "the device is already given"})
	}
	for _, name := range []string{"ranks", "torchrun"} {
		conflicts = append(conflicts, conflict{"ask", name, "the number of devices sets the number of processes"})
	}
	if err := refuseTogether(cmd, conflicts); err != nil {
		return asUsage(err)
	}
	return nil
}
