// Package verify proves on which devices a process and its descendants are, from the driver's list, open device files
// and loaded libraries. It judges nothing itself: core/proof does.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/host/launch"
)

// Verification is whether a job is on the devices that it was promised, and what each witness said.
type Verification struct {
	Schema  string `json:"schema"` // "gpuard.verify/1"
	PID     int    `json:"pid"`
	Command string `json:"command"` // base name
	proof.Finding
	// That decides what the environment shows, "CUDA_VISIBLE_DEVICES=2"; "" without one.
	Variable string `json:"variable"`
	// The devices that the environment promises; never nil.
	Promised []namedDevice `json:"promised"`
	Lease    string        `json:"lease"` // "" without one
	// The devices of the lease; never nil.
	Leased []namedDevice `json:"leased"`
	// One per process and device; never nil.
	Sightings []listedProcess `json:"sightings"`
	// Recognised in the job; never nil.
	Frameworks []proof.Framework `json:"frameworks"`
	Watched    float64           `json:"watched"` // seconds
	// Told to end, as run --verify=TIME,stop asks.
	Stopped bool        `json:"stopped"`
	Facts   proof.Facts `json:"-"`
}

// namedDevice is a device for people and programs.
type namedDevice struct {
	// The index of the whole device; -1 when the machine does not list it.
	Index int      `json:"index"`
	UUID  gpu.UUID `json:"uuid"`
	Name  string   `json:"name"`
}

// listedProcess is one process on one device, as the driver listed it.
type listedProcess struct {
	PID     int    `json:"pid"`
	Command string `json:"command"` // base name
	namedDevice
	// The most seen, bytes; null when the driver does not say.
	Memory *gpu.Bytes `json:"memory"`
	Kind   gpu.Kind   `json:"kind"`
	// Seconds since the watching began.
	First float64 `json:"first"`
	Last  float64 `json:"last"`
}

// ProveJob watches a running job, named by a process id or a lease id, until the answer is clear or patience is over.
func ProveJob(ctx context.Context, host *machine.Host, target string, patience time.Duration) (*Verification, error) {
	if err := CheckVerifiable(host); err != nil {
		return nil, err
	}

	pid, lease, err := registry.FindTarget(host, "verify", target, gpu.Machine{})
	if err != nil {
		return nil, err
	}
	if why := host.Proc.MissingReason(pid); why != "" {
		return nil, exit.Usagef("cannot verify process %d: %s; gpuard status shows what runs on the GPUs", pid, why)
	}

	s, err := host.Proc.Stat(pid)
	if err != nil {
		return nil, exit.Usagef("cannot verify process %d: it has just ended", pid)
	}

	pidfd, err := launch.OpenPidfd(pid)
	if err != nil {
		return nil, err
	}

	defer pidfd.Close() //nolint:errcheck // close-on-exec anyway
	if lease != nil && s.Start != lease.Start || !host.Proc.IsAlive(pid, s.Start) {
		return nil, exit.Usagef("cannot verify process %d: it has just ended", pid)
	}

	w := newWatch(host, pid, s.Start, patience, launch.ExitChannel(pidfd), func() (string, bool) { return launch.EndSignalOf(pidfd) })
	w.thorough = true
	env, err := host.Proc.Environ(pid)
	w.env = env
	if err != nil {
		w.facts.Unread = err.Error()
		w.facts.Reading = outsideAdvice(err, os.Geteuid())
	}

	w.lease = lease
	if lease == nil {
		w.lease, _ = registry.LeaseOf(host, gpu.Machine{}, pid, w.env)
	}

	return w.watchUntilClear(ctx), nil
}

// ProveCommand runs a command as a child and watches it. It calls tell once, as soon as the answer is clear, and
// returns when the command has ended, with the way in which it ended. An error is about the start.
func ProveCommand(ctx context.Context, host *machine.Host, command []string, patience time.Duration, tell func(*Verification)) (*Verification, string, error) {
	if err := CheckVerifiable(host); err != nil {
		return nil, "", err
	}

	path, err := launch.FindCommand(command[0])
	if err != nil {
		return nil, "", err
	}

	child, err := launch.Command{Path: path, Argv: command, Env: host.Env}.Start()
	if err != nil {
		return nil, "", err
	}

	s, _ := host.Proc.Stat(child.PID())
	w := newWatch(host, child.PID(), s.Start, patience, child.Ended(), func() (string, bool) { return child.EndSignal(), true })
	w.facts.Command = machine.BaseName(command)
	w.env = host.Env
	w.lease, _ = registry.LeaseOf(host, gpu.Machine{}, os.Getpid(), host.Env)
	v := w.watchUntilClear(ctx)
	tell(v)

	return v, child.Wait(), nil
}

// outsideAdvice is the advice for an environment that even root cannot read; "" for other users, who can use sudo.
func outsideAdvice(err error, euid int) string {
	if euid != 0 || !errors.Is(err, os.ErrPermission) {
		return ""
	}
	return "verify outside of this container or restriction, where root may read it"
}

// CheckVerifiable returns why nothing can be verified here; nil if it can.
func CheckVerifiable(host *machine.Host) error {
	if host.IsHardware() {
		return nil
	}
	return exit.Usagef("cannot verify on an invented machine: no driver says who is on %s; leave --machine (GPUARD_MACHINE) out", host.Machine)
}

// newVerification is the answer with everything that was seen.
func (w *treeWatch) newVerification(finding proof.Finding) *Verification {
	f := w.facts
	v := &Verification{Schema: "gpuard.verify/1", PID: f.PID, Command: f.Command, Finding: finding, Variable: f.Mask, Lease: f.Lease,
		Promised: namedDevices(f.Machine, f.Promised), Leased: namedDevices(f.Machine, f.Leased), Sightings: []listedProcess{},
		Frameworks: append([]proof.Framework{}, f.Frameworks...), Watched: toSeconds(f.Watched), Facts: f}
	for _, s := range f.Sightings {
		v.Sightings = append(v.Sightings, listedProcess{s.PID, s.Command, namedDevices(f.Machine, []gpu.UUID{s.GPU})[0], s.Peak, s.Kind, toSeconds(s.First), toSeconds(s.Last)})
	}

	return v
}

func toSeconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

func namedDevices(m gpu.Machine, ids []gpu.UUID) []namedDevice {
	out := []namedDevice{}
	for _, id := range ids {
		v := namedDevice{Index: -1, UUID: id}
		if d, slice, ok := m.FindDevice(id); ok {
			v.Index, v.Name = d.Index, d.Name
			if slice != nil {
				v.Name += " MIG " + slice.Profile
			}
		}
		out = append(out, v)
	}
	return out
}

// HangingResult is the answer for a command that is not watched, because the driver does not answer.
func HangingResult(pid int, command string, m gpu.Machine, lease job.Lease) *Verification {
	w := &treeWatch{facts: proof.Facts{PID: pid, Command: command, Machine: m, Lease: lease.ID, Leased: lease.Devices}}
	return w.newVerification(proof.Finding{Verdict: proof.NotMeasurable, Notes: []string{},
		Text:   fmt.Sprintf("a driver call hangs, so %s (process %d) is not watched", command, pid),
		Remedy: fmt.Sprintf("when the driver answers again: gpuard verify %d", pid)})
}
