package run

import (
	"os"

	"gpuard/internal/app/holder"
)

// nextStart is what the holder of a lease that is kept waits for: its file, and the process that would start the
// command again; nil for another lease.
func (l *Launch) nextStart() *holder.NextStart {
	if l.claimed.Held.Lease.Kept == nil {
		return nil
	}
	s, err := l.host.Proc.Stat(l.parent)
	if err != nil || l.parent != os.Getppid() {
		// Gone already, such as while we waited in line.
		return nil
	}

	return &holder.NextStart{While: []byte(l.spec.KeepWhile), Parent: holder.Process{PID: l.parent, Start: s.Start}}
}
