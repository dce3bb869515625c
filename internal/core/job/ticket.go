package job

import (
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
)

// Ticket is a waiting request, readable by all users. It is written once; Devices and Known are written again when the
// machine's devices change. Only its lock says whether its owner still waits.
type Ticket struct {
	ID string `json:"id"`
	// The owner of the file, never from its content.
	UID  uint32 `json:"-"`
	User string `json:"-"` // name of UID
	// ns since 1970: st_ctime of its file, which the kernel sets and its owner cannot.
	Arrival int64 `json:"-"`
	// That could serve it, in use or not.
	Devices []gpu.UUID `json:"devices"`
	// Devices that were considered: one that is not in Devices cannot serve it.
	Known []gpu.UUID `json:"known,omitempty"`
	// How many of Devices it needs.
	Count int `json:"count"`
	// Each must have this free.
	Memory gpu.Bytes `json:"memory,omitempty"`
	// A share of this size on each; 0: whole devices.
	Share gpu.Bytes `json:"share,omitempty"`
	// Limit of devices for its owner at the same time, over all leases; 0 no limit.
	Max     int           `json:"max,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"` // Spec.TimeLimit
	// Spec.Time: orders only the tickets of its owner.
	Time time.Duration `json:"time_ns,omitempty"`
	// Spec.Nice, likewise.
	Nice int `json:"nice,omitempty"`
	// Spec.Asked (ns since 1970), likewise; 0: Arrival.
	Asked int64 `json:"asked_ns,omitempty"`
	// Lease inside which it waits.
	Parent string `json:"parent,omitempty"`
	// allocation of another scheduler inside which it waits.
	Allocation string `json:"allocation,omitempty"`
	// The waiting process.
	PID int `json:"pid"`
	// The start of PID, ticks since boot.
	Start uint64 `json:"start"`
	// Inode of the PID namespace of PID.
	Namespace uint64 `json:"pid_namespace"`
	Command   string `json:"command"` // as in Lease
	// Wall clock, for display.
	Since time.Time `json:"since"`
}

// Key names the ticket among those of all users, "UID/ID": its owner chooses the ID, which need not be unique.
func (t Ticket) Key() string { return strconv.FormatUint(uint64(t.UID), 10) + "/" + t.ID }
