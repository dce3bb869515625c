package sim

import (
	"math"
	"slices"
	"strconv"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/queue"
)

// ownLine is what waits under gpuard's own rule. As in production each user has a queue, the first jobs of which have
// tickets in the line of the machine, and package queue decides both.
type ownLine struct {
	r       *replay
	users   map[uint32]*userQueue
	turn    queue.Turn
	tickets []job.Ticket
	rooms   map[gpu.UUID]pick.Room
	// Devices that are given whole.
	whole  []gpu.UUID
	shared []gpu.UUID // and as shares
	waits  int
	// Tickets that were given to another job.
	moved int
}

// userQueue is the queue of a user.
type userQueue struct {
	line     queue.Line
	ticketed int
	past     batchlog.Past
}

func newOwnLine(r *replay) *ownLine {
	l := &ownLine{r: r, users: map[uint32]*userQueue{}, rooms: map[gpu.UUID]pick.Room{}}
	for i := range r.devices {
		if d := &r.devices[i]; d.givenWhole {
			l.whole = append(l.whole, d.id)
		}
		if d := &r.devices[i]; d.givenShared {
			l.shared = append(l.shared, d.id)
		}
	}
	return l
}

func (l *ownLine) waitingCount() int { return l.waits }

func (l *ownLine) addJob(i int) {
	j := &l.r.jobs[i]
	u := l.users[j.User]
	if u == nil {
		u = &userQueue{line: queue.Line{Patience: l.r.Policy.patience}}
		l.users[j.User] = u
	}

	l.waits++
	u.enqueueJob(j, i)
	l.giveTickets(j.User)
}

func (u *userQueue) enqueueJob(j *Job, i int) {
	u.line.Add(queue.Class{Count: int(j.GPUs), Kind: u.jobClass(j)}, j.Arrival, i)
}

// jobClass is of the jobs with the same estimate: what was said, else what the user's jobs on as many devices usually
// take.
func (u *userQueue) jobClass(j *Job) uint64 { return u.past.Class(0, int(j.GPUs), j.Estimate) }

// giveTickets gives tickets to the jobs of a user that are next, as the runner of a queue does.
func (l *ownLine) giveTickets(user uint32) {
	u := l.users[user]
	for {
		if u.ticketed >= queue.MaxCompeting {
			first, ok := u.line.First(l.r.now, u.past.EstimateOf)
			if !ok {
				return
			}

			own, at := l.ticketsOf(user)
			last := first.IndexToDisplace(own, l.r.now)
			if last < 0 {
				return
			}

			i := l.removeTicket(at[last])
			j := &l.r.jobs[i]
			u.enqueueJob(j, i)
			l.moved++
		}

		i, ok := u.line.Take(l.r.now, u.past.EstimateOf)
		if !ok {
			return
		}

		j := &l.r.jobs[i]
		u.ticketed++
		devices := l.whole
		if l.r.quotaOf(j) > 0 {
			devices = l.shared
		}

		l.tickets = append(l.tickets, job.Ticket{ID: strconv.Itoa(i), UID: uidOf(j), Arrival: l.r.now, Asked: j.Arrival, Devices: devices, Count: int(j.GPUs),
			Share: l.r.quotaOf(j), Time: u.past.EstimateOf(u.jobClass(j))})
	}
}

// ticketsOf is the order of the tickets of a user, and their places.
func (l *ownLine) ticketsOf(user uint32) (list []queue.Own, at []int) {
	for k := range l.tickets {
		if t := &l.tickets[k]; t.UID == 1000+user {
			list, at = append(list, queue.Own{Arrival: t.Asked, Estimate: t.Time, Count: t.Count, Patience: l.r.Policy.patience}), append(at, k)
		}
	}
	return list, at
}

// removeTicket takes a ticket out of the line of the machine.
func (l *ownLine) removeTicket(k int) (i int) {
	i, _ = strconv.Atoi(l.tickets[k].ID)
	l.users[l.r.jobs[i].User].ticketed--
	l.tickets = slices.Delete(l.tickets, k, k+1)

	return i
}

func (l *ownLine) nextTurn() (startableJob, bool) {
	if len(l.tickets) == 0 || !l.updateRooms() {
		return startableJob{}, false
	}

	q := queue.Input{Now: l.r.now, Boot: l.r.sinceBoot(), Tickets: l.tickets, Held: l.r.held, Rooms: l.rooms, OwnPatience: l.r.Policy.patience}
	var next job.Ticket
	var ok bool
	l.turn, next, ok = l.turn.DecideNext(q, "", l.tickets, queue.PassOverAfter)
	if !ok {
		return startableJob{}, false
	}

	t := startableJob{kept: queue.KeptDevices(l.turn.ApplyTo(q), next.ID, next.UID), time: next.Time}
	t.job = l.removeTicket(slices.IndexFunc(l.tickets, func(o job.Ticket) bool { return o.ID == next.ID }))
	l.waits--
	l.giveTickets(l.r.jobs[t.job].User)

	return t, true
}

// updateRooms updates what the devices could give, as pick.RoomByDevice does, and reports whether any could give
// something, or is reserved.
func (l *ownLine) updateRooms() bool {
	open := len(l.turn.Reserved) > 0
	for k := range l.r.devices {
		d := &l.r.devices[k]
		room := pick.Room{Whole: d.givenWhole && d.leases == 0}
		if d.givenShared && d.whole == 0 && d.left > 0 {
			room.Share = &d.left
		}

		l.rooms[d.id] = room
		open = open || room.Whole || room.Share != nil
	}
	return open
}

func (l *ownLine) noteEnd(one runningJob) {
	j := &l.r.jobs[one.job]
	l.users[j.User].past.Add(0, int(j.GPUs), j.Lasts)

	for user := range l.users {
		l.giveTickets(user)
	}
}

// wakeTime is when the first reservation lapses.
func (l *ownLine) wakeTime() int64 {
	first := int64(math.MaxInt64)
	for _, r := range l.turn.Reserved {
		first = min(first, r.Until+1-l.r.sinceBoot()+l.r.now)
	}
	return first
}
