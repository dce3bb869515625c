package runcmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/shellenv"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

type envOptions struct {
	spec          jobflags.SpecFlags
	format        string
	login         string
	json, ask     bool
	save, restore string
}

// NewEnvCommand makes gpuard env.
func NewEnvCommand(p *cli.Program) *cobra.Command {
	o := &envOptions{}
	cmd := &cobra.Command{
		Use:   "env [flags]",
		Short: "Print the variables for a choice of devices",
		Long: `Chooses like run and prints the variables instead of starting a command. Nothing
is leased: another job may get the same device a moment later. A lease for this
shell, with its variables: eval "$(gpuard reserve --shell)". If no device can be
given the output is the command false, so that the eval fails.
With --login it prints the variables of a shell without a lease, as "login"
in config.yaml says; for the value all there are none. gpuard ignores these
variables when it leases, unless they were changed.
With --save ID it saves the variables; --restore ID puts them back: a variable
that was unset is unset again, and a lease that came with the choice ends.
Choices can nest; GPUARD_SAVED holds them.
Formats: sh (also bash, zsh), fish, dotenv (it can only set: no unset), json.`,
		Example: `  gpuard env --device 1
  eval "$(gpuard env --device 0,2)"
  gpuard env --cpu --format fish | source
  eval "$(gpuard env --device 1 --save mine)"
  eval "$(gpuard env --restore mine)"      as it was before`,
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("login"):
				return printLogin(p, cmd, o)
			case cmd.Flags().Changed("restore"):
				return restoreEnv(p, cmd, o)
			}
			return printEnv(p, cmd, o)
		},
	}

	o.spec.Add(p, cmd)
	jobflags.AddAsk(cmd, &o.ask)
	cmd.Flags().StringVar(&o.format, "format", "sh", "`FORM`: sh, fish, dotenv or json")
	cmd.Flags().BoolVar(&o.json, "json", false, "the same as --format json")
	f := cmd.Flags()
	f.StringVar(&o.login, "login", "", "`WHICH` GPUs a shell without a lease sees: all, allowed or none; config.yaml may allow fewer")

	// config.yaml may be stricter.
	f.Lookup("login").NoOptDefVal = string(policy.LoginAll)
	_ = cmd.RegisterFlagCompletionFunc("login", cobra.FixedCompletions(loginWords(), flagset.NoFiles))
	f.StringVar(&o.save, "save", "", "save the variables as they were before, under the name `ID`")
	f.StringVar(&o.restore, "restore", "", "print the commands that put back what --save `ID` saved")
	jobflags.AddPrivateState(p, cmd)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"sh", "fish", "dotenv", "json"}, flagset.NoFiles))

	return cmd
}

func printEnv(p *cli.Program, cmd *cobra.Command, o *envOptions) error {
	if err := jobflags.FillDefaults(p, cmd); err != nil {
		return err
	}

	spec, err := jobflags.ReadRequest(p, cmd, &o.spec, nil)
	if err != nil {
		return failure.AsUsage(jobflags.LocateDefault(p, err))
	}

	write, err := o.chooseWriter(cmd)
	if err != nil {
		return err
	}

	keep, err := saveVariables(p, cmd, o.save)
	if err != nil {
		return err
	}

	spec, err = jobflags.AskDevice(p, cmd, o.ask, spec)
	if err != nil {
		return err
	}

	vars, err := shellenv.ChoiceVariables(cmd.Context(), p.Host, spec)
	if err != nil {
		return err
	}

	vars, err = keep(vars, nil)
	if err != nil {
		return err
	}

	return write(p.Out, vars, p.Remarks)
}

// saveVariables is what a shell has to change for the variables of a choice, and where --save is given to have those of
// before back.
func saveVariables(p *cli.Program, cmd *cobra.Command, id string) (func([]visible.Var, *leases.HeldLease) ([]visible.Var, error), error) {
	if !cmd.Flags().Changed("save") {
		return func(vars []visible.Var, _ *leases.HeldLease) ([]visible.Var, error) { return vars, nil }, nil
	}
	return shellenv.SaveChoice(p.Host, id)
}

// restoreEnv prints the commands that restore the variables that --save saved.
func restoreEnv(p *cli.Program, cmd *cobra.Command, o *envOptions) error {
	if other := flagset.FlagBeside(cmd, "restore", "format", "json", "machine", "private-state"); other != "" {
		return failure.Usagef("cannot use --restore with --%s: nothing is chosen then; leave one of them out", other)
	}

	o.save = o.restore
	write, err := o.chooseWriter(cmd)
	if err != nil {
		return err
	}

	vars, err := shellenv.RestoreChoice(cmd.Context(), p.Host, o.restore)
	if err != nil {
		return err
	}

	return write(p.Out, vars, p.Remarks)
}

// chooseWriter checks the flags of the format and returns its writer.
func (o *envOptions) chooseWriter(cmd *cobra.Command) (envWriter, error) {
	if o.json {
		if cmd.Flags().Changed("format") && o.format != "json" {
			return nil, failure.Usagef("cannot use --json with --format %s: write one of them", o.format)
		}
		o.format = "json"
	}
	if o.format == "dotenv" && o.save != "" {
		return nil, failure.Usagef("cannot put variables back by --format dotenv: it can only set; write --format sh or fish")
	}
	return writerOf(o.format)
}

// printLogin prints the variables of the login rule. On an error it still prints variables, which hide every GPU.
func printLogin(p *cli.Program, cmd *cobra.Command, o *envOptions) error {
	if other := flagset.FlagBeside(cmd, "login", "format", "json", "machine"); other != "" {
		return failure.Usagef("cannot use --login with --%s: a login chooses nothing and leases nothing", other)
	}
	if !slices.Contains(loginWords(), o.login) {
		return failure.Usagef("cannot read --login=%s: write one of %s", o.login, strings.Join(loginWords(), ", "))
	}

	write, err := o.chooseWriter(cmd)
	if err != nil {
		return err
	}

	vars, err := shellenv.LoginVariables(cmd.Context(), p.Host, policy.Login(o.login))

	return errors.Join(write(p.Out, vars, p.Remarks), err)
}

func loginWords() []string {
	return []string{string(policy.LoginAll), string(policy.LoginAllowed), string(policy.LoginNone)}
}

// envWriter writes variables in one format. Only JSON includes the notes.
type envWriter func(w io.Writer, vars []visible.Var, notes []string) error

func writerOf(format string) (envWriter, error) {
	switch format {
	case "sh":
		return lineWriter("export %s=%s\n", "unset %s\n", shellquote.Sh), nil
	case "fish":
		return lineWriter("set -gx %s %s\n", "set -e %s; or true\n", shellquote.Fish), nil
	case "dotenv":
		// A dotenv file can only set.
		return lineWriter("%s=%s\n", "", shellquote.Sh), nil
	case "json":
		return envJSON, nil
	}
	return nil, failure.Usagef("cannot write the format %q: write sh, fish, dotenv or json", format)
}

func lineWriter(set, unset string, word func(string) string) envWriter {
	return func(w io.Writer, vars []visible.Var, _ []string) error {
		var b strings.Builder
		for _, v := range vars {
			switch {
			case !v.Unset:
				fmt.Fprintf(&b, set, v.Name, word(v.Value))
			case unset != "":
				fmt.Fprintf(&b, unset, v.Name)
			}
		}
		_, err := io.WriteString(w, b.String())

		return err
	}
}

// variablesAnswer is the JSON answer of env.
type variablesAnswer struct {
	Schema string `json:"schema"` // "gpuard.env/1"
	// Variables to set, by name.
	Set map[string]string `json:"set"`
	// Variables to remove.
	Unset []string `json:"unset"`
	// Remarks, one sentence each.
	Notes []string `json:"notes"`
}

func envJSON(w io.Writer, vars []visible.Var, notes []string) error {
	out := variablesAnswer{"gpuard.env/1", map[string]string{}, []string{}, append([]string{}, notes...)}
	for _, v := range vars {
		if v.Unset {
			out.Unset = append(out.Unset, v.Name)
		} else {
			out.Set[v.Name] = v.Value
		}
	}
	return cli.WriteJSON(w, out)
}
