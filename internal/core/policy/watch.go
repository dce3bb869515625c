package policy

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/display"
	"gpuard/internal/core/gpu"
)

// Level is what happens about an outsider: a process without a lease on a device that another user has leased. Each
// level includes those before it.
type Level string

// Levels, weakest first.
const (
	Off Level = "off" // a line in the log
	// The owner of the machine is told.
	Report Level = "report"
	// The user of the process is told.
	Warn Level = "warn"
	// The process is ended after Watch.Grace.
	End Level = "end"
)

// AtLeast reports whether l includes other.
func (l Level) AtLeast(other Level) bool {
	order := []Level{Off, Report, Warn, End}
	return slices.Index(order, cmp.Or(l, Off)) >= slices.Index(order, other)
}

// DefaultGrace is the time from the warning of an outsider to its end.
const DefaultGrace = 5 * time.Minute

// Watch is what gpuard serve does about what is wrong with the machine.
type Watch struct {
	// Address that is told; "" none.
	Webhook   string
	Outsiders Level // "" is Off
	Grace     time.Duration
	// Users, their numbers, or names of commands that are never outsiders.
	Except []string
	// Memory up to which what draws on a screen is none.
	Display gpu.Bytes
}

// Watch is that of the machine's file.
func (p Policy) Watch() (w Watch) {
	for _, f := range p {
		if f.Machine {
			w = f.Watch
		}
	}
	w.Outsiders, w.Grace = cmp.Or(w.Outsiders, Off), cmp.Or(w.Grace, DefaultGrace)
	return w
}

// WithoutRootRights is w without what only root does for the machine.
func (w Watch) WithoutRootRights() Watch {
	w.Webhook = ""
	if w.Outsiders.AtLeast(Report) {
		w.Outsiders = Report
	}
	return w
}

// Program is a process as a rule of Watch sees it.
type Program struct {
	UID     *uint32 // nil unknown
	User    string
	Command string // its command line
	// It serves a display.
	Display bool
	Memory  *gpu.Bytes
}

// Name is the name of the program without its folder.
func (p Program) Name() string { return display.ProgramName(p.Command) }

// Spares reports whether a process may use leased devices without a lease: by the file, as a part of the driver, or
// because it serves a display.
func (w Watch) Spares(p Program) bool {
	name := p.Name()
	for _, word := range w.Except {
		number, err := strconv.ParseUint(word, 10, 32)
		if word == p.User || word == name || err == nil && p.UID != nil && uint32(number) == *p.UID {
			return true
		}
	}
	return IsDaemon(p) || w.isToleratedDisplay(p)
}

// isToleratedDisplay: a desktop with one device would never work otherwise.
func (w Watch) isToleratedDisplay(p Program) bool {
	return p.Display && (p.Memory == nil || *p.Memory <= w.Display)
}

// IsDaemon reports whether a process is one of NVIDIA's own daemons (docs.nvidia.com: driver persistence, MPS, DCGM,
// fabric manager). Any user can give a program such a name, so only root and the accounts of the system count, whose
// numbers are below 1000 (SYS_UID_MAX of login.defs(5)).
func IsDaemon(p Program) bool {
	const firstOfPeople = 1000
	return p.UID != nil && *p.UID < firstOfPeople && slices.Contains([]string{"nvidia-persistenced", "nvidia-powerd", "nvidia-cuda-mps-control",
		"nvidia-cuda-mps-server", "nv-hostengine", "dcgmi", "dcgm-exporter", "nv-fabricmanager", "nvidia-fabricmanager", "nvidia-imex", "nvsm_core"}, p.Name())
}
