package setupcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
)

func setupDirenv(p *cli.Program) *cobra.Command {
	var t setupFlags
	var c deviceChoice
	cmd := t.addFlags(&cobra.Command{
		Use:   "direnv [flags] [FOLDER]",
		Short: "A choice of GPUs for a folder, in its .envrc",
		Long: `Adds a block to FOLDER/.envrc (here, without FOLDER), so that direnv sets the
variables of these devices on the way in and takes them away on the way out.
direnv cannot keep a lease: start what needs one by gpuard run.`,
		Example: `  gpuard setup direnv --device 0
  gpuard setup direnv --cpu notebooks      no GPU in that folder
  gpuard setup direnv --remove`,
		Args: flagset.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags, err := c.flagWords(p, cmd)
			if err != nil {
				return err
			}

			d := setup.Direnv{Setup: &setup.Setup{Host: p.Host}, Folder: strings.Join(args, ""), Flags: flags}
			t.doubts = c.doubtNotes(p, cmd)

			return runSetup(p, &t, setupPart{d.Key, d.Wish})
		},
	})

	c.Add(p, cmd)

	return cmd
}
