package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/visible"
)

func (p *Program) explain() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [VAR=VALUE...]",
		Short: "Show what a program would see, and every surprise on the way",
		Long: `Shows which devices a program sees with the variables of this shell. Variables given on the command line replace
this shell's GPU variables entirely. Nothing visible is an answer too: the exit code is 0.`,
		Example: `  gpuard explain
  gpuard explain CUDA_VISIBLE_DEVICES=2,0,-1,1
  gpuard explain CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error {
				for _, a := range args {
					if name, _, ok := strings.Cut(a, "="); !ok || name == "" {
						return usagef("cannot explain %q: write VAR=VALUE, such as CUDA_VISIBLE_DEVICES=0", a)
					}
				}
				view, m, err := p.App.Explain(cmd.Context(), args)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(p.Out, struct {
						Schema string `json:"schema"`
						visible.View
					}{"gpuard.explain/1", view})
				}
				Explain(p.Out, view, m, p.term(p.Out))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	return cmd
}
