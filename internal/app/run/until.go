package run

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"gpuard/internal/core/job"
)

// until is that moment as the holder is told it; "0" for a lease that may last.
func (l *Launch) until() string {
	if l.spec.Timeout <= 0 {
		return "0"
	}
	return strconv.FormatInt(l.claimed.Held.Lease.Due(l.spec.Timeout), 10)
}

// overdue is from when on the holder ends a command in place of this process, which would have killed it two seconds before, and
// after whose death the holder does; "0" never. certain is when the lease has certainly ended, of which entrusted says whether it is noted.
func (l *Launch) overdue(entrusted bool, certain int64) string {
	self, err := l.host.Proc.Stat(os.Getpid())
	if err != nil || !entrusted {
		return "0"
	}
	return fmt.Sprintf("%d,%d,%d", certain-int64(job.Dying-2*time.Second), os.Getpid(), self.Start)
}
