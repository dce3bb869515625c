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
	Command    []string        // empty means a shell
	Name       string          // --name: what the job is called where it is listed; "" the base name of Command
	GPUs       int             // whole devices; 0 only with CPU, Devices or MIG
	CPU        bool            // no device at all
	Devices    []string        // --device: indices, UUIDs or unique prefixes, PCI ids, in the order the program sees
	MIG        string          // --mig: profile of one slice
	Exclude    []string        // --exclude: same forms as Devices
	Prefer     []gpu.UUID      // devices that it had before, taken first if they can be given now, in this order; it never waits for them. No flag
	Model      string          // --model: glob over the device name, case ignored
	MinCompute *gpu.Capability // --min-compute
	Memory     gpu.Bytes       // --mem: free on each device; 0 asks for nothing
	Share      gpu.Bytes       // --share: a shared lease of this quota on each device; 0 asks for whole devices
	Quota      Quota           // --quota: how hard the quota shall be
	Require    Quota           // --require-quota: refuse one that is less hard; "" takes any
	Isolate    Isolation       // --isolate: what shall keep it from other devices
	Isolated   Isolation       // --require-isolation: refuse less; "" takes any
	Threads    int             // --mps-threads: percent of a device's processors; 0 leaves all
	Time       time.Duration   // --expect: estimate, plans only; 0 unknown
	Nice       int             // --nice: of the requests of one user, a lower one goes first
	Asked      time.Time       `json:"-"` // when it was submitted to a queue; zero: it comes now. No flag
	Timeout    time.Duration   // --timeout: enforced; 0 none
	Grace      time.Duration   // --grace: how long it may take to end after that
	Place      Place           // --place
	IDs        IDs             // --ids
	Any        bool            // --any: ignore a mask already set in the environment
	Anyway     bool            // --anyway: start a command that surely uses other GPUs than those that it is given
	KeepWhile  string          // --keep-while: while this file exists, the lease waits for a next start of the command
	Ranks      *Ranks          // --torchrun, --ranks: several processes of the command; nil is one
	Waiting    Waiting         `json:"-"` // what happens while no device is free
	Moving     string          `json:"-"` // the lease that is given back for this one; "" none. No flag
	Avoid      []gpu.UUID      `json:"-"` // devices that the job leaves: hot, slow or sick ones. No flag
}

// Waiting is what a request does while no device is free. The zero value waits for as long as it takes.
type Waiting struct {
	No       bool          // --no-wait: not even for memory that is about to be freed
	Limit    time.Duration // --wait: at most this long; 0 without a limit
	Fallback []string      // --fallback: what is tried instead of waiting, in order: "other", "cpu", "wait"
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
	Torchrun bool          // PyTorch's launcher starts them, else gpuard does
	Own      bool          // each sees only its own device; else all see all
	Count    int           // --nproc; 0: one per device
	Grace    time.Duration // time for the others to end after one failed
	JSON     bool          // messages about that are JSON objects
}

// Quota is how strictly the memory quota of a shared lease is enforced.
type Quota string

// Levels of a quota, weakest first. An exclusive lease has NoQuota.
const (
	NoQuota Quota = ""
	Watch   Quota = "watch" // measured from outside; a job that uses more is warned, then ended
	MPS     Quota = "mps"   // limited per process by NVIDIA's Multi-Process Service, and watched
)

// Isolation is what stops a process from opening the devices of others.
type Isolation string

// Levels of isolation, weakest first. Without one only variables hide other devices. Off and AutoIsolation can be asked for, and
// are never in force.
const (
	NoIsolation   Isolation = ""
	Off           Isolation = "off"       // NoIsolation, also where a default says otherwise
	AutoIsolation Isolation = "auto"      // the first that is possible, or none
	Cgroup        Isolation = "cgroup"    // the device filter of its control group denies the other devices
	Namespace     Isolation = "namespace" // the other device files cannot be opened in its mount namespace
	Landlock      Isolation = "landlock"  // rules of Landlock do not allow the other device files
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
	Logical int        `json:"logical"`
	Index   int        `json:"index"`            // of the whole device; of the parent for a MIG device
	UUID    gpu.UUID   `json:"uuid"`             // of the device, or of the MIG device
	Parent  gpu.UUID   `json:"parent,omitempty"` // of a MIG device
	Name    string     `json:"name"`
	Label   string     `json:"-"`                 // for users: "GPU 2", "GPU amd:0" on mixed machines
	Profile string     `json:"profile,omitempty"` // of a MIG device
	Vendor  gpu.Vendor `json:"vendor"`
	PCI     string     `json:"pci"`
}

// Verdict is why one device was or was not taken.
type Verdict string

// Verdicts of a reason.
const (
	Chosen   Verdict = "chosen"
	Eligible Verdict = "eligible" // free, but another one was better
	Busy     Verdict = "busy"     // not now
	Never    Verdict = "never"    // this device can never satisfy the spec
)

// Reason is the reason for one device.
type Reason struct {
	UUID      gpu.UUID  `json:"uuid"`
	Index     int       `json:"index"`
	Name      string    `json:"name"`
	Verdict   Verdict   `json:"verdict"`
	Code      string    `json:"code"`                // stable word: "leased", "kept", "foreign-process", "memory", "unhealthy", "drained", "policy", "compute-mode", "excluded", "model", "compute", "mig", "not-named", "weak", "use-unknown", "order"
	Text      string    `json:"text"`                // names user, PID, memory and command where a process is the reason
	Remedy    string    `json:"remedy,omitempty"`    // what would have to change, as a command where possible
	Lease     string    `json:"lease,omitempty"`     // blocking lease
	Processes []Blocker `json:"processes,omitempty"` // blocking or tolerated processes
}

// Blocker is a process that keeps a device busy, or is tolerated on it.
type Blocker struct {
	PID     int        `json:"pid"`
	Start   uint64     `json:"start,omitempty"` // ticks since boot, to recognise a reused PID
	User    string     `json:"user"`
	Memory  *gpu.Bytes `json:"memory"`
	Command string     `json:"command"`
	Stopped bool       `json:"stopped,omitempty"` // by a signal (SIGSTOP, Ctrl-Z): it does nothing until it is continued
}

// Plan is a decision to give devices. Reasons has one entry per device of the machine.
type Plan struct {
	Devices []Given   `json:"devices"` // empty for a CPU job
	Reasons []Reason  `json:"reasons"`
	Notes   []string  `json:"notes"`           // tolerated processes and the like, one sentence each
	Share   gpu.Bytes `json:"share,omitempty"` // promised on each device; 0: the devices are given whole
	Quota   Quota     `json:"quota,omitempty"` // how strictly Share is enforced

	Isolation Isolation `json:"isolation,omitempty"` // what stops it from opening other devices
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
	Summary string   `json:"summary"` // "cannot give 2 GPUs: 1 of 4 is free"
	Never   bool     `json:"never"`   // this machine or policy can never satisfy the spec
	Reasons []Reason `json:"reasons"` // one per device
	Remedy  string   `json:"remedy"`  // what to type or change
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
	ID         string        `json:"id"`
	UID        uint32        `json:"-"`                    // of the file, never from its content
	User       string        `json:"-"`                    // name of UID
	Folder     string        `json:"-"`                    // name of its owner's folder of leases, which contains it
	Devices    []gpu.UUID    `json:"devices"`              // devices, or MIG devices
	Parent     string        `json:"parent,omitempty"`     // lease this one is a part of
	Allocation string        `json:"allocation,omitempty"` // "slurm:1234" when another scheduler gave the devices
	Share      gpu.Bytes     `json:"share,omitempty"`      // promised on each device; 0: an exclusive lease
	Quota      Quota         `json:"quota,omitempty"`      // how strictly Share is enforced
	Isolation  Isolation     `json:"isolation,omitempty"`  // what stops its command from opening other devices
	Until      int64         `json:"until_ns,omitempty"`   // CLOCK_BOOTTIME at which --timeout certainly ends the command; 0 unknown
	PID        int           `json:"pid"`                  // the command, or the process the lease is held for
	Start      uint64        `json:"start"`                // of PID, ticks since boot
	Namespace  uint64        `json:"pid_namespace"`        // inode of the PID namespace of PID
	Command    string        `json:"command"`              // the name of the job, or the base name of its command
	Indexes    []int         `json:"indexes,omitempty"`    // of Devices at the claim, for display
	Memory     gpu.Bytes     `json:"memory,omitempty"`     // asked for on each device; 0: nothing was asked
	Time       time.Duration `json:"time_ns,omitempty"`    // asked for, an estimate or a limit; 0: nothing was asked
	Since      time.Time     `json:"since"`                // wall clock, for display
	Boot       string        `json:"boot"`                 // boot id
	SinceBoot  int64         `json:"since_boot_ns"`        // CLOCK_BOOTTIME at the claim, for ages
	Apart      bool          `json:"apart,omitempty"`      // held for a process that gpuard did not become: it may be released while that runs
	Ended      bool          `json:"ended,omitempty"`      // the command has ended, another process still holds the lock
	HeldBy     []Blocker     `json:"held_by,omitempty"`    // processes that hold the lock, when Ended
	Seen       string        `json:"seen,omitempty"`       // verdict on where its job was seen at work, in the words of package verify; "" none yet
	SeenText   string        `json:"seen_text,omitempty"`  // it in one sentence
	Kept       *Kept         `json:"kept,omitempty"`       // it outlives its command for a next start; nil: it does not
	Unreadable bool          `json:"-"`                    // content could not be read; Hashes keep the devices busy
	Hashes     []string      `json:"-"`                    // DeviceHash of each device, from the file name

	// What the process that ends the lease knows; its file never has it.
	Exit   *int      `json:"-"` // exit code of its command; nil: unknown, or a signal ended it
	Signal string    `json:"-"` // that ended its command, such as "SIGKILL"; "" for none, or unknown
	Peak   gpu.Bytes `json:"-"` // most memory of one device; 0: not measured
	Load   *float64  `json:"-"` // mean of the measured utilisation, 0..1; nil: not measured
}

// IsReservation reports whether the lease is for a time, which was asked for, and not for a process: such a one is without a command,
// too, and a rule may end it.
func (l Lease) IsReservation() bool { return l.Apart && l.Until > 0 && l.Time > 0 }

// FreesAt is when its devices are certainly free, by CLOCK_BOOTTIME (ns); 0 unknown. When a rule ends the lease of a process,
// that goes on, and may use them still.
func (l Lease) FreesAt() int64 {
	if l.Apart && !l.IsReservation() {
		return 0
	}
	return l.Until
}

// DueTime is the moment at which the lease is over if it lasts for most, by CLOCK_BOOTTIME (ns).
func (l Lease) DueTime(most time.Duration) int64 { return l.SinceBoot + int64(most) }
