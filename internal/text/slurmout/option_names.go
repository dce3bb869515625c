package slurmout

import (
	"slices"
	"strings"

	"gpuard/internal/core/suggest"
)

// sbatchOptions are the long options of sbatch (https://slurm.schedmd.com/sbatch.html, 25.05). Plugins of a site add others.
const sbatchOptions = "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container container-id contiguous " +
	"core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude exclusive export export-file " +
	"extra extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input " +
	"job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile " +
	"nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe parsable partition power " +
	"prefer priority profile propagate qos quiet reboot requeue reservation resv-ports segment signal sockets-per-node spread-job stepmgr switches test-only " +
	"thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose version wait wait-all-nodes wckey wrap"

// wholeName is the option that sbatch takes a long name for: it may be cut where only one begins so (getopt_long(3)). For a
// name that it does not know, meant is what is probably wanted; "" for none.
func wholeName(name string) (whole, meant string, known bool) {
	all := strings.Fields(sbatchOptions)
	if slices.Contains(all, name) {
		return name, "", true
	}

	begin := slices.DeleteFunc(slices.Clone(all), func(option string) bool { return !strings.HasPrefix(option, name) })
	if name != "" && len(begin) == 1 {
		return begin[0], "", true
	}

	return name, suggest.ClosestWord(name, all), false
}
