package cli

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
)

// addAsk adds --ask to a command that leases.
func addAsk(cmd *cobra.Command, ask *bool) {
	cmd.Flags().BoolVar(ask, "ask", false, "ask which device: on the terminal, else in a window (zenity or kdialog)")
}

// askDevice returns the spec with the device that the user chose, or unchanged without --ask.
func (p *Program) askDevice(cmd *cobra.Command, ask bool, spec job.Spec) (job.Spec, error) {
	if !ask {
		return spec, nil
	}
	if err := checkAsk(cmd); err != nil {
		return spec, err
	}
	return run.Ask(cmd.Context(), p.Host, spec)
}

// checkAsk refuses --ask with flags that already name the device.
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
