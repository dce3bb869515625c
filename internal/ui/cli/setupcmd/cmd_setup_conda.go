package setupcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

type condaOptions struct {
	target     setupFlags
	choice     deviceChoice
	ask, lease bool
	file       string
}

func setupConda(p *cli.Program) *cobra.Command {
	o := &condaOptions{}
	cmd := o.target.addFlags(&cobra.Command{
		Use:   "conda [flags] [ENV]",
		Short: "A choice of GPUs for a conda environment",
		Long: `Writes hooks for sh, bash, zsh, dash and fish into the environment ENV (a name, a
folder, or without ENV the active one). Activating it sets the variables of these
devices, and deactivating it restores them. A mask that is set before is obeyed
unless --any is given. With --ask it asks each time; in a script it takes any free
GPU. With --lease the shell has the lease until the environment is deactivated. If
no GPU can be given the environment sees none, and says so.
With --environment-yml the choice goes into that file, with ENV also into that
environment; in another one that is created from the file, gpuard setup conda ENV
without a choice writes the hooks.
csh, xonsh and PowerShell are not covered: start programs by gpuard run there.`,
		Example: `  gpuard setup conda train --device 0
  gpuard setup conda train --lease --mem 20G
  gpuard setup conda --ask                 the active environment
  gpuard setup conda train --environment-yml environment.yml --lease
  gpuard setup conda train --remove`,
		Args: flagset.OneArgument,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, flagset.NoFiles
			}
			return setup.Conda{Host: p.Host}.EnvironmentNames(), flagset.Files
		},
		RunE: func(cmd *cobra.Command, args []string) error { return condaSetup(p, cmd, o, args) },
	})

	o.choice.Add(p, cmd)
	o.addModes(cmd)
	cmd.Flags().StringVar(&o.file, "environment-yml", "", "add the choice to this environment `FILE`")
	_ = cmd.MarkFlagFilename("environment-yml", "yml", "yaml")

	return cmd
}

// addModes adds --ask and --lease.
func (c *condaOptions) addModes(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.ask, "ask", false, "ask at activation which device")
	cmd.Flags().BoolVar(&c.lease, "lease", false, "lease for the shell, until the environment is deactivated")
}

func condaSetup(p *cli.Program, cmd *cobra.Command, o *condaOptions, args []string) error {
	c := setup.Conda{Host: p.Host, Name: strings.Join(args, "")}
	f := setup.CondaFile{Path: o.file, Made: c.Name}
	var parts []setupPart
	if c.Name != "" || o.file == "" {
		parts = append(parts, setupPart{c.Key, func() (setup.ChangePlan, error) { return c.Wish() }})
	}

	if o.file != "" {
		parts = append(parts, setupPart{f.Key, func() (setup.ChangePlan, error) { return f.Wish() }})
	}

	if o.target.remove {
		return runSetup(p, &o.target, parts...)
	}

	words, err := o.choiceWords(p, cmd)
	if err != nil {
		return err
	}
	if len(words) == 0 && o.file != "" {
		return failure.Usagef("cannot add to %s: no choice given; say which GPUs the environment is for, such as --device 0, --ask or --lease", o.file)
	}

	if len(words) == 0 {
		words, err = c.AskedFlags()
		if err != nil {
			return err
		}

		err = o.applyStoredFlags(p, cmd, words)
		if err != nil {
			return err
		}
	}

	f.Words = words
	c.Flags, err = o.choice.flagWords(p, cmd)
	if err != nil {
		return err
	}

	c.Ask, c.Lease = o.ask, o.lease
	if len(parts) > 1 || o.file == "" {
		o.target.doubts = o.choice.doubtNotes(p, cmd)
	}

	return runSetup(p, &o.target, parts...)
}

// choiceWords returns the choice, with --ask and --lease, as words for a command line.
func (c *condaOptions) choiceWords(p *cli.Program, cmd *cobra.Command) ([]string, error) {
	words, err := c.choice.flagWords(p, cmd)
	if err != nil {
		return nil, err
	}

	var clash []flagset.Conflict
	for _, other := range []string{"lease", "device", "mig", "cpu"} {
		clash = append(clash, flagset.Conflict{One: "ask", Other: other, Why: "only one of them can choose the device"})
	}

	clash = append(clash, flagset.Conflict{One: "lease", Other: "cpu", Why: "without a device there is nothing to lease"})
	if err := flagset.RefuseTogether(cmd, clash); err != nil {
		return nil, failure.AsUsage(err)
	}

	if c.ask {
		words = append(words, "--ask")
	}

	if c.lease {
		words = append(words, "--lease")
	}

	return words, nil
}

// applyStoredFlags applies the flags from the environment's own variable, which --environment-yml writes.
func (c *condaOptions) applyStoredFlags(p *cli.Program, cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return failure.Usagef("cannot set up conda: say which GPUs the environment is for, such as --device 0, --ask or --lease")
	}

	known := &condaOptions{}
	alone := &cobra.Command{Use: cmd.Use}
	known.choice.Add(p, alone)
	known.addModes(alone)
	err := parseFlagsOnly(alone, words)
	if err != nil {
		return failure.Usagef("cannot use the environment's variable %s=%s: %v", setup.CondaChoice, strings.Join(words, " "), err)
	}
	if err := cmd.Flags().Parse(words); err != nil {
		return failure.AsUsage(err)
	}

	_, err = c.choiceWords(p, cmd)

	return err
}

// parseFlagsOnly parses words that may only be flags.
func parseFlagsOnly(cmd *cobra.Command, words []string) error {
	err := cmd.Flags().Parse(words)
	if err != nil {
		return err
	}
	if cmd.Flags().NArg() > 0 {
		return fmt.Errorf("%q is not a flag", cmd.Flags().Arg(0))
	}

	return flagset.RefuseEmpty(cmd)
}
