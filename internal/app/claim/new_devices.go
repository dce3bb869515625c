package claim

import (
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/store"
)

// Devices appear and go while requests wait: a MIG slice is made, a GPU is lost and comes back, an administrator drains
// one. No end of a lease announces that. The first in the queue finds it when it reads the machine; any other request
// that finds that one of the queue may start calls all of them; and each request updates its ticket when it tries
// again.

// knownUUIDs are all devices and slices that have a name.
func knownUUIDs(m gpu.Machine) (ids []gpu.UUID) {
	for _, d := range m.Devices {
		ids = append(ids, d.UUID)
		for _, s := range d.MIG {
			ids = append(ids, s.UUID)
		}
	}
	return slices.DeleteFunc(ids, func(id gpu.UUID) bool { return id == "" })
}

// mostGone is how many devices that are gone a ticket still names, since they may come back.
const mostGone = 128

// renewedTicket is a ticket with the devices of a later one of the same request, and those of its own that are gone.
// While there are too few it stays as it was.
func renewedTicket(t, now job.Ticket) job.Ticket {
	if len(now.Devices) < t.Count {
		return t
	}

	gone := slices.DeleteFunc(slices.Clone(t.Devices), func(id gpu.UUID) bool { return slices.Contains(now.Known, id) })
	gone = gone[:min(len(gone), mostGone)]
	t.Devices, t.Known = slices.Concat(now.Devices, gone), slices.Concat(now.Known, gone)

	return t
}

// renewTicket brings the ticket up to date where the machine has other devices than it knows. It stays as it was where
// that fails.
func (w *waitingRequest) renewTicket() {
	q, now := w.request, time.Now()
	in, _ := q.pickContext(q.view.Held, now)
	t := renewedTicket(w.mine.Ticket, q.makeTicket(in, now))
	if !sameDevices(t.Devices, w.mine.Ticket.Devices) || !sameDevices(t.Known, w.mine.Ticket.Known) {
		_ = w.folder.RenewTicket(w.mine, w.boot, t.Devices, t.Known)
	}
}

func sameDevices(a, b []gpu.UUID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// mayReturn reports whether a device that the request waits for is gone: it may come back, after a reset of the driver,
// say.
func (w *waitingRequest) mayReturn() bool {
	there := knownUUIDs(w.request.machine)
	return slices.ContainsFunc(w.mine.Ticket.Devices, func(id gpu.UUID) bool { return !slices.Contains(there, id) })
}

// sayAbsent says once that the request cannot be served any more with what is there.
func (w *waitingRequest) sayAbsent(never bool) {
	if never && !w.missing {
		w.host.Say("a GPU that this request waits for is not there now (" + w.refusal.Summary + "); it stays in the line")
	}
	w.missing = never
}

// newDevices lists the devices that others have seen since the reading, and that are not among those there.
func (q *request) newDevices(changes map[gpu.UUID]store.Change, there []gpu.UUID) (ids []gpu.UUID) {
	for id, c := range changes {
		if c.Generation > q.since && !slices.Contains(there, id) && !q.invisible[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// noteInvisible notes, after the devices were counted anew, which of the missing ones cannot be seen from here.
func (q *request) noteInvisible() {
	there := knownUUIDs(q.machine)
	for _, id := range q.absent {
		if !slices.Contains(there, id) {
			if q.invisible == nil {
				q.invisible = map[gpu.UUID]bool{}
			}
			q.invisible[id] = true
		}
	}
	q.absent = nil
}

// recentEnd is how long the end of a lease explains a free device: the waiting requests were woken by it.
const recentEnd = 2 * time.Second

// foundReady reports whether this attempt was the first to see that another request may start now, without the end of a
// lease.
func (q *request) foundReady() bool {
	l := q.queue
	return l != nil && l.firstSeen && slices.ContainsFunc(l.readyDevices(), func(id gpu.UUID) bool {
		ended := q.view.Changes[id].Ended
		return ended == 0 || l.boot-ended > int64(recentEnd)
	})
}

// readyDevices are the devices of the next request that could be given to it.
func (q *queueView) readyDevices() []gpu.UUID {
	return slices.DeleteFunc(slices.Clone(q.next.Devices), func(id gpu.UUID) bool {
		r := q.asked.Rooms[id]
		return !r.Whole && r.Share == nil
	})
}

// wakeQueue wakes the waiting requests if another one may start now: a device has appeared, was undrained, or is
// healthy again.
func wakeQueue(host *machine.Host, q *request, folder *store.Folder, boot string) {
	l := q.queue
	if l == nil || !l.free || l.mayStart() {
		return
	}
	ids := l.readyDevices()
	if len(ids) > 0 {
		// The first in the queue tries within a second anyway.
		_ = folder.AnnounceChange(boot, ids...)
	}
}
