package job

import (
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
)

// Ticket is a waiting request, readable by all users. It is written once; Devices and Known are written again when the
// machine's devices change. Only its lock says whether its owner still waits.
type Ticket struct {
	ID         string        `json:"id"`
	UID        uint32        `json:"-"`                    // of the file, never from its content
	User       string        `json:"-"`                    // name of UID
	Arrival    int64         `json:"-"`                    // ns since 1970: st_ctime of its file, which the kernel sets and its owner cannot
	Devices    []gpu.UUID    `json:"devices"`              // that could serve it, in use or not
	Known      []gpu.UUID    `json:"known,omitempty"`      // devices that were considered: one that is not in Devices cannot serve it
	Count      int           `json:"count"`                // how many of Devices it needs
	Memory     gpu.Bytes     `json:"memory,omitempty"`     // each must have this free
	Share      gpu.Bytes     `json:"share,omitempty"`      // a share of this size on each; 0: whole devices
	Max        int           `json:"max,omitempty"`        // limit of devices for its owner at the same time, over all leases; 0 no limit
	Timeout    time.Duration `json:"timeout_ns,omitempty"` // Spec.TimeLimit
	Time       time.Duration `json:"time_ns,omitempty"`    // Spec.Time: orders only the tickets of its owner
	Nice       int           `json:"nice,omitempty"`       // Spec.Nice, likewise
	Asked      int64         `json:"asked_ns,omitempty"`   // Spec.Asked (ns since 1970), likewise; 0: Arrival
	Parent     string        `json:"parent,omitempty"`     // lease inside which it waits
	Allocation string        `json:"allocation,omitempty"` // allocation of another scheduler inside which it waits
	PID        int           `json:"pid"`                  // the waiting process
	Start      uint64        `json:"start"`                // of PID, ticks since boot
	Namespace  uint64        `json:"pid_namespace"`        // inode of the PID namespace of PID
	Command    string        `json:"command"`              // as in Lease
	Since      time.Time     `json:"since"`                // wall clock, for display
}

// Key names the ticket among those of all users, "UID/ID": its owner chooses the ID, which need not be unique.
func (t Ticket) Key() string { return strconv.FormatUint(uint64(t.UID), 10) + "/" + t.ID }
