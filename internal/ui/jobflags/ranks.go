package jobflags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
)

// hasRanks reports whether --torchrun or --ranks is given.
func (c *CareFlags) hasRanks(cmd *cobra.Command) bool {
	return c.torchrun || cmd.Flags().Changed("ranks")
}

// ReadRanks reads the flags of a run with several processes. Call it last: it needs the other flags in spec.
func (c *CareFlags) ReadRanks(cmd *cobra.Command, spec *job.Spec, asJSON bool) error {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if set("nproc") && (c.nproc < 1 || c.nproc > ranks.MaxRanks) {
		return fmt.Errorf("cannot start --nproc %d processes: write a number from 1 to %d", c.nproc, ranks.MaxRanks)
	}

	if !c.hasRanks(cmd) {
		if set("nproc") {
			return errors.New("cannot use --nproc alone: it needs --ranks or --torchrun, which start the processes")
		}
		return nil
	}

	if err := c.checkRanks(cmd, spec); err != nil {
		return err
	}

	if c.torchrun && len(spec.Command) > 0 {
		if _, err := ranks.ReadTorchrun(spec.Command); err != nil {
			return err
		}
	}

	spec.Ranks = &job.Ranks{Torchrun: c.torchrun, Own: c.ranks == "own", Count: c.nproc, Grace: c.grace, JSON: asJSON}

	return nil
}

// checkRanks refuses values and combinations that make no sense.
func (c *CareFlags) checkRanks(cmd *cobra.Command, spec *job.Spec) error {
	first := cmd.Flags().Arg(0)
	_, number := strconv.Atoi(c.ranks)
	given := max(spec.GPUs, len(spec.Devices))
	if spec.MIG != "" {
		given = 1
	}

	switch {
	case number == nil:
		return fmt.Errorf("cannot read --ranks=%s: it says what each process sees; how many there are: --nproc %[1]s", c.ranks)
	case c.ranks != "" && c.ranks != "all" && c.ranks != "own":
		return fmt.Errorf("cannot read --ranks=%s: write --ranks=all or --ranks=own", c.ranks)
	case cmd.Flags().Changed("ranks") && cmd.ArgsLenAtDash() != 0 && slices.Contains([]string{"all", "own"}, first):
		return fmt.Errorf("cannot run %q: the value of --ranks needs an equals sign: write --ranks=%s; to run a command of that name: --ranks -- %s", first, first, first)
	case len(spec.Command) == 0 && c.torchrun && !isDryRun(cmd):
		return errors.New("cannot start torchrun without a script: gpuard run --torchrun -- train.py")
	case len(spec.Command) == 0 && !isDryRun(cmd):
		return errors.New("cannot start ranks: no command given; write gpuard run --ranks -- ./program")
	case spec.CPU && c.ranks == "own":
		return errors.New("cannot use --ranks=own with --cpu: no process has a GPU of its own; leave one of them out")
	case spec.CPU && c.nproc == 0:
		return errors.New("cannot tell how many processes to start: with --cpu there is no GPU to count; give the number, such as --nproc 4")
	case c.ranks == "own" && c.nproc > 0 && c.nproc != given:
		return fmt.Errorf("cannot start --nproc %d processes of which each has its own GPU: the job has %d; leave --nproc out", c.nproc, given)
	}

	return nil
}

// isDryRun reports whether --dry-run is given.
func isDryRun(cmd *cobra.Command) bool {
	dry, err := cmd.Flags().GetBool("dry-run")
	return err == nil && dry
}
