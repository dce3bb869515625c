package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// Waiting is one request in the queue.
type Waiting struct {
	// The place from 1, among those inside the same lease or allocation.
	Place   int    `json:"place"`
	ID      string `json:"id"` // of its ticket
	User    string `json:"user"`
	Command string `json:"command"` // base name
	// The PID of the gpuard that waits.
	PID int `json:"pid"`
	// PID is the number in a container or another PID namespace.
	Apart bool `json:"other_pid_namespace,omitempty"`
	// How many devices it needs.
	Count int `json:"count"`
	// That could serve it.
	Devices []gpu.UUID `json:"devices"`
	Memory  gpu.Bytes  `json:"memory,omitempty"`
	Share   gpu.Bytes  `json:"share,omitempty"`
	// Lease inside which it waits.
	Parent string     `json:"parent,omitempty"`
	Since  *time.Time `json:"since"`
	// The waiting process is stopped.
	Stopped bool `json:"stopped"`
	// It, or another ticket of its user, was next and did not start: others are ahead of it.
	Passed bool `json:"passed"`
	// Estimate of its owner; 0 none.
	Time time.Duration `json:"-"`
	Why  string        `json:"why"` // what it waits for
	// Why without command lines, for people who may not read them.
	Discreet string `json:"-"`
	// When it may start, by estimates; null unknown, and everywhere but in gpuard queue.
	Expected *time.Time `json:"expected"`
	// What runs there of which no end is known; "" none, and everywhere but in gpuard queue.
	Endless string `json:"endless,omitempty"`
	// Limit of devices for its user at the same time, if it waits because of that limit.
	Most int `json:"most,omitempty"`
	// Devices that are kept for it until enough of them are free: a request behind it gets them only if it is certain to end before.
	Kept []gpu.UUID `json:"kept,omitempty"`
	// When that ends, whether it has started or not.
	KeptUntil *time.Time `json:"kept_until,omitempty"`
}

// AddWaiting adds the waiting requests in queue order. here is the PID namespace of the caller; passed,
// stopped and full report further facts about a ticket.
func (r *Report) AddWaiting(line []job.Ticket, here uint64, passed, stopped, full func(t job.Ticket) bool) {
	for i, t := range line {
		most := 0
		if full(t) {
			most = t.Max
		}

		w := Waiting{
			Place: i + 1, ID: t.ID, User: prose.Clean(t.User), Command: prose.Clean(t.Command), PID: t.PID, Count: t.Count, Devices: append([]gpu.UUID{}, t.Devices...),
			Memory: t.Memory, Share: t.Share, Parent: prose.Clean(t.Parent), Since: timeOrNil(t.Since), Passed: passed(t), Stopped: stopped(t), Most: most, Time: t.Time,
			Apart: t.Namespace != 0 && t.Namespace != here,
		}

		w.Why = r.waitReason(&w, func(d *Device) string { return d.Reason })
		w.Discreet = r.waitReason(&w, func(d *Device) string { return d.Discreet })
		r.Waiting = append(r.Waiting, w)
	}
}

// maxDevicesInReason is how many devices the reason of a request names.
const maxDevicesInReason = 4

// waitReason says what keeps a request waiting: the same as a refusal says of each device, of which reason is the text.
func (r *Report) waitReason(w *Waiting, reason func(d *Device) string) string {
	if w.Most > 0 {
		return fmt.Sprintf("a rule allows its user %d at the same time", w.Most)
	}

	free, all := 0, 0
	var busy []string
	r.EachDevice(func(d *Device) {
		if !slices.Contains(w.Devices, d.UUID) {
			return
		}
		all++
		if d.Reason == "" {
			free++
			return
		}
		busy = append(busy, fmt.Sprintf("GPU %d: %s", d.Index, reason(d)))
	})

	switch {
	case free >= w.Count:
		return "enough is free, and others are ahead of it"
	case len(busy) > maxDevicesInReason:
		busy = append(busy[:maxDevicesInReason], fmt.Sprintf("and %d more", len(busy)-maxDevicesInReason))
	}

	return fmt.Sprintf("%d of %d that it can use %s free; %s", free, all, map[bool]string{true: "is", false: "are"}[free == 1], strings.Join(busy, "; "))
}

// EachDevice calls f for every device and every slice.
func (r *Report) EachDevice(f func(*Device)) {
	for i := range r.Devices {
		f(&r.Devices[i])
		for j := range r.Devices[i].MIG {
			f(&r.Devices[i].MIG[j])
		}
	}
}
