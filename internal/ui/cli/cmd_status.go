package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
)

func (p *Program) status() *cobra.Command {
	var asJSON, record, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the devices: load, memory, health, and who uses them",
		Long: `Shows every device with load, memory, temperature, health, and who uses it since
when, with gpuard or without. Plain gpuard does the same. Exit code 1 when no
device can be read, with the reason.`,
		Example: `  gpuard status
  gpuard status --watch
  gpuard status --record > machine.json    to use with --machine machine.json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error {
				const why = "each is a different output"
				if err := refuseTogether(cmd, []conflict{{"json", "record", why}, {"json", "watch", why}, {"record", "watch", why}}); err != nil {
					return asUsage(err)
				}
				switch {
				case record:
					data, err := leases.Record(cmd.Context(), p.Host)
					if err == nil {
						_, err = p.Out.Write(data)
					}
					return err
				case watch && !asJSON:
					return p.watch(cmd.Context())
				}
				s, err := p.readStatus(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					err = writeJSON(p.Out, s)
				} else {
					Status(p.Out, s, p.term(p.Out))
				}
				if err == nil && len(s.Unavailable) > 0 {
					err = &silent{errors.New(s.Unavailable[0].Text)}
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "answer as one JSON object")
	f.BoolVar(&record, "record", false, "print the machine as a machine file, and nothing else")
	f.BoolVar(&watch, "watch", false, "show it again every two seconds, until q or Ctrl-C")
	return cmd
}
