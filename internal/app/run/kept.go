package run

import (
	"os"
	"strconv"
)

// afterlife is what the holder is told about a lease that is kept: its file, and the process that would start the
// command again.
func (l *Launch) afterlife() []string {
	if l.claimed.Held.Lease.Kept == nil {
		return nil
	}
	s, err := l.host.Proc.Stat(l.parent)
	if err != nil || l.parent != os.Getppid() {
		return nil // gone already, such as while we waited in line
	}
	return []string{l.spec.KeepWhile, strconv.Itoa(l.parent), strconv.FormatUint(s.Start, 10)}
}
