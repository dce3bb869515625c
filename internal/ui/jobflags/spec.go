// Package jobflags reads the flags that describe a job, with the defaults of the configuration files, into a job.Spec
// and a job.Care.
package jobflags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/judge"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/run"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
)

// SpecFlags are the flags that choose devices.
type SpecFlags struct {
	GPUs                        gpuCount
	CPU, any, anyway            bool
	device, exclude             []string
	mig, model, compute, memory string
	share                       string
	place, ids                  string
	isolate, isolated           string
	quota                       quotaFlags
}

// Add adds them.
func (s *SpecFlags) Add(p *cli.Program, cmd *cobra.Command) {
	s.GPUs = 1
	flagset.AddOption(cmd, "gpus", &s.GPUs)
	flagset.AddOption(cmd, "cpu", &s.CPU)
	flagset.AddOption(cmd, "device", &s.device)
	flagset.AddOption(cmd, "mig", &s.mig)
	flagset.AddOption(cmd, "exclude", &s.exclude)
	flagset.AddOption(cmd, "model", &s.model)
	flagset.AddOption(cmd, "min-compute", &s.compute)
	flagset.AddOption(cmd, "mem", &s.memory)
	flagset.AddOption(cmd, "share", &s.share)
	flagset.AddOption(cmd, "place", &s.place)
	flagset.AddOption(cmd, "ids", &s.ids)
	flagset.AddOption(cmd, "any", &s.any)
	s.quota.addFlags(cmd)
	p.CompleteDevices(cmd, "device", "exclude", "model", "mig")
}

// AddCommand adds what is asked about the command itself, for a command line that has one.
func (s *SpecFlags) AddCommand(cmd *cobra.Command) {
	s.AddAnyway(cmd)
	flagset.AddOption(cmd, "isolate", &s.isolate)
	flagset.AddOption(cmd, "require-isolation", &s.isolated)
}

// AddAnyway adds the one of these that is for a command that another engine starts.
func (s *SpecFlags) AddAnyway(cmd *cobra.Command) { flagset.AddOption(cmd, "anyway", &s.anyway) }

// AllGPUs is --gpus all. It is counted before anything is claimed.
const AllGPUs = math.MaxInt32

// gpuCount is the value of --gpus: a number, or AllGPUs.
type gpuCount int

func (c *gpuCount) String() string {
	if *c == AllGPUs {
		return "all"
	}
	return strconv.Itoa(int(*c))
}

// Set reads a number or "all".
func (c *gpuCount) Set(text string) error {
	if text == "all" {
		*c = AllGPUs
		return nil
	}
	n, err := strconv.ParseInt(text, 0, 32)
	*c = gpuCount(n)

	return err
}

// Type makes it a number for the keys of gpuard.yaml.
func (c *gpuCount) Type() string { return "int" }

// ReadRequest checks the flags and returns the request, with the number of all GPUs if they are asked for, and the size
// of a share that is a part of a GPU.
func ReadRequest(p *cli.Program, cmd *cobra.Command, s *SpecFlags, command []string) (job.Spec, error) {
	flags := *s
	percent := 0
	if number, isPart := strings.CutSuffix(s.share, "%"); isPart {
		var err error
		percent, err = strconv.Atoi(strings.TrimSpace(number))
		if err != nil || percent < 1 || percent > 100 {
			return job.Spec{}, fmt.Errorf("cannot read --share %q: write whole per cent of a GPU from 1%% to 100%%, such as --share 50%%, or a size such as 8G", s.share)
		}

		// Until the GPUs are read.
		flags.share = "1M"
	}

	spec, err := flags.Spec(cmd, command)
	if err != nil {
		return spec, err
	}

	err = leases.CompleteSpec(cmd.Context(), p.Host, &spec, spec.GPUs == AllGPUs, percent)
	if err != nil || len(command) == 0 {
		return spec, err
	}
	if run.IsEngineCommand(command) {
		return dropIsolation(p, spec)
	}

	start := cmd.CommandPath()
	switch {
	case cmd.Hidden:
		// Of a service.
		start = ""
	case cmd.Flags().NFlag() > 0:
		// Those that were given.
		start += " …"
	}

	remarks, err := judge.Command(p.Host, spec, command, judge.Place{Typed: start})
	for _, r := range remarks {
		p.Host.Say(r)
	}

	return spec, err
}

// dropIsolation is the request for a container, which its engine starts outside of any wall: a level that was asked for
// by name is refused, whichever command starts the job, and one that a file has as the default is for jobs that can
// have it.
func dropIsolation(p *cli.Program, spec job.Spec) (job.Spec, error) {
	wall := spec.Isolate
	if p.Defaults.HasDefault("isolate") {
		wall = job.NoIsolation
	}
	spec.Isolate = job.NoIsolation

	return spec, run.RefuseCare(p.Host, spec, nil, false, wall)
}

// AddPrivateState adds --private-state to a command that leases.
func AddPrivateState(p *cli.Program, cmd *cobra.Command) {
	flagset.AddOption(cmd, "private-state", &p.Host.PrivateState)
}

// Spec checks the flags and returns the request.
func (s *SpecFlags) Spec(cmd *cobra.Command, command []string) (job.Spec, error) {
	out := job.Spec{Command: command, GPUs: int(s.GPUs), CPU: s.CPU, Devices: s.device, MIG: s.mig, Exclude: s.exclude,
		Model: s.model, Place: job.Place(s.place), IDs: job.IDs(s.ids), Any: s.any, Anyway: s.anyway, Isolate: job.Isolation(s.isolate), Isolated: job.Isolation(s.isolated)}

	err := flagset.RefuseTogether(cmd, flagset.OptionConflicts())
	if err != nil {
		return out, err
	}

	for name, list := range map[string][]string{"device": s.device, "exclude": s.exclude} {
		if err := RefuseRange(name, list); err != nil {
			return out, err
		}
	}

	if err := checkGlob(s.model); err != nil {
		return out, err
	}

	if s.memory != "" {
		out.Memory, err = readMemorySize("mem", s.memory)
		if err != nil {
			return out, err
		}
	}

	if s.share != "" {
		out.Share, err = readMemorySize("share", s.share)
		if err != nil {
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

	if err := s.quota.parseInto(cmd, &out); err != nil {
		return out, err
	}

	return out, s.checkSpec(cmd, &out)
}

// RefuseRange refuses a range such as 0-3, and lists the numbers to write instead.
func RefuseRange(flag string, names []string) error {
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

// checkGlob refuses the special characters of other globs: such a pattern would never match.
func checkGlob(pattern string) error {
	i := strings.IndexAny(pattern, `[]{}\`)
	if i < 0 {
		return nil
	}
	return fmt.Errorf("cannot read --model %q: only * and ? are wildcards, %q is not; write for instance %s",
		pattern, pattern[i:i+1], flagset.FlagExample("model"))
}

// readMemorySize reads --mem or --share. It refuses sizes below 1 MiB: the unit was probably forgotten.
func readMemorySize(flag, text string) (gpu.Bytes, error) {
	n, err := gpu.ParseBytes(text)
	if err != nil {
		if strings.HasSuffix(text, "%") {
			return 0, fmt.Errorf("cannot read --%s %q: a part of a GPU is only known for the GPUs of this machine, as a share; write a size, such as 8G", flag, text)
		}
		why := ""
		if _, number := strconv.ParseFloat(text, 64); number == nil && strings.ContainsAny(text, "eE") {
			why = "exponents are not understood; "
		}

		return 0, fmt.Errorf("cannot read --%s %q: %swrite a number and a unit, such as 20G or 500M", flag, text, why)
	}

	if n == 0 {
		return 0, fmt.Errorf("cannot ask for --%s %s: the size is zero; write for instance %s, or leave it out", flag, text, flagset.FlagExample(flag))
	}
	if part, number := strconv.ParseFloat(text, 64); flag == "share" && number == nil && part > 1 && part <= 100 {
		return 0, fmt.Errorf("cannot ask for --share %s: write a unit, such as --share %[1]sG, or a part of each GPU: --share %[1]s%%", text)
	}
	if n < gpu.MiB {
		return 0, fmt.Errorf("cannot ask for --%s %s: that is %s; write a unit, such as --%[1]s %[4]sG", flag, text, n, strings.TrimRight(text, "kKiIbB "))
	}

	return n, nil
}

func (s *SpecFlags) checkSpec(cmd *cobra.Command, out *job.Spec) error {
	counted := cmd.Flags().Changed("gpus")
	switch {
	case s.GPUs == AllGPUs && len(s.device) > 0:
		return errors.New("cannot use --gpus all with --device: it names the devices; leave one of them out")
	case counted && s.GPUs < 1 && s.GPUs != AllGPUs:
		return fmt.Errorf("cannot ask for --gpus %d: write 1 or more, or --cpu for none", s.GPUs)
	case counted && len(s.device) > 0 && int(s.GPUs) != len(s.device):
		return fmt.Errorf("cannot ask for --gpus %d and %d devices in --device: the job gets each device that is named; name %[1]d, or leave --gpus out for %[2]d", s.GPUs, len(s.device))
	case s.mig != "" && len(s.device) > 1:
		return fmt.Errorf("cannot ask for --mig and several devices: a job gets one MIG slice")
	case s.place != "" && s.place != string(job.Spread) && s.place != string(job.Packed):
		return fmt.Errorf("cannot read --place %q: write spread or packed", s.place)
	case s.ids != string(job.AutoIDs) && s.ids != string(job.UUIDs) && s.ids != string(job.IndexIDs):
		return fmt.Errorf("cannot read --ids %q: write auto, uuid or index", s.ids)
	}

	if err := s.checkIsolation(); err != nil {
		return err
	}

	if s.CPU || s.mig != "" || len(s.device) > 0 {
		out.GPUs = 0
	}

	return nil
}

// checkIsolation checks --isolate and --require-isolation.
func (s *SpecFlags) checkIsolation() error {
	asked, required := slices.Index(isolate.Levels(), job.Isolation(s.isolate)), slices.Index(isolate.Levels(), job.Isolation(s.isolated))
	switch {
	case s.isolate != "" && asked < 0 && s.isolate != string(job.Off) && s.isolate != string(job.AutoIsolation):
		return fmt.Errorf("cannot read --isolate %q: write off, auto, namespace, landlock or cgroup", s.isolate)
	case s.isolated != "" && required < 0:
		return fmt.Errorf("cannot read --require-isolation %q: write cgroup, namespace or landlock", s.isolated)
	case s.isolated != "" && s.isolate == string(job.Off):
		return errors.New("cannot use --isolate off with --require-isolation: they contradict each other; leave one of them out")
	case asked >= 0 && asked < required:
		return fmt.Errorf("cannot use --isolate %s with --require-isolation %s: the first asks for less than the second; leave one of them out", s.isolate, s.isolated)
	case asked >= 0 && s.ids == string(job.IndexIDs):
		return fmt.Errorf("cannot use --ids index with --isolate %s: the libraries count only the GPUs that they can open there; leave --ids out", s.isolate)
	}
	return nil
}
