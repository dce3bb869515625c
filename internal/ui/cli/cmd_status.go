package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
)

type statusOptions struct {
	json, record, bus bool
	watch             string
	only              []string
}

func (p *Program) status() *cobra.Command {
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && o.watch == everyTwoSeconds { // --watch 1
				o.watch = args[0]
				return nil
			}
			return noArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error { return p.statusWith(cmd, &o) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVar(&o.record, "record", false, "print the machine as a machine file, and nothing else")
	f.StringVar(&o.watch, "watch", "", "show it again after each `TIME`, such as 1s, until q or Ctrl-C")
	f.Lookup("watch").NoOptDefVal = everyTwoSeconds
	listVar(f, &o.only, "device", nil, "only the devices of this `LIST`, named as for gpuard run")
	f.BoolVar(&o.bus, "pci", false, "show GPUs on the PCI bus, also those without a driver")
	_ = cmd.RegisterFlagCompletionFunc("watch", cobra.FixedCompletions([]string{"1s", "2s", "10s", "1m"}, noFiles))
	p.completeDevices(cmd, "device")
	return cmd
}

func (p *Program) statusWith(cmd *cobra.Command, o *statusOptions) error {
	const why = "each is a different output"
	if err := refuseTogether(cmd, []conflict{
		{"json", "record", why}, {"json", "watch", why}, {"record", "watch", why}, {"pci", "record", why}, {"pci", "watch", why},
		{"pci", "device", "it lists the whole bus"}, {"record", "device", "a machine file has the whole machine"},
	}); err != nil {
		return asUsage(err)
	}
	switch {
	case o.bus:
		return p.showBus(cmd.Context(), o.json)
	case o.record:
		data, err := leases.Record(cmd.Context(), p.Host)
		if err == nil {
			_, err = p.Out.Write(data)
		}
		return err
	case cmd.Flags().Changed("watch"):
		every, err := interval(o.watch)
		if err != nil {
			return asUsage(err)
		}
		return p.watch(cmd.Context(), every, o.only)
	}
	s, err := p.readStatus(cmd.Context(), o.only)
	if err != nil {
		return err
	}
	if o.json {
		err = writeJSON(p.Out, s)
	} else {
		Status(p.Out, s, p.term(p.Out))
	}
	if err == nil && len(s.Unavailable) > 0 {
		err = &silent{errors.New(s.Unavailable[0].Text)}
	}
	return err
}
