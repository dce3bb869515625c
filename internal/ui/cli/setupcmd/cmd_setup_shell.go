package setupcmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/policy"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func setupShell(p *cli.Program) *cobra.Command {
	var t setupFlags
	var noPrompt bool
	var login string
	logins := []string{string(policy.LoginNone), string(policy.LoginAllowed)}
	cmd := t.addFlags(&cobra.Command{
		Use:   "shell [flags] [bash | zsh | fish]",
		Short: "Completion, the lease in the prompt, logins without GPUs",
		Long: `Adds a block to ~/.bashrc or ~/.zshrc, or files for fish: completion by the Tab
key, and the lease before the prompt, such as [gpu 2 k3f9]; [no gpu] under --cpu.
Without a name it is for your login shell. Nothing is started before the first
Tab.

With --login an interactive shell that has no lease sees no GPU, or with
--login=allowed those that the rules in config.yaml give you. gpuard run still
gets a GPU. sudo gpuard setup machine does that for all users.`,
		Example: `  gpuard setup shell                       for your login shell
  gpuard setup shell fish --no-prompt
  gpuard setup shell --login               no GPU without a lease
  gpuard setup shell --remove`,
		Args: flagset.OneArgument, ValidArgs: setup.Shells(),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := setup.Shell{Setup: &setup.Setup{Host: p.Host}, Prompt: !noPrompt, Login: policy.Login(login)}
			if cmd.Flags().Changed("login") && !slices.Contains(logins, login) {
				return failure.Usagef("cannot read --login=%s: write one of none, allowed", login)
			}

			name := strings.Join(args, "")
			if cmd.Flags().Changed("login") && slices.Contains(logins, name) {
				return failure.Usagef("cannot set up the shell %q: the value of --login needs an equals sign: write --login=%[1]s", name)
			}

			var err error
			s.Name, err = s.Setup.NameShell(name)
			if err != nil {
				return err
			}

			return runSetup(p, &t, setupPart{s.Key, s.Wish})
		},
	})

	f := cmd.Flags()
	f.BoolVar(&noPrompt, "no-prompt", false, "leave the prompt alone")
	f.StringVar(&login, "login", "", "a shell without a lease sees `WHICH` GPUs: none or allowed")
	f.Lookup("login").NoOptDefVal = string(policy.LoginNone)
	_ = cmd.RegisterFlagCompletionFunc("login", cobra.FixedCompletions(logins, flagset.NoFiles))

	return cmd
}
