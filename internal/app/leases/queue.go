package leases

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/queue"
	"gpuard/internal/core/status"
)

// addQueue adds the waiting requests to a report, each queue (of a lease, of an allocation, of the machine) in its
// order, and returns problems with tickets.
func addQueue(host *machine.Host, s *status.Report, m gpu.Machine, held []job.Lease) (notes []string) {
	folder, err := host.Folder(m, false)
	if err != nil || folder == nil {
		// Said of the leases already.
		return nil
	}

	defer folder.Close() //nolint:errcheck // read only
	tickets, problems := folder.Tickets()
	for _, p := range problems {
		notes = append(notes, fmt.Sprintf("%s of %s %s", prose.Clean(p.Path), host.Names(p.UID), p.Text))
	}

	if len(tickets) == 0 {
		return notes
	}

	boot, err := host.Proc.BootID()
	if err != nil {
		return append(notes, err.Error())
	}

	passed := folder.Turn(boot).ApplyTo(queue.Input{}).Passed
	for len(tickets) > 0 {
		scope := tickets[0]
		q := queue.Input{Now: time.Now().UnixNano(), Held: held, Passed: passed}
		tickets = slices.DeleteFunc(tickets, func(t job.Ticket) bool {
			if t.Parent != scope.Parent || t.Allocation != scope.Allocation {
				return false
			}
			t.User = host.Names(t.UID)
			q.Tickets = append(q.Tickets, t)

			return true
		})
		s.AddWaiting(queue.OrderTickets(q), host.Proc.PIDNamespace(), func(t job.Ticket) bool { return passed[t.Key()] }, func(t job.Ticket) bool { return isStopped(host, t) }, q.HasReachedMax)
	}

	return notes
}

// isStopped reports whether the waiting process is stopped, as far as that is visible from here.
func isStopped(host *machine.Host, t job.Ticket) bool {
	if t.Namespace != host.Proc.PIDNamespace() {
		return false
	}
	s, err := host.Proc.Stat(t.PID)
	return err == nil && s.Start == t.Start && (s.State == "T" || s.State == "t")
}
