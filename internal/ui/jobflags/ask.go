package jobflags

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// AddAsk adds --ask to a command that leases.
func AddAsk(cmd *cobra.Command, ask *bool) {
	cmd.Flags().BoolVar(ask, "ask", false, "ask which device: on the terminal, else in a window (zenity or kdialog)")
}

// AskDevice returns the spec with the device that the user chose, or unchanged without --ask.
func AskDevice(p *cli.Program, cmd *cobra.Command, ask bool, spec job.Spec) (job.Spec, error) {
	if !ask {
		return spec, nil
	}
	if err := CheckAsk(cmd); err != nil {
		return spec, err
	}
	return run.AskForDevice(cmd.Context(), p.Host, spec)
}

// CheckAsk refuses --ask with flags that already name the device.
func CheckAsk(cmd *cobra.Command) error {
	var conflicts []flagset.Conflict
	for _, name := range []string{"device", "mig", "cpu"} {
		conflicts = append(conflicts, flagset.Conflict{One: "ask", Other: name, Why: "the device is already given"})
	}

	for _, name := range []string{"ranks", "torchrun"} {
		conflicts = append(conflicts, flagset.Conflict{One: "ask", Other: name, Why: "the number of devices sets the number of processes"})
	}

	if err := flagset.RefuseTogether(cmd, conflicts); err != nil {
		return failure.AsUsage(err)
	}

	return nil
}
