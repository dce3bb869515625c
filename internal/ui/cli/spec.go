package cli

import (
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// specFlags are the flags of everything that chooses devices.
type specFlags struct {
	gpus                        int
	cpu, any                    bool
	device, exclude             []string
	mig, model, compute, memory string
	place, ids                  string
}

func (s *specFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.gpus, "gpus", 1, "`N` whole GPUs")
	f.BoolVar(&s.cpu, "cpu", false, "no GPU: hide the GPUs of every vendor")
	f.StringSliceVar(&s.device, "device", nil, "these `devices`: indices, UUIDs or unique prefixes, PCI ids; the order is the program's order")
	f.StringVar(&s.mig, "mig", "", "one MIG slice of this `profile`, such as 1g.10gb")
	f.StringSliceVar(&s.exclude, "exclude", nil, "not these `devices`")
	f.StringVar(&s.model, "model", "", "only models that match this `glob`, such as '*A100*'")
	f.StringVar(&s.compute, "min-compute", "", "compute capability at least `8.0`")
	f.StringVar(&s.memory, "mem", "", "each device must have this much memory free, such as `20G`")
	f.StringVar(&s.place, "place", "", "`spread` over idle devices or packed (default: by how busy the machine is)")
	f.StringVar(&s.ids, "ids", "auto", "how devices are written: `auto`, uuid or index")
	f.BoolVar(&s.any, "any", false, "ignore a mask or lease this shell is already inside of")
	_ = cmd.RegisterFlagCompletionFunc("place", cobra.FixedCompletions([]string{"spread", "packed"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("ids", cobra.FixedCompletions([]string{"auto", "uuid", "index"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagsMutuallyExclusive("cpu", "gpus")
	for _, other := range []string{"device", "mig", "exclude", "model", "min-compute", "mem", "place", "any"} {
		cmd.MarkFlagsMutuallyExclusive("cpu", other)
	}
	cmd.MarkFlagsMutuallyExclusive("mig", "gpus")
}

// spec reads the flags into a request, or says which one is wrong.
func (s *specFlags) spec(cmd *cobra.Command, command []string) (job.Spec, error) {
	out := job.Spec{Command: command, GPUs: s.gpus, CPU: s.cpu, Devices: s.device, MIG: s.mig, Exclude: s.exclude,
		Model: s.model, Place: job.Place(s.place), IDs: job.IDs(s.ids), Any: s.any}
	var err error
	if s.memory != "" {
		if out.Memory, err = gpu.ParseBytes(s.memory); err != nil {
			return out, fmt.Errorf("--mem: %w", err)
		}
	}
	if s.compute != "" {
		c, err := gpu.ParseCapability(s.compute)
		if err != nil {
			return out, fmt.Errorf("--min-compute: %w", err)
		}
		out.MinCompute = &c
	}
	if _, err := path.Match(strings.ToLower(s.model), ""); err != nil {
		return out, fmt.Errorf("cannot read --model %q: it is not a glob; write for example '*A100*'", s.model)
	}
	return out, s.check(cmd, &out)
}

func (s *specFlags) check(cmd *cobra.Command, out *job.Spec) error {
	counted := cmd.Flags().Changed("gpus")
	switch {
	case counted && s.gpus < 1:
		return fmt.Errorf("cannot ask for --gpus %d: write 1 or more, or --cpu for none", s.gpus)
	case counted && len(s.device) > 0 && s.gpus != len(s.device):
		return fmt.Errorf("cannot ask for --gpus %d and %d devices in --device: leave --gpus out", s.gpus, len(s.device))
	case cmd.Flags().Changed("device") && len(s.device) == 0:
		return fmt.Errorf("cannot read --device: name at least one, such as --device 0")
	case s.mig != "" && len(s.device) > 1:
		return fmt.Errorf("cannot ask for --mig and several devices: a job gets one MIG slice")
	case s.place != "" && s.place != string(job.Spread) && s.place != string(job.Packed):
		return fmt.Errorf("cannot read --place %q: write spread or packed", s.place)
	case s.ids != string(job.AutoIDs) && s.ids != string(job.UUIDs) && s.ids != string(job.IndexIDs):
		return fmt.Errorf("cannot read --ids %q: write auto, uuid or index", s.ids)
	}
	if s.cpu || s.mig != "" || len(s.device) > 0 {
		out.GPUs = 0
	}
	return nil
}
