// Package seecmd has the commands that show how GPUs are, or would be, used: status, compare, simulate.
package seecmd

import (
	"errors"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

type statusOptions struct {
	json, record, bus bool
	watch             string
	only              []string
}

// NewStatusCommand makes gpuard status.
func NewStatusCommand(p *cli.Program) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the GPUs: load, memory, health, who uses them",
		Long: `Shows every device with load, memory, temperature, health, and who uses it since
when, with gpuard or without. Plain gpuard does the same. Exit code 1 when no
device can be read, with the reason.`,
		Example: `  gpuard status
  gpuard status --watch=1s --device 0,1
  gpuard status --pci                      the cards on the bus
  gpuard status --record > machine.json    to use with --machine machine.json`,
		Args: flagset.IntervalArgument(&o.watch),
		RunE: func(cmd *cobra.Command, _ []string) error { return statusWith(p, cmd, &o) },
	}

	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVar(&o.record, "record", false, "print the machine as a machine file, and nothing else")
	f.StringVar(&o.watch, "watch", "", "show it again after each `TIME`, such as 1s, until q or Ctrl-C")
	f.Lookup("watch").NoOptDefVal = flagset.EveryTwoSeconds
	flagset.ListVar(f, &o.only, "device", nil, "only the devices of this `LIST`, named as for gpuard run")
	f.BoolVar(&o.bus, "pci", false, "show GPUs on the PCI bus, also those without a driver")
	_ = cmd.RegisterFlagCompletionFunc("watch", cobra.FixedCompletions([]string{"1s", "2s", "10s", "1m"}, flagset.NoFiles))
	p.CompleteDevices(cmd, "device")

	return cmd
}

func statusWith(p *cli.Program, cmd *cobra.Command, o *statusOptions) error {
	const why = "each is a different output"
	if err := flagset.RefuseTogether(cmd, []flagset.Conflict{
		{One: "json", Other: "record", Why: why}, {One: "json", Other: "watch", Why: why}, {One: "record", Other: "watch", Why: why}, {One: "pci", Other: "record", Why: why}, {One: "pci", Other: "watch", Why: why},
		{One: "pci", Other: "device", Why: "it lists the whole bus"}, {One: "record", Other: "device", Why: "a machine file has the whole machine"},
	}); err != nil {
		return failure.AsUsage(err)
	}

	switch {
	case o.bus:
		return showBus(cmd.Context(), p, o.json)
	case o.record:
		data, err := leases.RecordMachine(cmd.Context(), p.Host)
		if err != nil {
			return err
		}
		_, err = p.Out.Write(data)

		return err
	case cmd.Flags().Changed("watch"):
		every, err := flagset.ReadInterval(o.watch)
		if err != nil {
			return failure.AsUsage(err)
		}
		return watchStatus(cmd.Context(), p, every, o.only)
	}

	s, err := readStatus(cmd.Context(), p, o.only)
	if err != nil {
		return err
	}

	err = p.Show(o.json, s, func(v *console.Page) { v.Out.WriteString(statusText(s, v.Term)) })
	if err == nil && len(s.Unavailable) > 0 {
		err = &failure.ShownError{Err: errors.New(s.Unavailable[0].Text)}
	}

	return err
}
