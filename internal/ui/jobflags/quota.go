package jobflags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
	"gpuard/internal/ui/flagset"
)

// quotaFlags are the flags that say how a share is enforced.
type quotaFlags struct {
	level, require string
	threads        int
}

func (q *quotaFlags) addFlags(cmd *cobra.Command) {
	flagset.AddOption(cmd, "quota", &q.level)
	flagset.AddOption(cmd, "require-quota", &q.require)
	flagset.AddOption(cmd, "mps-threads", &q.threads)
}

func quotaLevels() []string { return []string{string(job.Watch), string(job.MPS)} }

// parseInto checks the flags and copies them into the request.
func (q *quotaFlags) parseInto(cmd *cobra.Command, out *job.Spec) error {
	for _, name := range []string{"quota", "require-quota", "mps-threads"} {
		if cmd.Flags().Changed(name) && out.Share == 0 {
			return fmt.Errorf("cannot use --%s without --share: only a share has a quota; add for instance --share 8G", name)
		}
	}

	for name, value := range map[string]string{"quota": q.level, "require-quota": q.require} {
		if value != "" && !slices.Contains(quotaLevels(), value) {
			return fmt.Errorf("cannot read --%s %q: write watch or mps", name, value)
		}
	}

	mps := q.level == string(job.MPS) || q.require == string(job.MPS)
	switch {
	case q.level == string(job.Watch) && q.require == string(job.MPS):
		return fmt.Errorf("cannot use --quota watch with --require-quota mps: the first asks for less than the second; leave one of them out")
	case cmd.Flags().Changed("mps-threads") && !mps:
		return fmt.Errorf("cannot use --mps-threads without --quota mps: nothing else limits processors")
	case cmd.Flags().Changed("mps-threads") && (q.threads < 1 || q.threads > 100):
		return fmt.Errorf("cannot ask for --mps-threads %d: write a percentage from 1 to 100", q.threads)
	case mps && out.IDs == job.IndexIDs:
		return fmt.Errorf("cannot use --ids index with --quota mps: its daemon counts devices differently from its clients; leave --ids out")
	}

	out.Quota, out.Require, out.Threads = job.Quota(q.level), job.Quota(q.require), q.threads

	return nil
}
