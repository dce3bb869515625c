package checkcmd

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/suggest"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

// NewExplainCommand makes gpuard explain.
func NewExplainCommand(p *cli.Program) *cobra.Command {
	var asJSON, probe, container bool
	var runtime string
	cmd := &cobra.Command{
		Use:   "explain [PID | LEASE | VAR=VALUE...]",
		Short: "Show which GPUs a program would see, and why",
		Long: `Shows which devices a program sees with the variables of this shell. Variables
given on the command line replace this shell's GPU variables entirely.
The exit code is 0 even if no device is visible, and 1 if the driver ignores
CUDA_VISIBLE_DEVICES and shows every GPU.

With a process id or a lease id it shows what that process sees, from the
environment with which it was started, its container, its Slurm job and its
lease.

With --probe a process with exactly that environment asks the CUDA driver. The
exit code is 1 if the driver shows something else.`,
		Example: `  gpuard explain
  gpuard explain CUDA_VISIBLE_DEVICES=2,0,-1,1
  gpuard explain CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID
  gpuard explain 4242                      what does this process see?
  gpuard explain --runtime hip HIP_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=0
  gpuard explain --container NVIDIA_VISIBLE_DEVICES=2,3 CUDA_VISIBLE_DEVICES=1
  gpuard explain --probe                   what does the driver itself show?`,
		ValidArgsFunction: p.CompleteExplain,
		RunE: func(cmd *cobra.Command, args []string) error {
			const why = "--probe asks the CUDA driver of this computer"
			if err := flagset.RefuseTogether(cmd, []flagset.Conflict{{One: "probe", Other: "runtime", Why: why}, {One: "probe", Other: "container", Why: why}}); err != nil {
				return failure.AsUsage(err)
			}
			if probe {
				return showProbe(p, cmd, args, asJSON)
			}

			x, err := explain.Explain(cmd.Context(), p.Host, args, runtime, container)
			if err != nil {
				return err
			}

			jobflags.WarnConfig(p)
			x.Notes = append(unknownVariables(args), x.Notes...)

			return showExplained(p, x, asJSON)
		},
	}

	cmd.Flags().StringVar(&runtime, "runtime", "", "`NAME` of the runtime that the program uses: "+strings.Join(runtimeNames(), ", ")+" (default: the native one of each vendor here)")
	_ = cmd.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(runtimeNames(), flagset.NoFiles))
	cmd.Flags().BoolVar(&container, "container", false, "the program runs in a container that NVIDIA_VISIBLE_DEVICES describes")
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the CUDA driver too, and compare")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")

	return cmd
}

// showExplained writes the answer. A list that the driver ignores is an error: the program would see other people's
// GPUs.
func showExplained(p *cli.Program, x *explain.Explanation, asJSON bool) error {
	err := p.Show(asJSON, explainAnswer{"gpuard.explain/1", x}, func(v *console.Page) {
		if x.Process != nil {
			explainProcessView(v, x)
		}
		explainView(v, x.View, x.Machine)
	})
	if err == nil && slices.ContainsFunc(x.Notes, visible.Note.Widens) {
		err = &failure.ShownError{Err: errors.New("the list is ignored")}
	}

	return err
}

// explainAnswer is the JSON answer of explain.
type explainAnswer struct {
	Schema string `json:"schema"` // "gpuard.explain/1"
	*explain.Explanation
}

// runtimeNames lists the values of --runtime.
func runtimeNames() []string {
	return []string{"cuda", "hip", "opencl", "level-zero", "sycl", "ascend", "tinygrad"}
}

// modifierVariables lists variables that change the meaning of others. The short ones are tinygrad's.
func modifierVariables() []string {
	return []string{"CUDA_MPS_PIPE_DIRECTORY", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "NV", "AMD", "CUDA"}
}

// unknownVariables returns notes about given variables that no runtime reads, usually a misspelt name.
func unknownVariables(given []string) []visible.Note {
	notes := []visible.Note{}
	for _, pair := range given {
		name, _, set := strings.Cut(pair, "=")
		if !set || slices.Contains(visible.Variables(), name) || strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "GPUARD_") || slices.Contains(modifierVariables(), name) {
			continue
		}

		text := name + " selects no devices in any runtime known here"
		if meant := suggest.ClosestWord(name, visible.Variables()); meant != "" {
			text += "; did you mean " + meant + "?"
		}

		notes = append(notes, visible.Note{Code: visible.CodeUnknownVariable, Text: prose.Clean(text)})
	}
	return notes
}
