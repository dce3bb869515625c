package leases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/quotawatch"
)

// clearUnmeasured finds the shared leases that no process measures although they are recorded as measured, because the
// measuring process and all holders that would restart it were killed, and removes their level. A lease whose
// processes cannot be seen here is left as it is.
func clearUnmeasured(host *machine.Host, m gpu.Machine, held []job.Lease) (notes []string) {
	folder, _, err := host.StateFolder(m)
	if !host.IsHardware() || err != nil {
		return nil
	}

	// Command lines of what measures, by user.
	known := map[uint32][]string{}
	for i, l := range held {
		if l.Share == 0 || l.Quota == job.NoQuota || l.Unreadable || l.Namespace != host.Proc.PIDNamespace() || time.Since(l.Since) < measure.UnmeasuredGrace || !registry.IsCommandAlive(host, l) {
			continue
		}
		if _, asked := known[l.UID]; !asked {
			known[l.UID] = measurerLines(host, l.UID)
		}
		if !slices.ContainsFunc(known[l.UID], func(line string) bool { return measure.IsMeasuring(line, folder, &l) }) {
			held[i].Quota = job.NoQuota
			notes = append(notes, fmt.Sprintf("no process enforces the share of lease %s of %s (%s) any more: the one that measured it was killed, and its holder too", l.ID, l.User, l.Share))
		}
	}

	return notes
}

// measurerLines lists the command lines of a user's processes that measure.
func measurerLines(host *machine.Host, uid uint32) (lines []string) {
	for _, pid := range host.Proc.ProcessesOfUser(uid) {
		if line := host.Proc.DescribeProcess(pid).Command; strings.Contains(line, " "+quotawatch.MeasureFlag+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}
