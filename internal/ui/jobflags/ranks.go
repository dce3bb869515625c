package jobflags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
	"gpuard/internal/ui/flagset"
)

// RankFlags are the flags of a run with several processes.
type RankFlags struct {
	torchrun bool
	ranks    string
	nproc    int
}

// Add adds them.
func (r *RankFlags) Add(cmd *cobra.Command) {
	flagset.AddOption(cmd, "torchrun", &r.torchrun)
	flagset.AddOption(cmd, "ranks", &r.ranks)
	flagset.AddOption(cmd, "nproc", &r.nproc)
}

// isGiven reports whether --torchrun or --ranks is given.
func (r *RankFlags) isGiven(cmd *cobra.Command) bool {
	return r.torchrun || cmd.Flags().Changed("ranks")
}

// Parse checks the flags and sets spec.Ranks. Call it last: it needs the other flags in spec and care.
func (r *RankFlags) Parse(cmd *cobra.Command, spec *job.Spec, care *CareFlags, asJSON bool) error {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if set("nproc") && (r.nproc < 1 || r.nproc > ranks.MaxRanks) {
		return fmt.Errorf("cannot start --nproc %d processes: write a number from 1 to %d", r.nproc, ranks.MaxRanks)
	}

	if !r.isGiven(cmd) {
		if set("nproc") {
			return errors.New("cannot use --nproc alone: it needs --ranks or --torchrun, which start the processes")
		}
		return nil
	}

	if err := r.checkRanks(cmd, spec); err != nil {
		return err
	}

	if r.torchrun && len(spec.Command) > 0 {
		if _, err := ranks.ReadTorchrun(spec.Command); err != nil {
			return err
		}
	}

	spec.Ranks = &job.Ranks{Torchrun: r.torchrun, Own: r.ranks == "own", Count: r.nproc, Grace: care.grace, JSON: asJSON}

	return nil
}

// checkRanks refuses values and combinations that make no sense.
func (r *RankFlags) checkRanks(cmd *cobra.Command, spec *job.Spec) error {
	first := cmd.Flags().Arg(0)
	_, number := strconv.Atoi(r.ranks)
	given := max(spec.GPUs, len(spec.Devices))
	if spec.MIG != "" {
		given = 1
	}

	switch {
	case number == nil:
		return fmt.Errorf("cannot read --ranks=%s: it says what each process sees; how many there are: --nproc %[1]s", r.ranks)
	case r.ranks != "" && r.ranks != "all" && r.ranks != "own":
		return fmt.Errorf("cannot read --ranks=%s: write --ranks=all or --ranks=own", r.ranks)
	case cmd.Flags().Changed("ranks") && cmd.ArgsLenAtDash() != 0 && slices.Contains([]string{"all", "own"}, first):
		return fmt.Errorf("cannot run %q: the value of --ranks needs an equals sign: write --ranks=%s; to run a command of that name: --ranks -- %s", first, first, first)
	case len(spec.Command) == 0 && r.torchrun && !isDryRun(cmd):
		return errors.New("cannot start torchrun without a script: gpuard run --torchrun -- train.py")
	case len(spec.Command) == 0 && !isDryRun(cmd):
		return errors.New("cannot start ranks: no command given; write gpuard run --ranks -- ./program")
	case spec.CPU && r.ranks == "own":
		return errors.New("cannot use --ranks=own with --cpu: no process has a GPU of its own; leave one of them out")
	case spec.CPU && r.nproc == 0:
		return errors.New("cannot tell how many processes to start: with --cpu there is no GPU to count; give the number, such as --nproc 4")
	case r.ranks == "own" && r.nproc > 0 && r.nproc != given:
		return fmt.Errorf("cannot start --nproc %d processes of which each has its own GPU: the job has %d; leave --nproc out", r.nproc, given)
	}

	return nil
}

// isDryRun reports whether --dry-run is given.
func isDryRun(cmd *cobra.Command) bool {
	dry, err := cmd.Flags().GetBool("dry-run")
	return err == nil && dry
}
