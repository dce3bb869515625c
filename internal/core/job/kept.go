package job

import "time"

// Kept is what a lease that outlives its command is waiting for: the next start of the same (--keep-while).
type Kept struct {
	File    string    `json:"file"`    // SHA-256 of the path of the file that stands for the command: only its users know it
	Request string    `json:"request"` // SHA-256 of what was asked for: who asks for something else does not take the lease over
	Until   time.Time `json:"until"`   // wall clock, for people: when nobody waits any more; zero while the command runs
}

// Awaited is when a lease ends whose command is gone and that is kept for a next start; zero for every other lease, also where
// that moment has passed: then somebody else holds it. now may be zero where it is not known.
func (l *Lease) Awaited(now time.Time) time.Time {
	if l.Ended && l.Kept != nil && !l.Kept.Until.Before(now.Truncate(time.Second)) {
		return l.Kept.Until
	}
	return time.Time{}
}

// Stuck is the first process that keeps a lease whose command is gone and is stopped; nil where there is none.
func (l *Lease) Stuck() *Blocker {
	for i := range l.HeldBy {
		if l.Ended && l.HeldBy[i].Stopped {
			return &l.HeldBy[i]
		}
	}
	return nil
}

// OfKernel is the file of --keep-while for a kernel of Jupyter: its connection file, which is among its arguments. A command line
// that names that file twice would not do: VS Code fills in one place only (microsoft/vscode-jupyter: kernelProcess.node.ts,
// updateConnectionArgs).
const OfKernel = "kernel"
