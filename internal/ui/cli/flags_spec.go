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
	s.gpus = 1
	addOption(cmd, "gpus", &s.gpus)
	addOption(cmd, "cpu", &s.cpu)
	addOption(cmd, "device", &s.device)
	addOption(cmd, "mig", &s.mig)
	addOption(cmd, "exclude", &s.exclude)
	addOption(cmd, "model", &s.model)
	addOption(cmd, "min-compute", &s.compute)
	addOption(cmd, "mem", &s.memory)
	addOption(cmd, "share", &s.share)
	addOption(cmd, "place", &s.place)
	addOption(cmd, "ids", &s.ids)
	addOption(cmd, "any", &s.any)
	s.quota.add(cmd)
	p.completeDevices(cmd, "device", "exclude", "model", "mig")
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
	addOption(cmd, "private-state", &p.Host.PrivateState)
}

// spec checks the flags and returns the request.
func (s *specFlags) spec(cmd *cobra.Command, command []string) (job.Spec, error) {
	out := job.Spec{Command: command, GPUs: int(s.gpus), CPU: s.cpu, Devices: s.device, MIG: s.mig, Exclude: s.exclude,
		Model: s.model, Place: job.Place(s.place), IDs: job.IDs(s.ids), Any: s.any}
	err := refuseTogether(cmd, optionConflicts())
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
