package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/shellenv"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
)

type envOptions struct {
	spec          specFlags
	format        string
	login         string
	json, ask     bool
	save, restore string
}

func (p *Program) env() *cobra.Command {
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
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("login"):
				return report(func() error { return p.printLogin(cmd, o) })
			case cmd.Flags().Changed("restore"):
				return report(func() error { return p.restoreEnv(cmd, o) })
			}
			return report(func() error { return p.printEnv(cmd, o) })
		},
	}
	o.spec.add(p, cmd)
	addAsk(cmd, &o.ask)
	cmd.Flags().StringVar(&o.format, "format", "sh", "`FORM`: sh, fish, dotenv or json")
	cmd.Flags().BoolVar(&o.json, "json", false, "the same as --format json")
	f := cmd.Flags()
	f.StringVar(&o.login, "login", "", "`WHICH` GPUs a shell without a lease sees: all, allowed or none; config.yaml may allow fewer")
	f.Lookup("login").NoOptDefVal = string(policy.LoginAll) // config.yaml may be stricter
	_ = cmd.RegisterFlagCompletionFunc("login", cobra.FixedCompletions(loginWords(), noFiles))
	f.StringVar(&o.save, "save", "", "save the variables as they were before, under the name `ID`")
	f.StringVar(&o.restore, "restore", "", "print the commands that put back what --save `ID` saved")
	p.privateState(cmd)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"sh", "fish", "dotenv", "json"}, noFiles))
	return cmd
}

func (p *Program) printEnv(cmd *cobra.Command, o *envOptions) error {
	if err := p.fill(cmd); err != nil {
		return err
	}
	spec, err := p.request(cmd, &o.spec, nil)
	if err != nil {
		return asUsage(p.atDefault(err))
	}
	write, err := o.writer(cmd)
	if err != nil {
		return err
	}
	keep, err := p.saveVariables(cmd, o.save)
	if err == nil {
		spec, err = p.askDevice(cmd, o.ask, spec)
	}
	if err != nil {
		return err
	}
	vars, err := shellenv.Variables(cmd.Context(), p.Host, spec)
	if err == nil {
		vars, err = keep(vars, nil)
	}
	if err != nil {
		return err
	}
	return write(p.Out, vars, p.said)
}

// saveVariables is what a shell has to change for the variables of a choice, and where --save is given to have those of before back.
func (p *Program) saveVariables(cmd *cobra.Command, id string) (func([]visible.Var, *leases.Holding) ([]visible.Var, error), error) {
	if !cmd.Flags().Changed("save") {
		return func(vars []visible.Var, _ *leases.Holding) ([]visible.Var, error) { return vars, nil }, nil
	}
	return shellenv.Save(p.Host, id)
}

// restoreEnv prints the commands that restore the variables that --save saved.
func (p *Program) restoreEnv(cmd *cobra.Command, o *envOptions) error {
	var other string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"restore", "format", "json", "machine", "private-state"}, f.Name) {
			other = f.Name
		}
	})
	if other != "" {
		return usagef("cannot use --restore with --%s: nothing is chosen then; leave one of them out", other)
	}
	o.save = o.restore
	write, err := o.writer(cmd)
	if err != nil {
		return err
	}
	vars, err := shellenv.Restore(cmd.Context(), p.Host, o.restore)
	if err != nil {
		return err
	}
	return write(p.Out, vars, p.said)
}

// writer checks the flags of the format and returns its writer.
func (o *envOptions) writer(cmd *cobra.Command) (envWriter, error) {
	if o.json {
		if cmd.Flags().Changed("format") && o.format != "json" {
			return nil, usagef("cannot use --json with --format %s: write one of them", o.format)
		}
		o.format = "json"
	}
	if o.format == "dotenv" && o.save != "" {
		return nil, usagef("cannot put variables back by --format dotenv: it can only set; write --format sh or fish")
	}
	return writerOf(o.format)
}

// printLogin prints the variables of the login rule. On an error it still prints variables, which hide every GPU.
func (p *Program) printLogin(cmd *cobra.Command, o *envOptions) error {
	var wrong error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"login", "format", "json", "machine"}, f.Name) {
			wrong = usagef("cannot use --login with --%s: a login chooses nothing and leases nothing", f.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	if !slices.Contains(loginWords(), o.login) {
		return usagef("cannot read --login=%s: write one of %s", o.login, strings.Join(loginWords(), ", "))
	}
	write, err := o.writer(cmd)
	if err != nil {
		return err
	}
	vars, err := shellenv.Login(cmd.Context(), p.Host, policy.Login(o.login))
	return errors.Join(write(p.Out, vars, p.said), err)
}

func loginWords() []string {
	return []string{string(policy.LoginAll), string(policy.LoginAllowed), string(policy.LoginNone)}
}

// failEval makes the eval of a failed env or reserve --shell fail. An empty output would succeed, and the shell would
// continue with every GPU. The words after false are a comment, or arguments that false ignores.
func (p *Program) failEval(cmd *cobra.Command) {
	if cmd == nil || !p.isEvaluated(cmd) || p.term(p.Out).TTY {
		return
	}
	fmt.Fprintln(p.Out, "false # gpuard gave no GPU")
}

// isEvaluated reports whether a shell evaluates the output of a command. It reads the arguments, because at an error the parser
// may have stopped before the flag.
func (p *Program) isEvaluated(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "env":
		dotenv := slices.Contains(p.Args, "--format=dotenv")
		for i, word := range p.Args {
			dotenv = dotenv || word == "dotenv" && i > 0 && p.Args[i-1] == "--format"
		}
		return !dotenv && !cmd.Flags().Changed("login") && !p.wantsJSON(cmd)
	case "reserve": // where the word was forgotten or misspelt, too
		return !p.wantsJSON(cmd) && !slices.ContainsFunc(p.Args, func(word string) bool {
			return strings.HasPrefix(word, "--for") || strings.HasPrefix(word, "--pid")
		})
	}
	return false
}

// envWriter writes variables in one format. Only JSON includes the notes.
type envWriter func(w io.Writer, vars []visible.Var, notes []string) error

func writerOf(format string) (envWriter, error) {
	switch format {
	case "sh":
		return lines("export %s=%s\n", "unset %s\n", shellquote.Sh), nil
	case "fish":
		return lines("set -gx %s %s\n", "set -e %s; or true\n", shellquote.Fish), nil
	case "dotenv":
		return lines("%s=%s\n", "", shellquote.Sh), nil // a dotenv file can only set
	case "json":
		return envJSON, nil
	}
	return nil, usagef("cannot write the format %q: write sh, fish, dotenv or json", format)
}

func lines(set, unset string, word func(string) string) envWriter {
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
	Schema string            `json:"schema"` // "gpuard.env/1"
	Set    map[string]string `json:"set"`    // variables to set, by name
	Unset  []string          `json:"unset"`  // variables to remove
	Notes  []string          `json:"notes"`  // remarks, one sentence each
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
	return writeJSON(w, out)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func usagef(format string, args ...any) error { return &exit.Usage{Text: fmt.Sprintf(format, args...)} }

func asUsage(err error) error { return &exit.Usage{Text: err.Error()} }
