package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/manual"
)

func setupMachine(p *cli.Program) *cobra.Command {
	t := setupFlags{system: true}
	return t.addFlags(&cobra.Command{
		Use:   "machine [flags]",
		Short: "For all users, by root: leases, policy, manual",
		Long: `Makes /run/gpuard, now and at each boot (by tmpfiles.d): a folder for the leases
that root owns, where no user can touch another's. Writes a policy to fill in,
/etc/gpuard/config.yaml, in which every line is a comment, unless there is one.
Lets logins see the GPUs that its "login" key allows: all of them by default.
Installs the manual and completions for bash, zsh and fish. Files that a package
of gpuard has installed are not changed.`,
		Example: `  sudo gpuard setup machine
  gpuard setup machine --dry-run           what it would write
  sudo gpuard setup machine --remove`,
		Args: flagset.NoArguments,
		RunE: func(_ *cobra.Command, _ []string) error {
			scripts, err := cli.Completions(cli.CommandTree(p.Commands))
			if err != nil {
				return err
			}

			m := setup.Machine{Setup: &setup.Setup{Host: p.Host, System: true}, Pages: map[string]string{}, Completions: scripts}
			for _, page := range manual.ManPages(cli.CommandTree(p.Commands), cli.Version()) {
				m.Pages[page.Name] = page.Text
			}

			if !t.dry {
				if err := m.CheckRoot(t.remove); err != nil {
					return err
				}
			}

			return runSetup(p, &t, setupPart{m.Key, m.Wish})
		},
	})
}
