package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

func (p *Program) explain() *cobra.Command {
	var asJSON, probe bool
	cmd := &cobra.Command{
		Use:   "explain [VAR=VALUE...]",
		Short: "Show what a program would see, and every surprise on the way",
		Long: `Shows which devices a program sees with the variables of this shell. Variables
given on the command line replace this shell's GPU variables entirely.
Nothing visible is an answer too: the exit code is 0.

With --probe a process with exactly that environment asks the CUDA driver, which
is the truth; the exit code is 1 where the driver shows something else.`,
		Example: `  gpuard explain
  gpuard explain CUDA_VISIBLE_DEVICES=2,0,-1,1
  gpuard explain CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID
  gpuard explain --probe                   what does the driver itself show?`,
		ValidArgsFunction: variables,
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error {
				for _, a := range args {
					if name, _, ok := strings.Cut(a, "="); !ok || name == "" {
						return usagef("cannot explain %q: write VAR=VALUE, such as CUDA_VISIBLE_DEVICES=%s", a, strings.TrimPrefix(a, "="))
					}
				}
				if probe {
					return p.probe(cmd, args, asJSON)
				}
				view, m, err := p.App.Explain(cmd.Context(), args)
				if err != nil {
					return err
				}
				view.Notes = append(strays(args), view.Notes...)
				if asJSON {
					return writeJSON(p.Out, explained{"gpuard.explain/1", view})
				}
				Explain(p.Out, view, m, p.term(p.Out))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the CUDA driver too, and compare")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	return cmd
}

// explained is the JSON answer of explain.
type explained struct {
	Schema string `json:"schema"` // "gpuard.explain/1"
	visible.View
}

// strays are notes about given variables that no runtime reads: most often a misspelt name.
func strays(given []string) []visible.Note {
	notes := []visible.Note{}
	for _, pair := range given {
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(visible.Variables(), name) || strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "GPUARD_") {
			continue
		}
		text := name + " chooses no devices for any program known here"
		if near := nearest(name, visible.Variables()); near != "" {
			text += "; did you mean " + near + "?"
		}
		notes = append(notes, visible.Note{Code: visible.CodeUnknownVariable, Text: gpu.Clean(text)})
	}
	return notes
}
