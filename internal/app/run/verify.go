package run

import (
	"os"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/verify"
	"gpuard/internal/host/launch"
)

// Oversight is how a run is verified while it runs.
type Oversight = verify.Oversight

// SetOversight makes Exec start a verifier process; nil for none.
func (l *Launch) SetOversight(o *Oversight) { l.oversight = o }

// startVerifier starts the process that verifies the command, which is or will be process pid.
func (l *Launch) startVerifier(pid int) error {
	o := l.oversight
	if o == nil {
		return nil
	}

	out := os.Stderr
	if l.log != nil && (l.task != nil || l.service.beforeRestart != nil) {
		// What its owner reads is the log.
		out = l.log.Err
	}

	return launch.StartWatcher(verify.Flag, pid, out, verify.Orders{PID: pid, Lease: l.Lease, Devices: l.claimed.Held.Lease.Devices, Oversight: *o})
}

// CheckOversight says why the command that this process becomes cannot be verified.
func CheckOversight() error {
	if !launch.CanHold() {
		return exit.Usagef("cannot verify here: this process adopts orphans (PID 1 of a container, or a subreaper), and a verifier would become the command's child; leave --verify out, and ask from another shell: gpuard verify")
	}
	return nil
}
