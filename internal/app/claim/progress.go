package claim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/registry"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// showProgress reports the place in the queue; without there, that the request has left it.
func (w *waitingRequest) showProgress(there bool) {
	if there {
		w.refusal = w.withHolders(w.refusal)
	}

	if w.host.Stand == nil {
		return
	}

	if !there {
		w.host.Stand(nil)
		return
	}

	q := w.request
	s := &status.Standing{Want: wantText(q.spec), Since: w.began, Stuck: q.needsPerson(w.refusal)}
	l := q.queue
	if l != nil && l.me.ID != "" {
		s.Place, s.Of = l.queuePosition()
		if l.free && !l.mayStart() {
			s.Ahead = w.ticketName(l.next)
		}
	} else {
		s.Place, s.Of = w.estimatePlace()
	}

	for _, r := range w.refusal.Reasons {
		if r.Verdict == job.Busy && r.Code == "policy" {
			// The user has too many devices, which says nothing about this one.
			if rule := strings.TrimPrefix(r.Text, "free, but "); len(s.Holders) == 0 || s.Holders[0].Text != rule {
				s.Holders = slices.Insert(s.Holders, 0, status.Holder{Text: rule})
			}
			continue
		}
		if h := w.holderOf(r); r.Verdict == job.Busy && (r.Code != "kept" || h.Text != "" && h.Text != "behind "+s.Ahead) {
			s.Holders = append(s.Holders, h)
		}
	}

	for _, r := range w.refusal.Reasons {
		// The way out for someone who needs any GPU now.
		if r.Code == "weak" || r.Code == "use-unknown" {
			s.Holders = append(s.Holders, status.Holder{Device: fmt.Sprintf("GPU %d", r.Index), Text: "not waited for, " + r.Text + "; " + r.Remedy})
		}
	}

	inLease := w.mine != nil && w.mine.Ticket.Parent != ""
	for _, r := range w.refusal.Reasons {
		// Outside of a lease a mask hides it, perhaps forgotten in a shell, and another device may be free.
		if r.Code == "hidden" && !inLease {
			s.Holders = append(s.Holders, status.Holder{Device: fmt.Sprintf("GPU %d", r.Index), Text: r.Text})
		}
	}

	w.host.Stand(s)
}

// ticketName is the owner and the command of a ticket.
func (w *waitingRequest) ticketName(t job.Ticket) string {
	return fmt.Sprintf("%s of %s (%s)", prose.Clean(t.Command), w.host.Names(t.UID), pick.PIDText(t.PID, w.isForeignNamespace(t.Namespace)))
}

// isForeignNamespace reports whether PIDs of a namespace say nothing here.
func (w *waitingRequest) isForeignNamespace(namespace uint64) bool {
	return namespace != 0 && namespace != w.host.Proc.PIDNamespace()
}

// recountQueue counts the queue again for the terminal: requests come and go without an attempt of this one.
func (w *waitingRequest) recountQueue() {
	l := w.request.queue
	if l == nil {
		// The queue had no other request.
		w.showProgress(true)
		return
	}

	all, _ := w.folder.Tickets()
	now := *l
	now.asked.Tickets = append(rivalTickets(l.me, ticketsInScope(l.me, all)), l.me)
	w.request.queue = &now
	w.showProgress(true)
}

// withHolders is the refusal with the processes that keep leases whose commands are gone, after these had time to end.
func (w *waitingRequest) withHolders(r *job.Refusal) *job.Refusal {
	if time.Since(w.fading.started) < registry.NoticeTimeout && !w.request.stuckLease {
		return r
	}
	return w.request.withHolders(w.folder, r)
}

// needsPerson reports whether so many devices wait for a person that the others could not be enough.
func (q *request) needsPerson(r *job.Refusal) bool {
	asked, left := 0, 0
	for _, reason := range r.Reasons {
		if reason.Verdict == job.Never {
			continue
		}
		asked++
		if !q.cannotPass(reason) {
			left++
		}
	}
	return asked > 0 && left < pick.DeviceCount(q.spec)
}

// cannotPass reports whether a device stays out of use until a person acts.
func (q *request) cannotPass(r job.Reason) bool {
	switch r.Code {
	case "drained", "compute-mode":
		return true
	case "unhealthy":
		d, _, ok := q.machine.FindDevice(r.UUID)
		return ok && slices.ContainsFunc(health.Cures(*d, time.Now()), func(c health.Cure) bool { return !c.MayPass() })
	}
	return false
}

// estimatePlace estimates the place before the first attempt: tickets of the same user that are older. Only requests
// near the front know the order between users.
func (w *waitingRequest) estimatePlace() (place, of int) {
	all, _ := w.folder.Tickets()
	for _, t := range all {
		if t.Parent != w.mine.Ticket.Parent || t.Allocation != w.mine.Ticket.Allocation {
			continue
		}
		of++
		if t.UID == uint32(os.Geteuid()) && t.Arrival <= w.mine.Ticket.Arrival {
			place++
		}
	}
	return place, of
}

// holderOf names what is in the way at one device.
func (w *waitingRequest) holderOf(r job.Reason) status.Holder {
	q := w.request
	h := status.Holder{Device: fmt.Sprintf("GPU %d", r.Index)}
	if r.Code == "kept" {
		if q.queue != nil && q.queue.kept[r.UUID].PID != 0 {
			h.Text = "behind " + w.ticketName(q.queue.kept[r.UUID])
		}
		return h
	}

	if i := slices.IndexFunc(q.view.Held, func(l job.Lease) bool { return l.ID == r.Lease }); r.Lease != "" && i >= 0 {
		l := q.view.Held[i]
		h.User, h.Command, h.PID, h.Since = w.host.Names(l.UID), prose.Clean(l.Command), l.PID, l.Since
		h.Apart = w.isForeignNamespace(l.Namespace)
		h.Until, h.Guess, _ = status.EndOfLease(l, time.Now())
		if l.Ended {
			h.PID, h.Awaited = 0, l.WaitsUntil(time.Now())
			if !h.Awaited.IsZero() {
				return h
			}

			h.Keeper = "somebody"
			if len(l.HeldBy) > 0 {
				h.Keeper = fmt.Sprintf("PID %d (%s)", l.HeldBy[0].PID, prose.Brief(l.HeldBy[0].Command))
			}

			if p := l.StoppedHolder(); p != nil && !h.Apart {
				h.Keeper = fmt.Sprintf("PID %d (%s, stopped: kill -CONT %[1]d)", p.PID, prose.Brief(p.Command))
			}
		}

		return h
	}

	if len(r.Processes) > 0 && r.Processes[0].PID != 0 {
		h.User, h.Command, h.PID = prose.Clean(r.Processes[0].User), prose.Brief(prose.Clean(r.Processes[0].Command)), r.Processes[0].PID
		return h
	}

	h.Text = r.Text

	return h
}
