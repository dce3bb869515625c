package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// row is one line that can be chosen: a lease, a process without a lease, one process of a lease, or a request that waits.
type row struct {
	// That stays when the list changes.
	id   string
	kind kind
	// The ID of a lease or a request; the number of a process.
	name string
	// Places in the report.
	devices []int
	// The same for people: "0, 1", "0:1".
	where   string
	user    string
	command string
	// The whole command; "" not known.
	line string
	// Mean of its devices.
	load   *float64
	memory *gpu.Bytes
	// What its memory is a part of.
	room *gpu.Bytes
	// The work on the computer itself.
	work  *computerUse
	since *time.Time
	// The end in a few characters: "14:20", "~14:20", "no lease".
	end string
	// The remark for the line about the chosen row.
	remark string
	// Something about it should be looked at.
	odd bool
	// Its number in the own queue; 0 none.
	job   int
	depth int // in the tree
}

type kind int

const (
	lease kind = iota
	process
	spared
	// A process of a lease.
	worker
	request // waits for devices
	// Waits in the own queue.
	queued
)

func (k kind) isWaiting() bool { return k == request || k == queued }

// computerUse is what processes use of the computer: processors, and memory.
type computerUse struct {
	processors float64 // -1 not known yet
	memory     gpu.Bytes
}

// rowBuilder makes rows of a report and of what was read beside it.
type rowBuilder struct {
	s     *status.Report
	works map[string]computerUse // by lease
	queue *queueSeen
	// The starts of the requests of the report.
	starts []time.Time
	me     string
}

// runningRows are the rows of what has devices, or uses them.
func (v *rowBuilder) runningRows() (rows []row) {
	s := v.s
	at := map[string]int{}
	for place := range s.Devices {
		whole := &s.Devices[place]
		for k, d := range spotsOf(whole) {
			where := fmt.Sprint(whole.Index)
			if k > 0 {
				where += fmt.Sprint(":", d.Index)
			}

			for i := range d.Leases {
				l := &d.Leases[i]
				before, known := at[l.ID]
				if known {
					rows[before].addDevice(d, l, place, where)
					continue
				}

				at[l.ID] = len(rows)
				rows = append(rows, v.rowOfLease(d, l, place, where))
			}
			for _, p := range d.Processes {
				if p.Foreign || len(d.Leases) == 0 {
					rows = append(rows, rowOfProcess(d, p, place, where))
				}
			}
		}
	}

	return rows
}

// spotsOf are a device and its slices.
func spotsOf(d *status.Device) []*status.Device {
	all := []*status.Device{d}
	for i := range d.MIG {
		all = append(all, &d.MIG[i])
	}
	return all
}

// rowOfLease is the row of a lease on its first device.
func (v *rowBuilder) rowOfLease(d *status.Device, l *status.Lease, place int, where string) row {
	now := v.s.Now
	r := row{id: "lease " + l.ID, kind: lease, name: l.ID, devices: []int{place}, where: where, user: l.User, command: l.Command, line: l.Line, memory: l.Memory, room: d.MemoryTotal, since: l.Since, odd: l.Over() || l.Ended || l.Unhealthy != ""}
	if l.Share > 0 {
		r.room = new(l.Share)
	}

	if d.Utilization != nil {
		r.load = new(*d.Utilization)
	}

	remarks := []string{}
	switch {
	case l.Ended:
		r.end = "ended"
		remarks = append(remarks, "its command has ended, the lease is still held")
	case l.Over():
		r.end = "over"
		remarks = append(remarks, l.ShareText())
	case l.Share > 0:
		remarks = append(remarks, l.ShareText())
	}

	if at, estimated, known := l.EndsAt(now); known && !l.Ended {
		remarks = append(remarks, prose.EndTime(toLocal(at), toLocal(now), estimated))
		r.end = cmp.Or(r.end, endText(at, now, estimated))
	}

	if l.Unhealthy != "" {
		remarks = append(remarks, "unhealthy: "+l.Unhealthy)
	}

	if l.Remedy != "" {
		remarks = append(remarks, l.Remedy)
	}

	if w, known := v.works[l.ID]; known {
		r.work = &w
	}

	r.job = v.queue.jobOf(l.PID)
	r.remark = strings.Join(remarks, " · ")

	return r
}

// addDevice adds a further device of a lease.
func (r *row) addDevice(d *status.Device, l *status.Lease, place int, where string) {
	if !slices.Contains(r.devices, place) {
		r.devices = append(r.devices, place)
	}

	n := float64(1 + strings.Count(r.where, ","))
	r.where += ", " + where
	if l.Memory != nil {
		sum := *l.Memory
		if r.memory != nil {
			sum += *r.memory
		}
		r.memory = &sum
	}

	if size := d.MemoryTotal; l.Share == 0 && size != nil && r.room != nil {
		r.room = new(*r.room + *size)
	} else if l.Share > 0 && r.room != nil {
		r.room = new(*r.room + l.Share)
	}

	if d.Utilization == nil || r.load == nil {
		r.load = nil
	} else {
		r.load = new((*r.load*n + *d.Utilization) / (n + 1))
	}

	r.odd = r.odd || l.Over()
}

// rowOfProcess: what may serve a display, and what is not known here, cannot be ended.
func rowOfProcess(d *status.Device, p status.Process, place int, where string) row {
	r := row{id: fmt.Sprint("process ", p.PID, " ", p.Outside, d.UUID), kind: process, name: fmt.Sprint(p.PID), devices: []int{place}, where: where, user: p.Owner(), command: cmp.Or(p.Nameless(), p.Command),
		line: p.Command, memory: p.Memory, room: d.MemoryTotal, since: p.Since, end: "no lease", remark: "no lease", odd: !p.Display}
	if p.Spared {
		r.kind = spared
	}

	switch {
	case p.Lease != "":
		r.end, r.remark = "stray", "it belongs to lease "+p.Lease+", which does not have this GPU"
	case p.PID == 0:
		r.name, r.remark = "-", fmt.Sprintf("PID %d there", p.Outside)
	case p.Display:
		r.end, r.remark = "display", "display"
	}

	return r
}

// treeOf are the rows with the processes of each lease below it.
func treeOf(rows []row, workers map[string][]observe.Worker, rate func(w observe.Worker) float64) (out []row) {
	for _, r := range rows {
		out = append(out, r)
		if r.kind != lease {
			continue
		}

		for _, w := range workers[r.name] {
			out = append(out, row{id: fmt.Sprint("worker ", w.PID, " ", w.Start), kind: worker, name: fmt.Sprint(w.PID), devices: r.devices, user: r.user,
				command: w.Command, line: w.Command, work: &computerUse{rate(w), w.Memory}, depth: w.Depth + 1, job: r.job, remark: fmt.Sprintf("process %d of %s", w.PID, r.name)})
		}
	}
	return out
}

// waitingRows are the requests, the next one first, and then what waits in the own queue without being in the line itself.
func (v *rowBuilder) waitingRows() (rows []row) {
	s := v.s
	for i := range s.Waiting {
		w := &s.Waiting[i]
		r := row{id: "request " + w.ID, kind: request, name: w.ID, user: w.User, command: w.Command, since: w.Since, where: requestText(w.Count, w.Memory, w.Share), end: "?", remark: w.Why}
		if i < len(v.starts) && !v.starts[i].IsZero() {
			r.end = startText(v.starts[i], s.Now)
		}

		switch {
		case w.Stopped:
			r.end, r.remark = "stopped", "its process is stopped: "+fmt.Sprintf("kill -CONT %d", w.PID)
		case w.Most > 0:
			r.end = "rule"
		case w.Passed:
			r.remark = "it was next and did not start, others are ahead of it"
		}

		r.job = v.queue.ticketOf(w, rows)
		rows = append(rows, r)
	}
	for i := range v.queue.Jobs {
		j := &v.queue.Jobs[i]
		if j.State != "waiting" || slices.ContainsFunc(rows, func(r row) bool { return r.job == j.Number }) {
			continue
		}

		r := row{id: fmt.Sprint("job ", j.Number), kind: queued, name: fmt.Sprint("job ", j.Number), user: v.me, command: prose.Clean(j.Name), line: prose.Clean(strings.Join(j.Command, " ")), since: &j.Submitted, where: j.Asks, end: "?", job: j.Number, remark: cmp.Or(j.HeldBack, j.Why)}
		if j.Expected != nil {
			r.end = startText(*j.Expected, s.Now)
		}

		rows = append(rows, r)
	}

	return rows
}

// requestText is what a request needs: "2 GPUs", "1 GPU × 20G".
func requestText(count int, memory, share gpu.Bytes) string {
	text := fmt.Sprintf("%d GPU", count)
	if count != 1 {
		text += "s"
	}
	if size := max(memory, share); size > 0 {
		text += " × " + formatSize(size)
	}

	return text
}

func startText(at, now time.Time) string {
	if !at.After(now) {
		return "now"
	}
	return endText(at, now, true)
}

// endText is a time in at most seven characters.
func endText(at, now time.Time, estimated bool) string {
	at, now = toLocal(at), toLocal(now)
	text := at.Format("15:04")
	if at.Sub(now) > 20*time.Hour {
		text = at.Format("2 Jan")
	}

	if estimated {
		return "~" + text
	}

	return text
}

// sortOrders are what the rows can be sorted by, the usual one first.
func sortOrders() []string { return []string{"GPU", "user", "load", "memory", "CPU", "age"} }

// filterAndSort are the rows of one user, "" for all, that contain a text, in an order.
func filterAndSort(rows []row, order, filter, user string) []row {
	filter = strings.ToLower(filter)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
		text := strings.ToLower(strings.Join([]string{r.user, r.command, r.line, r.name, r.remark, r.end, "gpu" + r.where}, " "))
		return user != "" && r.user != user || filter != "" && !strings.Contains(text, filter)
	})
	slices.SortStableFunc(rows, func(a, b row) int {
		by := 0
		switch order {
		case "user":
			by = strings.Compare(a.user, b.user)
		case "load":
			by = -cmp.Compare(prose.OrElse(a.load, -1), prose.OrElse(b.load, -1))
		case "memory":
			by = -cmp.Compare(prose.OrElse(a.memory, -1), prose.OrElse(b.memory, -1))
		case "CPU":
			none := computerUse{processors: -1}
			by = -cmp.Compare(prose.OrElse(a.work, none).processors, prose.OrElse(b.work, none).processors)
		case "age":
			late := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
			by = prose.OrElse(a.since, late).Compare(prose.OrElse(b.since, late))
		}
		return cmp.Or(by, cmp.Compare(firstOf(a), firstOf(b)))
	})

	return rows
}

func firstOf(r row) int {
	if len(r.devices) == 0 {
		return -1
	}
	return r.devices[0]
}

func toLocal(t time.Time) time.Time { return t.Local() }
