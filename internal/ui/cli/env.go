package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/visible"
)

func (p *Program) env() *cobra.Command {
	var flags specFlags
	var format string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "env [flags]",
		Short: "Print the variables for a choice of devices, without leasing them",
		Long: `Chooses like run and prints the variables instead of starting a command.
Nothing is leased: somebody else may get the same device a moment later.
Use it to look, or for a program that you start by other means.
Formats: sh (also bash, zsh), fish, dotenv (it can only set: no unset), json.`,
		Example: `  gpuard env --device 1
  eval "$(gpuard env --device GPU-8932f937)"
  gpuard env --cpu --format fish | source`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error {
				spec, err := flags.spec(cmd, nil)
				if err != nil {
					return asUsage(err)
				}
				if asJSON {
					if cmd.Flags().Changed("format") && format != "json" {
						return usagef("cannot use --json with --format %s: write one of them", format)
					}
					format = "json"
				}
				write, err := envWriter(format)
				if err != nil {
					return err
				}
				vars, err := p.App.Variables(cmd.Context(), spec)
				if err != nil {
					return err
				}
				return write(p.Out, vars)
			})
		},
	}
	flags.add(p, cmd)
	cmd.Flags().StringVar(&format, "format", "sh", "`FORM`: sh, fish, dotenv or json")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as --format json")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"sh", "fish", "dotenv", "json"}, noFiles))
	return cmd
}

func envWriter(format string) (func(io.Writer, []visible.Var) error, error) {
	switch format {
	case "sh":
		return lines("export %s=%s\n", "unset %s\n", quoteSh), nil
	case "fish":
		return lines("set -gx %s %s\n", "set -e %s\n", quoteFish), nil
	case "dotenv":
		return lines("%s=%s\n", "", quoteSh), nil // a dotenv file can only set
	case "json":
		return envJSON, nil
	}
	return nil, usagef("cannot write the format %q: write sh, fish, dotenv or json", format)
}

func lines(set, unset string, quote func(string) string) func(io.Writer, []visible.Var) error {
	return func(w io.Writer, vars []visible.Var) error {
		var b strings.Builder
		for _, v := range vars {
			switch {
			case !v.Unset:
				fmt.Fprintf(&b, set, v.Name, quote(v.Value))
			case unset != "":
				fmt.Fprintf(&b, unset, v.Name)
			}
		}
		_, err := io.WriteString(w, b.String())
		return err
	}
}

// plainWord: these characters mean nothing to any shell.
func plainWord(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_.,:/=+@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

func quoteSh(s string) string {
	if plainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteFish(s string) string {
	if plainWord(s) {
		return s
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// variablesAnswer is the JSON answer of env.
type variablesAnswer struct {
	Schema string            `json:"schema"` // "gpuard.env/1"
	Set    map[string]string `json:"set"`    // variables to set, by name
	Unset  []string          `json:"unset"`  // variables to remove
}

func envJSON(w io.Writer, vars []visible.Var) error {
	out := variablesAnswer{"gpuard.env/1", map[string]string{}, []string{}}
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

func usagef(format string, args ...any) error { return &app.Usage{Text: fmt.Sprintf(format, args...)} }

func asUsage(err error) error { return &app.Usage{Text: err.Error()} }
