// Package job has the values of a request and its answer: spec, plan, refusal, lease, ticket.
//
//	spec := job.Spec{Command: []string{"python", "train.py"}, GPUs: 2, Timeout: time.Hour}
//
// It must not choose devices or store anything.
package job

import (
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// Spec is a job's request.
type Spec struct {
	// Empty means a shell.
	Command []string
	// --name: what the job is called where it is listed; "" the base name of Command.
	Name string
	// Whole devices; 0 only with CPU, Devices or MIG.
	GPUs int
	CPU  bool // no device at all
	// --device: indices, UUIDs or unique prefixes, PCI ids, in the order the program sees.
	Devices []string
	// --mig: profile of one slice.
	MIG string
	// --exclude: same forms as Devices.
	Exclude []string
	// Devices that it had before, taken first if they can be given now, in this order; it never waits for them. No
	// flag.
	Prefer []gpu.UUID
	// --model: glob over the device name, case ignored.
	Model      string
	MinCompute *gpu.Capability // --min-compute
	// --mem: free on each device; 0 asks for nothing.
	Memory gpu.Bytes
	// --share: a shared lease of this quota on each device; 0 asks for whole devices.
	Share gpu.Bytes
	// --quota: how hard the quota shall be.
	Quota Quota
	// --require-quota: refuse one that is less hard; "" takes any.
	Require Quota
	// --isolate: what shall keep it from other devices.
	Isolate Isolation
	// --require-isolation: refuse less; "" takes any.
	Isolated Isolation
	// --mps-threads: percent of a device's processors; 0 leaves all.
	Threads int
	// --expect: estimate, plans only; 0 unknown.
	Time time.Duration
	// --nice: of the requests of one user, a lower one goes first.
	Nice int
	// When it was submitted to a queue; zero: it comes now. No flag.
	Asked time.Time `json:"-"`
	// --timeout: enforced; 0 none.
	Timeout time.Duration
	// --grace: how long it may take to end after that.
	Grace time.Duration
	Place Place // --place
	IDs   IDs   // --ids
	// --any: ignore a mask already set in the environment.
	Any bool
	// --anyway: start a command that surely uses other GPUs than those that it is given.
	Anyway bool
	// --keep-while: while this file exists, the lease waits for a next start of the command.
	KeepWhile string
	// --torchrun, --ranks: several processes of the command; nil is one.
	Ranks *Ranks
	// What happens while no device is free.
	Waiting Waiting `json:"-"`
	// The lease that is given back for this one; "" none. No flag.
	Moving string `json:"-"`
	// Devices that the job leaves: hot, slow or sick ones. No flag.
	Avoid []gpu.UUID `json:"-"`
}

// Waiting is what a request does while no device is free. The zero value waits for as long as it takes.
type Waiting struct {
	// --no-wait: not even for memory that is about to be freed.
	No bool
	// --wait: at most this long; 0 without a limit.
	Limit time.Duration
	// --fallback: what is tried instead of waiting, in order: "other", "cpu", "wait".
	Fallback []string
}

// Waits reports whether the request waits for a device that becomes free later.
func (w Waiting) Waits() bool {
	return !w.No && (len(w.Fallback) == 0 || slices.Contains(w.Fallback, "wait"))
}

// KillGrace is how long a killed process may take to exit. One that blocks inside a driver may take longer.
const KillGrace = 10 * time.Second

// TimeLimit is the time after its start at which the lease has certainly ended; 0 where nothing enforces that.
func (s Spec) TimeLimit() time.Duration {
	if s.Timeout <= 0 || s.KeepWhile != "" {
		return 0
	}
	return s.Timeout + s.Grace + KillGrace
}

// StartsTorchrun reports whether the command is a script for PyTorch's launcher, and no program.
func (s Spec) StartsTorchrun() bool { return s.Ranks != nil && s.Ranks.Torchrun }

// Ranks requests several cooperating processes of a command.
type Ranks struct {
	// PyTorch's launcher starts them, else gpuard does.
	Torchrun bool
	// Each sees only its own device; else all see all.
	Own bool
	// --nproc; 0: one per device.
	Count int
	// time for the others to end after one failed.
	Grace time.Duration
	// Messages about that are JSON objects.
	JSON bool
}

// Quota is how strictly the memory quota of a shared lease is enforced.
type Quota string

// Levels of a quota, weakest first. An exclusive lease has NoQuota.
const (
	NoQuota Quota = ""
	// Measured from outside; a job that uses more is warned, then ended.
	Watch Quota = "watch"
	// Limited per process by NVIDIA's Multi-Process Service, and watched.
	MPS Quota = "mps"
)

// Isolation is what stops a process from opening the devices of others.
type Isolation string

// Levels of isolation, weakest first. Without one only variables hide other devices. Off and AutoIsolation can be asked
// for, and are never in force.
const (
	NoIsolation Isolation = ""
	// NoIsolation, also where a default says otherwise.
	Off Isolation = "off"
	// The first that is possible, or none.
	AutoIsolation Isolation = "auto"
	// The device filter of its control group denies the other devices.
	Cgroup Isolation = "cgroup"
	// The other device files cannot be opened in its mount namespace.
	Namespace Isolation = "namespace"
	// Rules of Landlock do not allow the other device files.
	Landlock Isolation = "landlock"
)

// Level is the level that can be in force, or NoIsolation.
func (i Isolation) Level() Isolation {
	if i == Cgroup || i == Namespace || i == Landlock {
		return i
	}
	return NoIsolation
}

// Place forces how devices are ordered.
type Place string

// Placement modes; Auto spreads while the machine is quiet and packs when it is contended.
const (
	Auto   Place = ""
	Spread Place = "spread"
	Packed Place = "packed"
)

// IDs is how devices are written into variables.
type IDs string

// Forms of device identifiers in variables. AutoIDs writes indices for whole GPUs and UUIDs for MIG.
const (
	AutoIDs  IDs = "auto"
	UUIDs    IDs = "uuid"
	IndexIDs IDs = "index"
)

// Given is one device of a plan, in the order the program sees.
type Given struct {
	Logical int `json:"logical"`
	// The index of the whole device; of the parent for a MIG device.
	Index int `json:"index"`
	// The UUID of the device, or of the MIG device.
	UUID   gpu.UUID `json:"uuid"`
	Parent gpu.UUID `json:"parent,omitempty"` // of a MIG device
	Name   string   `json:"name"`
	// The label for users: "GPU 2", "GPU amd:0" on mixed machines.
	Label   string     `json:"-"`
	Profile string     `json:"profile,omitempty"` // of a MIG device
	Vendor  gpu.Vendor `json:"vendor"`
	PCI     string     `json:"pci"`
}

// Verdict is why one device was or was not taken.
type Verdict string

// Verdicts of a reason.
const (
	Chosen Verdict = "chosen"
	// Free, but another one was better.
	Eligible Verdict = "eligible"
	Busy     Verdict = "busy" // not now
	// This device can never satisfy the spec.
	Never Verdict = "never"
)

// Reason is the reason for one device.
type Reason struct {
	UUID    gpu.UUID `json:"uuid"`
	Index   int      `json:"index"`
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	// Stable word: "leased", "kept", "foreign-process", "memory", "unhealthy", "drained", "policy", "compute-mode",
	// "excluded", "model", "compute", "mig", "not-named", "weak", "use-unknown", "order".
	Code string `json:"code"`
	// Names user, PID, memory and command where a process is the reason.
	Text string `json:"text"`
	// What would have to change, as a command where possible.
	Remedy string `json:"remedy,omitempty"`
	Lease  string `json:"lease,omitempty"` // blocking lease
	// Blocking or tolerated processes.
	Processes []Blocker `json:"processes,omitempty"`
}

// Blocker is a process that keeps a device busy, or is tolerated on it.
type Blocker struct {
	PID int `json:"pid"`
	// Ticks since boot, to recognise a reused PID.
	Start   uint64     `json:"start,omitempty"`
	User    string     `json:"user"`
	Memory  *gpu.Bytes `json:"memory"`
	Command string     `json:"command"`
	// A signal has stopped it (SIGSTOP, Ctrl-Z): it does nothing until it is continued.
	Stopped bool `json:"stopped,omitempty"`
}

// Plan is a decision to give devices. Reasons has one entry per device of the machine.
type Plan struct {
	// Empty for a CPU job.
	Devices []Given  `json:"devices"`
	Reasons []Reason `json:"reasons"`
	// Tolerated processes and the like, one sentence each.
	Notes []string `json:"notes"`
	// Promised on each device; 0: the devices are given whole.
	Share gpu.Bytes `json:"share,omitempty"`
	// How strictly Share is enforced.
	Quota Quota `json:"quota,omitempty"`

	// What stops it from opening other devices.
	Isolation Isolation `json:"isolation,omitempty"`
}

// UUIDs are the identifiers of the devices, in the order in which the job numbers them.
func (p Plan) UUIDs() []gpu.UUID {
	ids := make([]gpu.UUID, len(p.Devices))
	for i, d := range p.Devices {
		ids[i] = d.UUID
	}
	return ids
}

// DeviceNumbers names the devices briefly: "GPU 0, GPU 3".
func (p Plan) DeviceNumbers() string {
	var names []string
	for _, d := range p.Devices {
		name, _, _ := strings.Cut(d.String(), " (")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Refusal is a decision not to give devices. It is an error with its reasons.
type Refusal struct {
	// "cannot give 2 GPUs: 1 of 4 is free".
	Summary string `json:"summary"`
	// This machine or policy can never satisfy the spec.
	Never   bool     `json:"never"`
	Reasons []Reason `json:"reasons"` // one per device
	// What to type or change.
	Remedy string `json:"remedy"`
}

// Error is only the summary; a caller that shows a refusal lists the reasons too.
func (r *Refusal) Error() string { return r.Summary }

// Late is the error of a request that has waited for as long as --wait says. Refusal lists the reasons of the last
// decision.
type Late struct{ Refusal *Refusal }

// Error says which devices were asked for, and how long the request has waited.
func (l *Late) Error() string { return l.Refusal.Error() }

// Unwrap returns the last refusal.
func (l *Late) Unwrap() error { return l.Refusal }

// Lease is the recorded right to use devices. Only its lock says whether it is alive.
type Lease struct {
	ID string `json:"id"`
	// The owner of the file, never from its content.
	UID  uint32 `json:"-"`
	User string `json:"-"` // name of UID
	// Name of its owner's folder of leases, which contains it.
	Folder string `json:"-"`
	// devices, or MIG devices.
	Devices []gpu.UUID `json:"devices"`
	// Lease this one is a part of.
	Parent string `json:"parent,omitempty"`
	// "slurm:1234" when another scheduler gave the devices.
	Allocation string `json:"allocation,omitempty"`
	// Promised on each device; 0: an exclusive lease.
	Share gpu.Bytes `json:"share,omitempty"`
	// How strictly Share is enforced.
	Quota Quota `json:"quota,omitempty"`
	// What stops its command from opening other devices.
	Isolation Isolation `json:"isolation,omitempty"`
	// CLOCK_BOOTTIME at which --timeout certainly ends the command; 0 unknown.
	Until int64 `json:"until_ns,omitempty"`
	// The command, or the process the lease is held for.
	PID int `json:"pid"`
	// The start of PID, ticks since boot.
	Start uint64 `json:"start"`
	// Inode of the PID namespace of PID.
	Namespace uint64 `json:"pid_namespace"`
	// The name of the job, or the base name of its command.
	Command string `json:"command"`
	// The indexes of Devices at the claim, for display.
	Indexes []int `json:"indexes,omitempty"`
	// Asked for on each device; 0: nothing was asked.
	Memory gpu.Bytes `json:"memory,omitempty"`
	// Asked for, an estimate or a limit; 0: nothing was asked.
	Time time.Duration `json:"time_ns,omitempty"`
	// Wall clock, for display.
	Since time.Time `json:"since"`
	Boot  string    `json:"boot"` // boot id
	// CLOCK_BOOTTIME at the claim, for ages.
	SinceBoot int64 `json:"since_boot_ns"`
	// Held for a process that gpuard did not become: it may be released while that runs.
	Apart bool `json:"apart,omitempty"`
	// The command has ended, another process still holds the lock.
	Ended bool `json:"ended,omitempty"`
	// Processes that hold the lock, when Ended.
	HeldBy []Blocker `json:"held_by,omitempty"`
	// Verdict on where its job was seen at work, in the words of package verify; "" none yet.
	Seen     string `json:"seen,omitempty"`
	SeenText string `json:"seen_text,omitempty"` // it in one sentence
	// It outlives its command for a next start; nil: it does not.
	Kept *Kept `json:"kept,omitempty"`
	// Content could not be read; Hashes keep the devices busy.
	Unreadable bool `json:"-"`
	// DeviceHash of each device, from the file name.
	Hashes []string `json:"-"`

	// What the process that ends the lease knows; its file never has it.
	// Exit code of its command; nil: unknown, or a signal ended it.
	Exit *int `json:"-"`
	// That ended its command, such as "SIGKILL"; "" for none, or unknown.
	Signal string `json:"-"`
	// Most memory of one device; 0: not measured.
	Peak gpu.Bytes `json:"-"`
	// Mean of the measured utilisation, 0..1; nil: not measured.
	Load *float64 `json:"-"`
}

// IsReservation reports whether the lease is for a time, which was asked for, and not for a process: such a one is
// without a command, too, and a rule may end it.
func (l Lease) IsReservation() bool { return l.Apart && l.Until > 0 && l.Time > 0 }

// FreesAt is when its devices are certainly free, by CLOCK_BOOTTIME (ns); 0 unknown. When a rule ends the lease of a
// process, that goes on, and may use them still.
func (l Lease) FreesAt() int64 {
	if l.Apart && !l.IsReservation() {
		return 0
	}
	return l.Until
}

// DueTime is the moment at which the lease is over if it lasts for most, by CLOCK_BOOTTIME (ns).
func (l Lease) DueTime(most time.Duration) int64 { return l.SinceBoot + int64(most) }
