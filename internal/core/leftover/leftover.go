// Package leftover finds processes and memory on devices without a living lease, and idle processes with one:
//
//	rows := leftover.FindRows(leftover.Input{Machine: m, Lease: leases, Seen: sightings})
//
// It must not read or end processes: the caller passes in their leases and CPU times.
package leftover

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
)

// Row is memory on one device that could be freed.
type Row struct {
	Index int `json:"index"` // of the device
	// The UUID of the device, or of the MIG device.
	UUID   gpu.UUID   `json:"uuid"`
	Vendor gpu.Vendor `json:"vendor"`
	// 0: memory that no process accounts for that is known here.
	PID int `json:"pid"`
	// The start of PID, ticks since boot.
	Start uint64  `json:"start"`
	UID   *uint32 `json:"uid"`  // null when unknown
	User  string  `json:"user"` // "" when unknown
	// Null: the driver does not report it.
	Memory *gpu.Bytes `json:"memory"`
	// When the process began.
	Since *time.Time `json:"since"`
	// The time for which it is idle at least; null: not known yet.
	Idle *time.Duration `json:"idle_ns"`
	// The lease of an idle process that has one.
	Lease string `json:"lease,omitempty"`
	// It has ended, but its parent has not collected it.
	Zombie  bool   `json:"zombie"`
	Command string `json:"command"`
	// Nobody may be told to end it: it may serve a display.
	Spared bool `json:"-"`
}

// Eviction is the result of ending one process.
type Eviction struct {
	PID     int    `json:"pid"`
	User    string `json:"user"`
	Command string `json:"command"`
	Gone    bool   `json:"gone"`
	// why it has not ended.
	Why string `json:"why,omitempty"`
}

// Input is the state of the machine.
type Input struct {
	Machine gpu.Machine
	// Process to the living lease that it belongs to.
	Lease map[int]string
	// Devices with a living lease: their unexplained memory may belong to it.
	Covered map[gpu.UUID]bool
	// The sightings of earlier samples and this one.
	Seen []Sighting
	// 0: everything without a lease; else only processes idle for at least this long, with or without a lease.
	Idle time.Duration
}

// minUnseenMemory is the memory without a process below which it is taken for the driver's own.
const minUnseenMemory = 64 * gpu.MiB

// FindRows lists leftovers, largest first on each device, devices in index order. Display processes are not leftovers.
func FindRows(q Input) []Row {
	rows := []Row{}
	for _, d := range q.Machine.Devices {
		for _, p := range q.Machine.ProcessesOn(d.UUID) {
			if row, ok := q.processRow(d, p); ok {
				rows = append(rows, row)
			}
		}
		if row, ok := q.unseenRow(d); ok {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Index, b.Index), cmp.Compare(bytesOrZero(b.Memory), bytesOrZero(a.Memory)), cmp.Compare(a.PID, b.PID))
	})

	return rows
}

// WhySpared says why a process is not among the rows, and what to do about that.
func WhySpared(q Input, pid int) string {
	i := slices.IndexFunc(q.Machine.Processes, func(p gpu.Process) bool { return p.PID == pid })
	lease, leased := q.Lease[pid]
	switch {
	case i < 0 && slices.ContainsFunc(q.Machine.Processes, func(p gpu.Process) bool { return p.Outside == pid }):
		return "by that number the driver means a process outside of this PID namespace; the one here has not opened the GPU"
	case i < 0:
		return option.Expand("it has no GPU memory, as far as the driver says; {gpuard evict} lists what has")
	case q.servesDisplay(q.Machine.Processes[i]):
		return "it serves a display; ending that is not for gpuard"
	case q.Idle > 0 && leased:
		return option.Sprintf("it belongs to the living lease %s and is not known to have slept for that long; try again later: {gpuard evict} {idle=%s}", lease, q.Idle)
	case q.Idle > 0:
		return option.Expand("it is not known to have slept for that long; it has no lease, so leave out {idle} to end it all the same")
	case leased:
		return option.Sprintf("it belongs to the living lease %s, whose owner ends its command: {gpuard status}", lease)
	}

	return option.Expand("it is not in the list of {gpuard evict}")
}

func (i Input) processRow(d gpu.Device, p gpu.Process) (Row, bool) {
	row := Row{
		Index: d.Index, UUID: p.GPU, Vendor: d.Vendor, PID: p.PID, Start: p.Start, UID: p.UID, User: p.User, Memory: p.Memory,
		Lease: i.Lease[p.PID], Zombie: p.State == "Z", Command: p.Command, Idle: idleTime(i.Seen, p),
	}

	screen := display.ScreenOf(d, i.Machine.ProcessesOn(d.UUID))
	row.Spared = screen.MayServe(p)
	if !p.Started.IsZero() {
		row.Since = new(p.Started)
	}

	switch {
	case screen.Serves(p), p.PID == 0 && (i.Idle > 0 || i.Covered[d.UUID]):
		return row, false
	case i.Idle > 0:
		return row, row.Idle != nil && *row.Idle >= i.Idle
	}

	return row, row.Lease == ""
}

// servesDisplay reports whether a process serves the display of its device.
func (i Input) servesDisplay(p gpu.Process) bool {
	d, _, found := i.Machine.FindDevice(p.GPU)
	return found && display.ScreenOf(*d, i.Machine.ProcessesOn(d.UUID)).Serves(p)
}

// unseenRow is used memory that no listed process explains: of a container, of another PID namespace, or left by a
// process that has ended. If there is a lease on the device, it may be the lease's.
func (i Input) unseenRow(d gpu.Device) (Row, bool) {
	if d.MemoryUsed == nil || i.Idle > 0 || i.Covered[d.UUID] {
		return Row{}, false
	}

	rest := *d.MemoryUsed
	if d.MemoryReserved == nil && d.MemoryTotal != nil {
		// An older driver counts its own memory as used.
		rest -= max(512*gpu.MiB, *d.MemoryTotal/20)
	}

	for _, p := range i.Machine.ProcessesOn(d.UUID) {
		if p.Memory == nil {
			// It may be all of the memory.
			return Row{}, false
		}
		rest -= *p.Memory
	}

	return Row{Index: d.Index, UUID: d.UUID, Vendor: d.Vendor, Memory: &rest}, rest > minUnseenMemory
}

func bytesOrZero(b *gpu.Bytes) gpu.Bytes {
	if b == nil {
		return 0
	}
	return *b
}
