package job

import (
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/gpu"
)

// Kept describes a lease that outlives its command and waits for the next start of the same command (--keep-while).
type Kept struct {
	// SHA-256 of the path of the file of --keep-while: only its users know it.
	File string `json:"file"`
	// SHA-256 of the request: a different request does not take the lease over.
	Request string `json:"request"`
	// Wall clock, for display: when the waiting ends; zero while the command runs.
	Until time.Time `json:"until"`
}

// WaitsUntil is when a lease ends that waits for a next start of its command; zero for every other lease. It is zero
// too after that moment: then another process holds the lease. now may be zero where it is not known.
func (l *Lease) WaitsUntil(now time.Time) time.Time {
	if l.Ended && l.Kept != nil && !l.Kept.Until.Before(now.Truncate(time.Second)) {
		return l.Kept.Until
	}
	return time.Time{}
}

// StoppedHolder is the first stopped process that keeps a lease whose command has ended; nil where there is none.
func (l *Lease) StoppedHolder() *Blocker {
	for i := range l.HeldBy {
		if l.Ended && l.HeldBy[i].Stopped {
			return &l.HeldBy[i]
		}
	}
	return nil
}

// KillText is the command that ends those processes of m that still hold a lease whose command has ended, such as a
// server's engine that survived it: giving the lease back would not free their memory. It names only processes that are
// proven to be the holders: of the lease's user, on its devices, and begun when the holder did. "" where there is none.
func (l *Lease) KillText(m gpu.Machine) string {
	text := ""
	for _, b := range l.HeldBy {
		isHolder := func(p gpu.Process) bool {
			return p.PID == b.PID && p.Start == b.Start && p.UID != nil && *p.UID == l.UID && l.holdsProcess(m, p)
		}
		if l.Ended && b.Start != 0 && slices.ContainsFunc(m.Processes, isHolder) {
			text += " " + strconv.Itoa(b.PID)
		}
	}
	if text == "" {
		return ""
	}

	return "kill" + text
}

// holdsProcess reports whether a process is on a device of the lease, or on a slice of one.
func (l *Lease) holdsProcess(m gpu.Machine, p gpu.Process) bool {
	d, _, found := m.FindDevice(p.GPU)
	return l.Holds(p.GPU) || found && l.Holds(d.UUID)
}

// IsKeptByKernel reports whether the file of --keep-while is the connection file of a Jupyter kernel, which is among
// its arguments. A command line cannot name that file twice: VS Code fills in one place only (microsoft/vscode-jupyter:
// kernelProcess.node.ts, updateConnectionArgs).
func (s Spec) IsKeptByKernel() bool { return s.KeepWhile == "kernel" }
