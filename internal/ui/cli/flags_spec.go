package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// specFlags are the flags that choose devices.
type specFlags struct {
	gpus                        gpuCount
	cpu, any                    bool
	device, exclude             []string
	mig, model, compute, memory string
	share                       string
	place, ids                  string
	quota                       quotaFlags
}

func (s *specFlags) add(p *Program, cmd *cobra.Command) {
	f := cmd.Flags()
	s.gpus = 1
	f.Var(&s.gpus, "gpus", "`N` whole GPUs, or all")
	f.BoolVar(&s.cpu, "cpu", false, "no GPU: hide the GPUs of every vendor")
	listVar(f, &s.device, "device", nil, "`LIST` of devices: indices, UUIDs or unique prefixes, PCI ids; the program sees them in this order")
	f.StringVar(&s.mig, "mig", "", "one MIG slice of this `PROFILE`, such as 1g.10gb")
	listVar(f, &s.exclude, "exclude", nil, "`LIST` of devices to avoid, named as for --device")
	f.StringVar(&s.model, "model", "", "only models that match this `GLOB`, such as '*A100*'")
	f.StringVar(&s.compute, "min-compute", "", "compute capability of at least `X.Y`, such as 8.0")
	f.StringVar(&s.memory, "mem", "", "`SIZE` of memory that each device must have free, such as 20G")
	f.StringVar(&s.share, "share", "", "a share of `SIZE` of each device's memory, such as 8G, next to other shares; without it the job has its devices alone")
	f.StringVar(&s.place, "place", "", "`HOW`: spread over idle devices, or packed (default: by how busy the machine is)")
	f.StringVar(&s.ids, "ids", "auto", "`FORM` in which devices are written: auto, uuid or index")
	f.BoolVar(&s.any, "any", false, "ignore the mask or the lease of this shell")
	s.quota.add(cmd)
	p.completeSpec(cmd)
}

// allGPUs is --gpus all. It is counted before anything is claimed.
const allGPUs = math.MaxInt32

// gpuCount is the value of --gpus: a number, or allGPUs.
type gpuCount int

func (c *gpuCount) String() string {
	if *c == allGPUs {
		return "all"
	}
	return strconv.Itoa(int(*c))
}

// Set reads a number or "all".
func (c *gpuCount) Set(text string) error {
	if text == "all" {
		*c = allGPUs
		return nil
	}
	n, err := strconv.ParseInt(text, 0, 32)
	*c = gpuCount(n)
	return err
}

// Type makes it a number for the keys of gpuard.yaml.
func (c *gpuCount) Type() string { return "int" }

// request checks the flags and returns the request, with the number of all GPUs if they are asked for.
func (p *Program) request(cmd *cobra.Command, s *specFlags, command []string) (job.Spec, error) {
	spec, err := s.spec(cmd, command)
	if err == nil && spec.GPUs == allGPUs {
		spec.GPUs, err = leases.Count(cmd.Context(), p.Host, spec)
	}
	return spec, err
}

// privateState adds --private-state to a command that leases.
func (p *Program) privateState(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.Host.PrivateState, "private-state", false, "lease in a container even though processes outside do not see the lease")
}

// conflicts lists the pairs of flags that cannot be given together.
func (s *specFlags) conflicts() []conflict {
	list := []conflict{
		{"mig", "gpus", "a MIG slice is never counted as a GPU"},
		{"share", "mig", "a MIG slice is a share already, and one that the hardware enforces"},
		{"share", "mem", "--share already reserves memory"},
	}
	for _, other := range []string{"gpus", "device", "mig", "exclude", "model", "min-compute", "mem", "share", "place", "any"} {
		list = append(list, conflict{"cpu", other, "--cpu asks for no GPU at all"})
	}
	return list
}

// spec checks the flags and returns the request.
func (s *specFlags) spec(cmd *cobra.Command, command []string) (job.Spec, error) {
	out := job.Spec{Command: command, GPUs: int(s.gpus), CPU: s.cpu, Devices: s.device, MIG: s.mig, Exclude: s.exclude,
		Model: s.model, Place: job.Place(s.place), IDs: job.IDs(s.ids), Any: s.any}
	err := refuseTogether(cmd, s.conflicts())
	if err == nil {
		err = refuseEmpty(cmd, "device", "exclude", "mig", "model", "min-compute", "mem", "share", "place", "ids")
	}
	if err != nil {
		return out, err
	}
	for name, list := range map[string][]string{"device": s.device, "exclude": s.exclude} {
		if err := noRange(name, list); err != nil {
			return out, err
		}
	}
	if err := plainGlob(s.model); err != nil {
		return out, err
	}
	if s.memory != "" {
		if out.Memory, err = memorySize("mem", s.memory); err != nil {
			return out, err
		}
	}
	if s.share != "" {
		if out.Share, err = memorySize("share", s.share); err != nil {
			return out, err
		}
	}
	if s.compute != "" {
		c, err := gpu.ParseCapability(s.compute)
		if err != nil {
			return out, fmt.Errorf("cannot read --min-compute %q: write it as --min-compute 8.0", s.compute)
		}
		out.MinCompute = &c
	}
	if err := s.quota.parse(cmd, &out); err != nil {
		return out, err
	}
	return out, s.check(cmd, &out)
}

// noRange refuses a range such as 0-3, and lists the numbers to write instead.
func noRange(flag string, names []string) error {
	for _, name := range names {
		first, last, ok := strings.Cut(name, "-")
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if !ok || err1 != nil || err2 != nil {
			continue
		}
		numbers := first
		for i := from + 1; i <= to && i < from+64; i++ {
			numbers += "," + strconv.Itoa(i)
		}
		return fmt.Errorf("cannot read --%s %s: ranges are not understood; write every number, such as --%[1]s %[3]s", flag, name, numbers)
	}
	return nil
}

// plainGlob refuses the special characters of other globs: such a pattern would never match.
func plainGlob(pattern string) error {
	i := strings.IndexAny(pattern, `[]{}\`)
	if i < 0 {
		return nil
	}
	return fmt.Errorf("cannot read --model %q: only * and ? are wildcards, %q is not; write for instance %s",
		pattern, pattern[i:i+1], example("model"))
}

// memorySize reads --mem or --share. It refuses sizes below 1 MiB: the unit was probably forgotten.
func memorySize(flag, text string) (gpu.Bytes, error) {
	n, err := gpu.ParseBytes(text)
	if err != nil {
		why := ""
		if _, number := strconv.ParseFloat(text, 64); number == nil && strings.ContainsAny(text, "eE") {
			why = "exponents are not understood; "
		}
		return 0, fmt.Errorf("cannot read --%s %q: %swrite a number and a unit, such as 20G or 500M", flag, text, why)
	}
	if n == 0 {
		return 0, fmt.Errorf("cannot ask for --%s %s: the size is zero; write for instance %s, or leave it out", flag, text, example(flag))
	}
	if n < gpu.MiB {
		return 0, fmt.Errorf("cannot ask for --%s %s: that is %s; write a unit, such as --%[1]s %[4]sG", flag, text, n, strings.TrimRight(text, "kKiIbB "))
	}
	return n, nil
}

func (s *specFlags) check(cmd *cobra.Command, out *job.Spec) error {
	counted := cmd.Flags().Changed("gpus")
	switch {
	case s.gpus == allGPUs && len(s.device) > 0:
		return errors.New("cannot use --gpus all with --device: it names the devices; leave one of them out")
	case counted && s.gpus < 1 && s.gpus != allGPUs:
		return fmt.Errorf("cannot ask for --gpus %d: write 1 or more, or --cpu for none", s.gpus)
	case counted && len(s.device) > 0 && int(s.gpus) != len(s.device):
		return fmt.Errorf("cannot ask for --gpus %d and %d devices in --device: leave --gpus out", s.gpus, len(s.device))
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
