package setupcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/setup"
	"gpuard/internal/core/container"
	"gpuard/internal/core/gpu"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// NewCDICommand makes gpuard cdi.
func NewCDICommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "cdi [nvidia|amd]",
		Short: "Print the GPUs for container engines (CDI)",
		Long: `Prints a CDI file, by which container engines give GPUs to containers: an entry
for each GPU by UUID, one by index, and all. With NVIDIA's GPUs it has the
libraries of the driver too. sudo gpuard setup cdi writes it to /etc/cdi.`,
		Example: `  gpuard cdi
  sudo gpuard setup cdi                    writes it to /etc/cdi
  podman run --device nvidia.com/gpu=0 ...   without gpuard`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{"nvidia", "amd"},
		RunE: func(cmd *cobra.Command, args []string) error {
			vendor := gpu.NVIDIA
			if len(args) > 0 {
				vendor = gpu.Vendor(args[0])
			}

			if container.CDIKinds()[vendor] == "" {
				return failure.Usagef("cannot describe the GPUs of %q for containers: write nvidia or amd", string(vendor))
			}

			spec, notes, err := engine.MachineSpec(cmd.Context(), p.Host, vendor)
			if err != nil {
				return err
			}

			for _, note := range notes {
				fmt.Fprintln(p.Err, "gpuard: "+note)
			}

			return cli.WriteJSON(p.Out, spec)
		},
	}
}

func setupCDI(p *cli.Program) *cobra.Command {
	t := setupFlags{system: true}
	return t.addFlags(&cobra.Command{
		Use:   "cdi [flags]",
		Short: "For all users, by root: the GPUs for container engines",
		Long: `Writes /etc/cdi/gpuard-nvidia.json or gpuard-amd.json, by which Podman and Docker
give single GPUs to containers. A file of the vendor that lists them is used and
not replaced. gpuard cdi prints the same.`,
		Example: `  sudo gpuard setup cdi
  gpuard setup cdi --dry-run               what it would write
  sudo gpuard setup cdi --remove`,
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := setup.CDI{Host: p.Host}
			if !t.dry {
				if err := c.CheckRoot(); err != nil {
					return err
				}
			}
			return runSetup(p, &t, setupPart{c.Key, func() (setup.ChangePlan, error) { return c.Wish(cmd.Context()) }})
		},
	})
}
