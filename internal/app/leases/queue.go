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

	turn := folder.Turn(boot)
	passed := turn.ApplyTo(queue.Input{}).Passed
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

		first := len(s.Waiting)
		s.AddWaiting(queue.OrderTickets(q), host.Proc.PIDNamespace(), func(t job.Ticket) bool { return passed[t.Key()] }, func(t job.Ticket) bool { return isStopped(host, t) }, q.HasReachedMax)
		addReservations(host, s.Waiting[first:], q, turn)
	}

	return notes
}

// addReservations says of the requests of a queue, which are in its order, which devices are kept for them.
func addReservations(host *machine.Host, waiting []status.Waiting, q queue.Input, turn queue.Turn) {
	up, err := host.Proc.Uptime()
	if err != nil || len(turn.Reserved) == 0 {
		// Without a clock nothing is said of them.
		return
	}

	q.Boot = up.Nanoseconds()
	for i, t := range queue.OrderTickets(q) {
		if r, kept := turn.ReservationOf(q, t); kept {
			waiting[i].Kept = slices.Clone(r.Devices)
			waiting[i].KeptUntil = new(time.Unix(0, q.Now).Add(time.Duration(r.Until - q.Boot)))
		}
	}
}

// isStopped reports whether the waiting process is stopped, as far as that is visible from here.
func isStopped(host *machine.Host, t job.Ticket) bool {
	if t.Namespace != host.Proc.PIDNamespace() {
		return false
	}
	s, err := host.Proc.Stat(t.PID)
	return err == nil && s.Start == t.Start && (s.State == "T" || s.State == "t")
}
