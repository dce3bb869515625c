package claim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/store"
)

// A claim reads the machine more than once: leases begin and end while it is read, memory of a job that has ended is
// not free yet, a request waits. Each call of the driver costs time, and a driver that is asked often slows the jobs
// down. So a reading is only about the devices of which it can change the answer; the others keep their last one.

// readMoment says when a device was read.
type readMoment struct {
	// It shows all changes of leases up to this one.
	since store.Generation
	at    time.Time
}

// rereadCause is why the machine is read again.
type rereadCause int

const (
	// The use of devices, which no file shows.
	mayHaveChanged rereadCause = iota
	// The reading was a moment too old for a decision.
	readingTooOld
)

// longestKept is how long a device keeps its reading while another's lease is in the way: a fault of it is heeded no
// later.
const longestKept = 10 * time.Second

// firstQuery is what a request reads first: where it names devices by number, only those, and the identity of the
// others. Numbers in variables rest on that (CUDA counts a lost GPU, and one with slices, otherwise), and so does a
// mask.
func firstQuery(host *machine.Host, spec job.Spec, whose Subject) gpu.Query {
	query := gpu.Query{What: WhatToRead(spec)}
	isPlain := spec.KeepWhile == "" && spec.Moving == "" && spec.MIG == "" && query.What&gpu.Links == 0
	if !host.IsHardware() || whose.Running || !isPlain {
		return query
	}

	some := query
	for _, name := range spec.Devices {
		index, err := strconv.Atoi(strings.TrimSpace(name))
		if err != nil {
			return query
		}
		some.Only = append(some.Only, index)
	}

	return some
}

// readFirst does not wait for devices that are late, unless all are.
func readFirst(ctx context.Context, host *machine.Host, query gpu.Query) (m gpu.Machine, partial bool, err error) {
	m, partial, err = host.ReadFast(ctx, query)
	if err == nil || !partial {
		return m, partial, err
	}

	m, err = host.ReadAll(ctx, query.What)

	return m, false, err
}

// rereadChanged reads again what may have changed. Where that fails, the last reading stays.
func (c *claimer) rereadChanged(ctx context.Context, why rereadCause, read machine.Reader) error {
	q, now := c.request, readMoment{since: c.folder.Generation(c.boot)}
	query := c.nextQuery(why)
	m, err := read(ctx, query)
	if err == nil && query.Only != nil {
		whole, same := m.FillFromEarlier(q.machine, query)
		m = whole
		if !same {
			query = gpu.Query{What: query.What | WhatToRead(q.spec)}
			m, err = read(ctx, query)
		}
	}

	if err != nil {
		return err
	}

	now.at = time.Now()
	q.acceptReading(m, query, now)
	q.noteInvisible()

	return nil
}

// readWhole reads the whole machine, as the first reading would have.
func (c *claimer) readWhole(ctx context.Context) error {
	return c.rereadChanged(ctx, mayHaveChanged, func(ctx context.Context, query gpu.Query) (m gpu.Machine, err error) {
		m, c.request.partial, err = readFirst(ctx, c.host, query)
		return m, err
	})
}

// rereadAll waits for devices that were late.
func (c *claimer) rereadAll(ctx context.Context) error {
	c.request.partial = false
	now := readMoment{since: c.folder.Generation(c.boot)}
	m, err := c.host.ReadAll(ctx, WhatToRead(c.request.spec))
	if err != nil {
		return err
	}

	now.at = time.Now()
	c.request.acceptReading(m, gpu.Query{}, now)

	return err
}

// acceptReading makes m the machine of the request. The devices that the query did not want keep the times of their
// readings.
func (q *request) acceptReading(m gpu.Machine, query gpu.Query, now readMoment) {
	older := map[gpu.UUID]readMoment{}
	for i := range m.Devices {
		if d := &m.Devices[i]; !query.Wants(d) {
			older[d.UUID] = q.lastReading(d.UUID)
		}
	}
	q.machine, q.older, q.narrow = m, older, false
	q.since, q.readAt = now.since, now.at
}

// lastReading says when the device was last read. One with slices is read each time, and so are the slices.
func (q *request) lastReading(id gpu.UUID) readMoment {
	if r, older := q.older[id]; older {
		return r
	}
	return readMoment{q.since, q.readAt}
}

// checkNextQuery is what the next reading has to be about. It looks at the leases after the count of changes was read:
// if one of those ends later, that is noticed as a change.
//
// Where nothing is read because leases are in the way everywhere, nothing can be given either. Otherwise all devices
// are identified, for numbers in variables.
func (c *claimer) nextQuery(why rereadCause) gpu.Query {
	q := c.request
	query := gpu.Query{What: WhatToRead(q.spec)}
	if len(q.absent) > 0 {
		query.What |= gpu.RecountDevices
		return query
	}

	readsWhole := !q.host.IsHardware() || strings.Contains(q.machine.Source, "nvidia-smi")
	lacksLinks := query.What&gpu.Links != 0 && !hasLinks(q.machine)
	if readsWhole || lacksLinks || q.narrow || q.final || q.view.Unknown {
		return query
	}

	sight, err := c.folder.ReadSight(c.boot)
	if err != nil {
		return query
	}

	only, kept := []int{}, 0
	for i := range q.machine.Devices {
		d := &q.machine.Devices[i]
		switch {
		case d.Vendor != gpu.NVIDIA:
		case q.keepsReading(d, sight, why):
			kept++
		default:
			only = append(only, d.Index)
		}
	}

	if kept == 0 {
		return query
	}

	return gpu.Query{What: query.What &^ gpu.Links, Only: only, Known: len(only) == 0}
}

// hasLinks reports whether the connections of all devices that answer are known.
func hasLinks(m gpu.Machine) bool {
	return !slices.ContainsFunc(m.Devices, func(d gpu.Device) bool {
		return d.Vendor == gpu.NVIDIA && d.Problem == "" && d.Links == nil
	})
}

// keepsReading reports whether a new reading of the device would change nothing: it was just read and no lease of it
// has changed, or another's lease is in the way whatever is read.
func (q *request) keepsReading(d *gpu.Device, sight store.UnlockedView, why rereadCause) bool {
	last, change := q.lastReading(d.UUID), sight.Changes[d.UUID].Generation
	isWhole := d.UUID != "" && d.Problem == "" && d.Unlisted == "" && !d.UsesMIG()
	switch {
	case !isWhole || time.Since(last.at) > longestKept:
		return false
	case why == readingTooOld && change <= last.since && time.Since(last.at) < machine.MaxReadingAge/2:
		return true
	}

	isHeldStill := sight.Leased[job.DeviceHash(d.UUID)] && change == q.view.Changes[d.UUID].Generation

	return isHeldStill && q.isInTheWay(d.UUID)
}

// isInTheWay reports whether the device had, at the last attempt, a lease that leaves nothing of it to this request.
func (q *request) isInTheWay(id gpu.UUID) bool {
	mayShare := q.subject.Running || q.spec.Share > 0 || q.spec.Moving != "" || q.allocationID() != ""
	if mayShare || len(q.enclosingLeases(q.view.Held)) > 0 {
		return false
	}
	return slices.ContainsFunc(q.view.Held, func(l job.Lease) bool {
		return l.Share == 0 && l.Parent == "" && l.Allocation == "" && !l.Ended && l.Holds(id)
	})
}
