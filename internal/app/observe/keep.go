package observe

import (
	"time"

	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

const (
	// That may wait; the next ones are left out.
	mostWrites = 256
	// For the files at the end.
	lastWrite = 2 * time.Second
)

// startWriter writes files until the function that it returns is called. The files belong to its goroutine.
func (o *Observer) startWriter() (end func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for write := range o.writes {
			write()
		}

		// Else dcgm-exporter would show them for ever.
		_ = o.jobs.writeFiles(&status.Report{})
		o.log.close()
		o.file.close()
	}()
	return func() {
		// The next process goes on with them.
		open := o.uses.OpenLeases()
		o.queueWrite(func() { _ = o.log.writeLeases(nil, open) })
		close(o.writes)

		select {
		case <-over:
		case <-time.After(lastWrite):
		}
	}
}

// queueWrite reports whether the write was taken. If many wait, the file system hangs, and what happens meanwhile is
// lost.
func (o *Observer) queueWrite(write func()) bool {
	select {
	case o.writes <- write:
		return true
	default:
		return false
	}
}

// queueFiles writes what one report has brought: jobs, a minute that is over, and leases that have ended. o.mu is held.
func (o *Observer) queueFiles(s *status.Report, over *trend.Minute, ended []trend.EndedLease) (say []string) {
	if over == nil && len(ended) == 0 && !o.mapping {
		return nil
	}

	report, minutes, open := *s, o.seen.Minutes, o.seen.Uses
	taken := o.queueWrite(func() {
		if err := o.jobs.writeFiles(&report); err != nil {
			o.Host.Say(err.Error())
			o.jobs = nil
		}
		if over != nil || len(ended) > 0 {
			o.writeDayFiles(over, minutes, ended, open)
		}
	})

	switch {
	case !taken && !o.lost:
		o.lost = true
		say = append(say, "cannot write files: the file system does not answer; the last day and the use of leases have a gap")
	case taken && len(o.writes) < mostWrites/2:
		// It answers again.
		o.lost = false
	}

	return say
}

// writeDayFiles writes the files of the last day.
func (o *Observer) writeDayFiles(over *trend.Minute, minutes []trend.Minute, ended, open []trend.EndedLease) {
	if err := o.log.writeLeases(ended, open); err != nil {
		o.Host.Say(err.Error() + "; the use of leases is not kept")
		o.log.close()
		o.log = nil
	}
	if over == nil {
		return
	}
	if err := o.file.addMinute(*over, minutes); err != nil {
		o.Host.Say(err.Error() + "; the last day is kept in memory only")
		o.file.close()
		o.file = nil
	}
}
