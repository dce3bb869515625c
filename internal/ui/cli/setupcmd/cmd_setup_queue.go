package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
)

func setupQueue(p *cli.Program) *cobra.Command {
	var t setupFlags
	return t.addFlags(&cobra.Command{
		Use:   "queue [flags]",
		Short: "The jobs of gpuard submit go on after a boot",
		Long: `Writes a unit for your own manager of systemd that starts your queue. Without it
the queue goes on after a boot as soon as you type gpuard queue.`,
		Example: "  gpuard setup queue\n  gpuard setup queue --remove",
		Args:    flagset.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			s := &setup.Setup{Host: p.Host}
			t.after = setup.Systemd{Setup: s, Unit: "gpuard-queue", User: true}.AfterRemoval
			return runSetup(p, &t, setupPart{func() (string, error) { return "queue", nil }, s.QueueWish})
		},
	})
}
