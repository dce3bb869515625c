// Package admincmd has the commands for who runs the machine: drain, undrain, evict.
package admincmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/cli"
)

// NewDrainCommand makes gpuard drain.
func NewDrainCommand(p *cli.Program) *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drain [flags] GPU...",
		Short: "Take a GPU out of use; undrain puts it back",
		Long: `A job that has the GPU keeps it until the job ends; no new job gets it. Other
users see the reason, so give one. A second drain replaces the reason of the
first. Only root, or the owner of the folder with the leases, can drain. gpuard
undrain puts the GPU into use again.`,
		Example: `  sudo gpuard drain 2 --reason "fan broken, replaced on Monday"
  sudo gpuard drain 0,1`,
		Args: someGPUs,
		RunE: func(cmd *cobra.Command, args []string) error {
			drained, err := leases.Drain(cmd.Context(), p.Host, deviceList(args), reason)
			switch {
			case err != nil:
				return err
			case asJSON:
				return drainJSON(p, drained)
			}
			for _, d := range drained {
				drainText(p, d, reason)
			}

			return nil
		},
	}

	cmd.Flags().StringVar(&reason, "reason", "", "the reason that other users see, as `TEXT`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	completeGPU(p, cmd)
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)

	return cmd
}

// NewUndrainCommand makes gpuard undrain.
func NewUndrainCommand(p *cli.Program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "undrain [flags] GPU...",
		Short: "Put a GPU into use again, and clear its errors",
		Long: `Ends gpuard drain, and clears the errors (XIDs) that the driver reported about
the GPU, for example after a reset that gpuard did not see. Errors reported
later count again. Only root, or the owner of the folder with the leases, can do
it.`,
		Example: "  sudo gpuard undrain 2",
		Args:    someGPUs,
		RunE: func(cmd *cobra.Command, args []string) error {
			undrained, err := leases.Undrain(cmd.Context(), p.Host, deviceList(args))
			switch {
			case err != nil:
				return err
			case asJSON:
				return undrainJSON(p, undrained)
			}
			for _, d := range undrained {
				undrainText(p, d)
			}

			return nil
		},
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object")
	completeGPU(p, cmd)

	return cmd
}

// drainText reports the drain, its reason, the leases that remain and the requests that wait.
func drainText(p *cli.Program, d status.Drained, reason string) {
	if reason == "" {
		_ = p.Answer("%s gets no new lease; no reason is given (--reason)", d.Device)
	} else {
		// the reason is a person's, and may read like a sentence of ours
		fmt.Fprintln(p.Out, p.Host.Localize(fmt.Sprintf("%s gets no new lease", d.Device))+": "+prose.Clean(reason))
	}

	if d.Before != "" {
		_ = p.Answer("it was drained already; replaced: %s", prose.Clean(d.Before))
	}

	for _, l := range d.Leases {
		_ = p.Answer("%s's %s (lease %s, process %d) keeps it until it ends", prose.Clean(l.User), prose.Clean(l.Command), l.ID, l.PID)
	}

	const shown = 3

	for _, t := range d.Waiting[:min(len(d.Waiting), shown)] {
		user, command := prose.Clean(t.User), prose.Clean(t.Command)
		if len(t.Devices) > t.Count {
			_ = p.Answer("%s's %s (process %d) waits for a GPU, and will not get this one", user, command, t.PID)
		} else {
			_ = p.Answer("%s's %s (process %d) waits for it, and keeps waiting until it is in use again", user, command, t.PID)
		}
	}

	if more := len(d.Waiting) - shown; more > 0 {
		_ = p.Answer("and %d more that wait: gpuard status", more)
	}

	_ = p.Answer("to put it into use again: gpuard undrain %s", handleOf(d.Device))
}

func undrainText(p *cli.Program, d status.Undrained) {
	text := fmt.Sprintf("%s was not drained", d.Device)
	if d.Before != "" {
		text = fmt.Sprintf("%s is in use again", d.Device)
	}
	if len(d.Settled) > 0 {
		var numbers []string
		for _, c := range xidCodes(d.Settled) {
			numbers = append(numbers, fmt.Sprint(c))
		}
		text += "; cleared: XID " + strings.Join(numbers, ", ")
	}
	_ = p.Answer("%s", text)
}

func drainJSON(p *cli.Program, drained []status.Drained) error {
	answer := drainedAnswer{"gpuard.drain/1", []drainedDevice{}}
	for _, d := range drained {
		out := drainedDevice{d.Device.UUID, d.Device.Index, d.Before, []string{}, []int{}}
		for _, l := range d.Leases {
			out.Leases = append(out.Leases, l.ID)
		}
		for _, t := range d.Waiting {
			out.Waiting = append(out.Waiting, t.PID)
		}
		answer.Devices = append(answer.Devices, out)
	}
	return cli.WriteJSON(p.Out, answer)
}

func undrainJSON(p *cli.Program, undrained []status.Undrained) error {
	answer := undrainedAnswer{"gpuard.undrain/1", []undrainedDevice{}}
	for _, d := range undrained {
		answer.Devices = append(answer.Devices, undrainedDevice{d.Device.UUID, d.Device.Index, d.Before != "", xidCodes(d.Settled)})
	}
	return cli.WriteJSON(p.Out, answer)
}

// drainedAnswer is the JSON answer of drain.
type drainedAnswer struct {
	Schema  string          `json:"schema"` // "gpuard.drain/1"
	Devices []drainedDevice `json:"devices"`
}

type drainedDevice struct {
	UUID  gpu.UUID `json:"uuid"`
	Index int      `json:"index"`
	// Who had drained it already, since when and why; "" if it was not drained.
	Before string `json:"replaced"`
	// That keep the GPU until they end.
	Leases []string `json:"leases"`
	// Process ids of waiting requests that could have got it.
	Waiting []int `json:"waiting"`
}

// undrainedAnswer is the JSON answer of undrain.
type undrainedAnswer struct {
	Schema  string            `json:"schema"` // "gpuard.undrain/1"
	Devices []undrainedDevice `json:"devices"`
}

type undrainedDevice struct {
	UUID  gpu.UUID `json:"uuid"`
	Index int      `json:"index"`
	Was   bool     `json:"was_drained"`
	// Codes of the driver's errors that were cleared.
	XIDs []int `json:"xids"`
}

func xidCodes(xids []gpu.XID) []int {
	out, seen := []int{}, map[int]bool{}
	for _, x := range xids {
		if !seen[x.Code] {
			seen[x.Code] = true
			out = append(out, x.Code)
		}
	}
	return out
}

// handleOf is the GPU as --device takes it: "2", or "amd:0" on a machine with several vendors.
func handleOf(d job.Given) string { return strings.TrimPrefix(d.Label, "GPU ") }

func someGPUs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("cannot %s: name a GPU by its number, UUID or PCI address, such as gpuard %[1]s 2; gpuard status lists them", cmd.Name())
	}
	return nil
}

// deviceList splits the arguments, which may be separated by spaces or commas.
func deviceList(args []string) []string { return strings.Split(strings.Join(args, ","), ",") }

// completeGPU completes GPUs; for undrain those that are drained or have errors to clear.
func completeGPU(p *cli.Program, cmd *cobra.Command) {
	cmd.ValidArgsFunction = cli.Complete(func(ctx context.Context, args []string, typed string) []string {
		m, err := leases.ReadHealth(ctx, p.Host)
		if err != nil {
			return nil
		}

		undrain := cmd.Name() == "undrain"
		m.Devices = slices.DeleteFunc(m.Devices, func(d gpu.Device) bool {
			out := d.Drained != "" || len(d.XIDs) > 0
			return undrain != out && (undrain || d.Drained != "") || slices.Contains(args, fmt.Sprint(d.Index))
		})

		return cli.DeviceNames(m, typed)
	})
}
