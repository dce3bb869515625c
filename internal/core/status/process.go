package status

import (
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
)

// Process is one process on a device.
type Process struct {
	// 0: which process it is in this PID namespace is not known.
	PID     int        `json:"pid"`
	User    string     `json:"user"`
	Command string     `json:"command"`
	Memory  *gpu.Bytes `json:"memory"`
	Kind    gpu.Kind   `json:"kind"`
	Since   *time.Time `json:"since"`
	// Nothing proves that it belongs to a lease on this device.
	Foreign bool `json:"foreign"`
	Display bool `json:"display"` // serves a display
	// Where pid is 0: the driver's number of a process outside of this PID namespace.
	Outside int `json:"outside_pid,omitempty"`

	// That it belongs to, on this device or on another one; "" none is known.
	Lease string `json:"lease,omitempty"`
	// Id, "" outside containers.
	Container string  `json:"container,omitempty"`
	UID       *uint32 `json:"-"` // nil unknown
	// Ticks since boot; 0 unknown.
	Start uint64 `json:"-"`
	// It has ended since the driver listed it.
	Ended bool `json:"-"`
	// Nobody may be told to end it: it may serve a display, or is not known here.
	Spared bool `json:"-"`
}

// Owner is whose it is, as people see it.
func (p Process) Owner() string {
	if p.User == "" {
		return "?"
	}
	return p.User
}

// Nameless says instead of its command line why that is not known, as people see it; "" where it is.
func (p Process) Nameless() string {
	switch {
	case p.PID == 0:
		return "(another PID namespace)"
	case p.Command != "":
		return ""
	case p.Ended:
		return option.Expand("(it has ended; if its memory stays: {gpuard doctor})")
	}
	return "(unknown command)"
}
