package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// row is one line that can be chosen: a lease on a device, a process without a lease, or a request that waits.
type row struct {
	id      string // that stays when the list changes
	kind    kind
	name    string // of a lease or a request: its ID; of a process: its number
	device  string // UUID; "" for a request
	index   int    // of the device; -1 for a request
	user    string
	command string
	memory  *gpu.Bytes
	since   *time.Time
	remark  string
}

type kind int

const (
	lease kind = iota
	process
	spared
	request
)

// rowsOf are those of a report.
func rowsOf(s *status.Report) (rows []row) {
	s.Each(func(d *status.Device) {
		for _, l := range d.Leases {
			r := row{"lease " + l.ID + string(d.UUID), lease, l.ID, string(d.UUID), d.Index, l.User, l.Command, l.Memory, l.Since, ""}
			switch {
			case l.Ended:
				r.remark = "ended, still held"
			case l.Share > 0:
				r.remark = l.ShareText()
			}
			if at, estimated, known := l.EndsAt(s.Now); known && !l.Ended {
				r.remark = strings.TrimPrefix(r.remark+", "+prose.EndTime(at, s.Now, estimated), ", ")
			}
			rows = append(rows, r)
		}
		for _, p := range d.Processes {
			if p.Foreign || len(d.Leases) == 0 {
				rows = append(rows, rowOfProcess(d, p))
			}
		}
	})
	for _, w := range s.Waiting {
		rows = append(rows, row{"request " + w.ID, request, w.ID, "", -1, w.User, w.Command, nil, w.Since, fmt.Sprintf("%d GPU, #%d", w.Count, w.Place)})
	}
	return rows
}

// rowOfProcess: what may serve a display, and what is not known here, cannot be ended.
func rowOfProcess(d *status.Device, p status.Process) row {
	r := row{fmt.Sprint("process ", p.PID, " ", p.Outside, d.UUID), process, fmt.Sprint(p.PID), string(d.UUID), d.Index, p.Owner(), cmp.Or(p.Nameless(), p.Command), p.Memory, p.Since, "no lease"}
	if p.Spared {
		r.kind = spared
	}
	switch {
	case p.PID == 0:
		r.name, r.remark = "-", fmt.Sprintf("PID %d there", p.Outside)
	case p.Display:
		r.remark = "display"
	}
	return r
}

// orders are what the rows can be sorted by, the usual one first.
func orders() []string { return []string{"GPU", "user", "memory", "age"} }

// sorted are the rows that contain filter, in an order.
func sorted(rows []row, order, filter string) []row {
	filter = strings.ToLower(filter)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
		return filter != "" && !strings.Contains(strings.ToLower(strings.Join([]string{r.user, r.command, r.name, r.remark, fmt.Sprint("gpu", r.index)}, " ")), filter)
	})
	slices.SortStableFunc(rows, func(a, b row) int {
		by := 0
		switch order {
		case "user":
			by = strings.Compare(a.user, b.user)
		case "memory":
			by = -cmp.Compare(sizeOf(a.memory), sizeOf(b.memory))
		case "age":
			by = beganAt(a.since).Compare(beganAt(b.since))
		}
		waits := func(r row) int {
			if r.kind == request {
				return 1
			}
			return 0
		}
		return cmp.Or(by, cmp.Compare(waits(a), waits(b)), cmp.Compare(a.index, b.index))
	})
	return rows
}

func sizeOf(b *gpu.Bytes) gpu.Bytes {
	if b == nil {
		return -1
	}
	return *b
}

// beganAt: what is not known comes last.
func beganAt(t *time.Time) time.Time {
	if t == nil {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return *t
}
