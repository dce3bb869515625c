package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/band"
)

// runRow is a job that runs, on all of its devices.
type runRow struct {
	status.Lease
	// The number in the queue; 0 none.
	Number  int
	Own     bool
	Devices []*status.Device
	// Mean of its devices.
	Load *float64
	For  string
	Till string
}

// Running are the leases, one's own first, then in the order of their devices.
func (j jobSection) Running() (rows []*runRow) {
	at := map[string]*runRow{}
	owner := j.site.ownerName()
	j.Report.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			if l.Parent != "" {
				continue
			}

			row := at[l.ID]
			if row == nil {
				row = &runRow{Lease: l, Own: l.User == owner}
				row.Memory = nil
				at[l.ID] = row
				rows = append(rows, row)
			}

			row.Devices = append(row.Devices, d)
			if l.Memory != nil {
				sum := *l.Memory
				if row.Memory != nil {
					sum += *row.Memory
				}
				row.Memory = &sum
			}

			row.Unhealthy = ""
		}
	})

	numbers := j.jobNumbers()
	for _, row := range rows {
		row.Number = numbers[row.PID]
		row.Load = meanLoad(row.Devices)
		row.Till = j.tillText(&row.Lease)
		if row.Since != nil {
			row.For = band.DurationText(j.reportTime().Sub(*row.Since))
		}
	}

	slices.SortStableFunc(rows, func(a, b *runRow) int {
		return map[bool]int{true: 0, false: 1}[a.Own] - map[bool]int{true: 0, false: 1}[b.Own]
	})

	return rows
}

// tillText is when a lease is over.
func (c *pageData) tillText(l *status.Lease) string {
	at, estimated, known := l.EndsAt(c.reportTime())
	switch {
	case !known:
		return "unknown"
	case estimated:
		return "about " + prose.NearTime(at, c.reportTime())
	}
	return prose.NearTime(at, c.reportTime())
}

// jobNumbers are those of the own jobs that run, by the process of their lease.
func (c *pageData) jobNumbers() map[int]int {
	out := map[int]int{}
	for _, e := range c.queueLine().Jobs {
		if e.State == userqueue.Running && e.PID > 0 {
			out[e.PID] = e.Number
		}
	}
	return out
}

func meanLoad(devices []*status.Device) *float64 {
	sum, n := 0.0, 0
	for _, d := range devices {
		if d.Utilization != nil {
			sum, n = sum+*d.Utilization, n+1
		}
	}
	if n == 0 {
		return nil
	}

	return new(sum / float64(n))
}

// Names are the devices of a row: "0, 1".
func (r *runRow) Names() string {
	names := []string{}
	for _, d := range r.Devices {
		name := strconv.Itoa(d.Index)
		if d.Profile != "" {
			name = d.Profile
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Ends reports whether an action of the page can end it: a run is its owner's to end, and a lease that is left over root's too.
func (r *runRow) Ends(c *screen) bool {
	return c.mayEnd(r.User) && (r.Ended || r.User == c.site.ownerName())
}

// Ask is the question before it is ended.
func (r *runRow) Ask(c *screen) string {
	name := r.ID
	if r.Number > 0 {
		name = strconv.Itoa(r.Number)
	}
	if r.Ended {
		return c.Say(fmt.Sprintf("Release %s, %s of %s, whose command has ended?", r.ID, r.Command, r.User))
	}

	return c.Say(fmt.Sprintf("End job %s, %s of %s, running for %s?", name, r.Command, r.User, r.For))
}

// Act is the action that ends it.
func (r *runRow) Act() string {
	if r.Ended {
		return "release"
	}
	return "cancel"
}

// Word is what the action is done to.
func (r *runRow) Word() string {
	if r.Number > 0 && !r.Ended {
		return strconv.Itoa(r.Number)
	}
	return r.ID
}

// mayEnd reports whether the user who serves can end what belongs to somebody.
func (c *pageData) mayEnd(user string) bool {
	owner := c.site.ownerName()
	return c.site.Token != "" && (user == owner || owner == "root")
}
