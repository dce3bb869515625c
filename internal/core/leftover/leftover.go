// Package leftover finds what takes a device's memory without a living lease, and what has a lease and sleeps. It reads no
// process and ends none: what belongs to which lease, and when a process last worked, is told to it.
package leftover

import (
	"cmp"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
)

// Row is memory on one device that somebody could give back.
type Row struct {
	Index   int            `json:"index"` // of the device
	UUID    gpu.UUID       `json:"uuid"`  // of the device, or of the MIG device
	Vendor  gpu.Vendor     `json:"vendor"`
	PID     int            `json:"pid"`             // 0: memory that no visible process accounts for
	Start   uint64         `json:"start"`           // of PID, ticks since boot
	UID     *uint32        `json:"uid"`             // null when unknown
	User    string         `json:"user"`            // "" when unknown
	Memory  *gpu.Bytes     `json:"memory"`          // null: the driver does not say
	Since   *time.Time     `json:"since"`           // when the process began
	Idle    *time.Duration `json:"idle_ns"`         // for at least this long; null: not known yet
	Lease   string         `json:"lease,omitempty"` // of a process that has one and sleeps
	Zombie  bool           `json:"zombie"`          // it has ended, and nobody has collected it
	Command string         `json:"command"`
}

// Evicted is how ending one process went.
type Evicted struct {
	PID     int    `json:"pid"`
	User    string `json:"user"`
	Command string `json:"command"`
	Gone    bool   `json:"gone"`
	Why     string `json:"why,omitempty"` // why it is not gone
}

// Question is what is known about the machine.
type Question struct {
	Machine gpu.Machine
	Lease   map[int]string    // process to the living lease that it belongs to
	Covered map[gpu.UUID]bool // devices on which a lease lives: their unexplained memory may be the lease's
	Seen    []Sighting        // of earlier looks and this one
	Idle    time.Duration     // 0: everything without a lease; else only what sleeps for at least this long, with a lease too
}

// unseenWorthARow is memory without a process below which it is the driver's own.
const unseenWorthARow = 64 * gpu.MiB

// Of lists leftovers, largest first on each device, devices in index order. Display processes are none: a desktop is at work.
func Of(q Question) []Row {
	rows := []Row{}
	for _, d := range q.Machine.Devices {
		for _, p := range q.Machine.On(d.UUID) {
			if row, ok := q.process(d, p); ok {
				rows = append(rows, row)
			}
		}
		if row, ok := q.unseen(d); ok {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Index, b.Index), cmp.Compare(known(b.Memory), known(a.Memory)), cmp.Compare(a.PID, b.PID))
	})
	return rows
}

// Spared says why a process is not among the rows, and what to do about that.
func Spared(q Question, pid int) string {
	i := slices.IndexFunc(q.Machine.Processes, func(p gpu.Process) bool { return p.PID == pid })
	lease, leased := q.Lease[pid]
	switch {
	case i < 0:
		return "it has no GPU memory, as far as the driver says; gpuard evict lists what has"
	case q.Machine.Processes[i].Kind == gpu.GraphicsProcess:
		return "it serves a display; ending that is not for gpuard"
	case q.Idle > 0 && leased:
		return "it belongs to the living lease " + lease + " and is not known to have slept for that long; look again later: gpuard evict --idle " + q.Idle.String()
	case q.Idle > 0:
		return "it is not known to have slept for that long; it has no lease, so leave out --idle to end it all the same"
	case leased:
		return "it belongs to the living lease " + lease + ", whose owner ends its command: gpuard status"
	}
	return "it is not in the list of gpuard evict"
}

func (q Question) process(d gpu.Device, p gpu.Process) (Row, bool) {
	row := Row{
		Index: d.Index, UUID: p.GPU, Vendor: d.Vendor, PID: p.PID, Start: p.Start, UID: p.UID, User: p.User, Memory: p.Memory,
		Lease: q.Lease[p.PID], Zombie: p.State == "Z", Command: p.Command, Idle: idle(q.Seen, p),
	}
	if !p.Started.IsZero() {
		row.Since = new(p.Started)
	}
	switch {
	case p.Kind == gpu.GraphicsProcess:
		return row, false
	case q.Idle > 0:
		return row, row.Idle != nil && *row.Idle >= q.Idle
	}
	return row, row.Lease == ""
}

// unseen is used memory that no process in the list explains: a container's, another PID namespace's, or what a process
// that is gone left behind. A lease on the device may be whose it is.
func (q Question) unseen(d gpu.Device) (Row, bool) {
	if d.MemoryUsed == nil || q.Idle > 0 || q.Covered[d.UUID] {
		return Row{}, false
	}
	rest := *d.MemoryUsed
	if d.MemoryReserved == nil && d.MemoryTotal != nil { // an older driver counts what it keeps for itself as used
		rest -= max(512*gpu.MiB, *d.MemoryTotal/20)
	}
	for _, p := range q.Machine.On(d.UUID) {
		if p.Memory == nil {
			return Row{}, false // it may be all of that one
		}
		rest -= *p.Memory
	}
	return Row{Index: d.Index, UUID: d.UUID, Vendor: d.Vendor, Memory: &rest}, rest > unseenWorthARow
}

func known(b *gpu.Bytes) gpu.Bytes {
	if b == nil {
		return 0
	}
	return *b
}
