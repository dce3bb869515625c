// Package jobflags reads the flags that describe a job, with the defaults of the configuration files, into a job.Spec
// and a job.Care.
package jobflags

import (
	"cmp"
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
	// What they ask for.
	spec job.Spec
	// How much of each GPU a share is, in per cent; 0: its size is given.
	percent int
}

// Add adds them.
func (s *SpecFlags) Add(p *cli.Program, cmd *cobra.Command) {
	to := &s.spec
	to.GPUs = 1
	flagset.AddOption(cmd, "gpus", (*gpuCount)(&to.GPUs))
	flagset.AddOption(cmd, "cpu", &to.CPU)
	flagset.AddOption(cmd, "device", &to.Devices)
	flagset.AddOption(cmd, "mig", &to.MIG)
	flagset.AddOption(cmd, "exclude", &to.Exclude)
	flagset.AddOption(cmd, "model", s.setModel)
	flagset.AddOption(cmd, "min-compute", s.setCompute)
	flagset.AddOption(cmd, "mem", func(text string) (err error) { to.Memory, err = readMemorySize("mem", text); return err })
	flagset.AddOption(cmd, "share", s.setShare)
	flagset.AddOption(cmd, "place", (*string)(&to.Place))
	flagset.AddOption(cmd, "ids", (*string)(&to.IDs))
	flagset.AddOption(cmd, "any", &to.Any)
	flagset.AddOption(cmd, "quota", (*string)(&to.Quota))
	flagset.AddOption(cmd, "require-quota", (*string)(&to.Require))
	flagset.AddOption(cmd, "mps-threads", &to.Threads)
	p.CompleteDevices(cmd, "device", "exclude", "model", "mig")
}

// AddCommand adds what is asked about the command itself, for a command line that has one.
func (s *SpecFlags) AddCommand(cmd *cobra.Command) {
	s.AddAnyway(cmd)
	flagset.AddOption(cmd, "isolate", (*string)(&s.spec.Isolate))
	flagset.AddOption(cmd, "require-isolation", (*string)(&s.spec.Isolated))
}

// AddAnyway adds the one of these that is for a command that another engine starts.
func (s *SpecFlags) AddAnyway(cmd *cobra.Command) { flagset.AddOption(cmd, "anyway", &s.spec.Anyway) }

// HasAll reports whether --gpus is all.
func (s *SpecFlags) HasAll() bool { return s.spec.GPUs == allGPUs }

// setModel refuses the special characters of other globs: such a pattern would never match.
func (s *SpecFlags) setModel(pattern string) error {
	s.spec.Model = pattern
	return checkGlob(pattern)
}

func (s *SpecFlags) setCompute(text string) error {
	c, err := gpu.ParseCapability(text)
	if err != nil {
		return fmt.Errorf("cannot read --min-compute %q: write it as --min-compute 8.0", text)
	}
	s.spec.MinCompute = &c

	return nil
}

func (s *SpecFlags) setShare(text string) (err error) {
	number, isPart := strings.CutSuffix(text, "%")
	if !isPart {
		s.percent = 0
		s.spec.Share, err = readMemorySize("share", text)
		return err
	}

	// Until the GPUs are read.
	s.spec.Share = gpu.MiB
	s.percent, err = strconv.Atoi(strings.TrimSpace(number))
	if err != nil || s.percent < 1 || s.percent > 100 {
		return fmt.Errorf("cannot read --share %q: write whole per cent of a GPU from 1%% to 100%%, such as --share 50%%, or a size such as 8G", text)
	}

	return nil
}

// allGPUs is --gpus all. It is counted before anything is claimed.
const allGPUs = math.MaxInt32

// gpuCount is the value of --gpus: a number, or allGPUs.
type gpuCount int

func (g *gpuCount) String() string {
	if *g == allGPUs {
		return "all"
	}
	return strconv.Itoa(int(*g))
}

// Set reads a number or "all".
func (g *gpuCount) Set(text string) error {
	if text == "all" {
		*g = allGPUs
		return nil
	}
	n, err := strconv.ParseInt(text, 0, 32)
	*g = gpuCount(n)

	return err
}

// Type makes it a number for the keys of gpuard.yaml.
func (g *gpuCount) Type() string { return "int" }

// ReadRequest checks the flags and returns the request, with the number of all GPUs if they are asked for, and the size
// of a share that is a part of a GPU.
func ReadRequest(p *cli.Program, cmd *cobra.Command, s *SpecFlags, command []string) (job.Spec, error) {
	spec, err := s.check(cmd, command)
	if err != nil {
		return spec, err
	}

	err = leases.CompleteSpec(cmd.Context(), p.Host, &spec, spec.GPUs == allGPUs, s.percent)
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

// Spec checks the flags and returns the request, where the GPUs of this machine do not count.
func (s *SpecFlags) Spec(cmd *cobra.Command, command []string) (job.Spec, error) {
	spec, err := s.check(cmd, command)
	if err == nil && s.percent > 0 {
		_, err = readMemorySize("share", strconv.Itoa(s.percent)+"%")
	}
	return spec, err
}

// check checks the flags.
func (s *SpecFlags) check(cmd *cobra.Command, command []string) (job.Spec, error) {
	out := s.spec
	out.Command = command
	err := cmp.Or(flagset.RefuseOptions(cmd), RefuseRange("device", out.Devices), RefuseRange("exclude", out.Exclude), checkQuota(cmd, &out), checkCount(cmd, &out), checkIsolation(&out))
	if out.CPU || out.MIG != "" || len(out.Devices) > 0 {
		out.GPUs = 0
	}

	return out, err
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

// checkQuota checks the flags that say how a share is enforced.
func checkQuota(cmd *cobra.Command, out *job.Spec) error {
	set := cmd.Flags().Changed
	for _, name := range []string{"quota", "require-quota", "mps-threads"} {
		if set(name) && out.Share == 0 {
			return fmt.Errorf("cannot use --%s without --share: only a share has a quota; add for instance --share 8G", name)
		}
	}

	mps := out.Quota == job.MPS || out.Require == job.MPS
	switch {
	case out.Quota == job.Watch && out.Require == job.MPS:
		return errors.New("cannot use --quota watch with --require-quota mps: the first asks for less than the second; leave one of them out")
	case set("mps-threads") && !mps:
		return errors.New("cannot use --mps-threads without --quota mps: nothing else limits processors")
	case set("mps-threads") && (out.Threads < 1 || out.Threads > 100):
		return fmt.Errorf("cannot ask for --mps-threads %d: write a percentage from 1 to 100", out.Threads)
	case mps && out.IDs == job.IndexIDs:
		return errors.New("cannot use --ids index with --quota mps: its daemon counts devices differently from its clients; leave --ids out")
	}

	return nil
}

// checkCount checks how many devices are asked for.
func checkCount(cmd *cobra.Command, out *job.Spec) error {
	counted, named := cmd.Flags().Changed("gpus"), len(out.Devices)
	switch {
	case out.GPUs == allGPUs && named > 0:
		return errors.New("cannot use --gpus all with --device: it names the devices; leave one of them out")
	case counted && out.GPUs < 1 && out.GPUs != allGPUs:
		return fmt.Errorf("cannot ask for --gpus %d: write 1 or more, or --cpu for none", out.GPUs)
	case counted && named > 0 && out.GPUs != named:
		return fmt.Errorf("cannot ask for --gpus %d and %d devices in --device: the job gets each device that is named; name %[1]d, or leave --gpus out for %[2]d", out.GPUs, named)
	case out.MIG != "" && named > 1:
		return errors.New("cannot ask for --mig and several devices: a job gets one MIG slice")
	}

	return nil
}

// checkIsolation checks --isolate and --require-isolation.
func checkIsolation(out *job.Spec) error {
	asked, required := slices.Index(isolate.Levels(), out.Isolate), slices.Index(isolate.Levels(), out.Isolated)
	switch {
	case out.Isolated != "" && out.Isolate == job.Off:
		return errors.New("cannot use --isolate off with --require-isolation: they contradict each other; leave one of them out")
	case asked >= 0 && asked < required:
		return fmt.Errorf("cannot use --isolate %s with --require-isolation %s: the first asks for less than the second; leave one of them out", out.Isolate, out.Isolated)
	case asked >= 0 && out.IDs == job.IndexIDs:
		return fmt.Errorf("cannot use --ids index with --isolate %s: the libraries count only the GPUs that they can open there; leave --ids out", out.Isolate)
	}

	return nil
}
