package job

import (
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
)

// Ticket is a waiting request as everybody sees it. It is written once, and its Devices and Known anew when the machine has
// other devices; whether its owner still waits only its lock says.
type Ticket struct {
	ID         string        `json:"id"`
	UID        uint32        `json:"-"`                    // of the file, never from its content
	User       string        `json:"-"`                    // name of UID
	Arrival    int64         `json:"-"`                    // ns since 1970: st_ctime of its file, the kernel's word and not its owner's
	Devices    []gpu.UUID    `json:"devices"`              // that could serve it, whoever has them now
	Known      []gpu.UUID    `json:"known,omitempty"`      // that it was decided about: one that is not in Devices cannot serve it
	Count      int           `json:"count"`                // how many of Devices it needs
	Memory     gpu.Bytes     `json:"memory,omitempty"`     // each must have this free
	Share      gpu.Bytes     `json:"share,omitempty"`      // a share of this size on each; 0: whole devices
	Max        int           `json:"max,omitempty"`        // devices that a rule gives its owner at once, over all leases; 0 no limit
	Timeout    time.Duration `json:"timeout_ns,omitempty"` // Spec.Limit
	Parent     string        `json:"parent,omitempty"`     // lease inside which it waits
	Allocation string        `json:"allocation,omitempty"` // allocation of another scheduler inside which it waits
	PID        int           `json:"pid"`                  // who waits
	Start      uint64        `json:"start"`                // of PID, ticks since boot
	Namespace  uint64        `json:"pid_namespace"`        // inode of the PID namespace in which PID counts
	Command    string        `json:"command"`              // base name only
	Since      time.Time     `json:"since"`                // wall clock, for people
}

// Key names the ticket among those of all users, "UID/ID": an id alone is chosen by its owner.
func (t Ticket) Key() string { return strconv.FormatUint(uint64(t.UID), 10) + "/" + t.ID }
