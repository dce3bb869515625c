package explain

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
)

// processInfo is a running process whose environment was read.
type processInfo struct {
	PID     int    `json:"pid"`
	User    string `json:"user"`
	Command string `json:"command"`
	// Id, "" outside containers.
	Container string `json:"container"`
	Cgroup    string `json:"cgroup"` // "" when unknown
	// The job of another scheduler, "slurm:1234"; else "".
	Job string `json:"job"`
	// Live lease that it belongs to, else "".
	Lease string `json:"lease"`
	// It sees exactly what the lease holds; null without a lease.
	MatchesLease *bool `json:"matches_lease"`
	// NAME=value of those that decide, in the order in which they apply.
	Variables []string `json:"variables"`
	// NAME=value of those that have no say because another wins.
	Beaten []string `json:"beaten"`
}

// explainProcess fills x for a process id or a lease id.
func explainProcess(host *machine.Host, x *Explanation, target string, asked []gpuRuntime) error {
	pid, lease, err := registry.FindTarget(host, "explain", target, x.Machine)
	if err != nil {
		return err
	}

	p, env, err := readEnvironment(host, pid, target)
	if err != nil {
		return err
	}

	x.Process = &processInfo{PID: pid, User: prose.Clean(p.User), Command: prose.Clean(p.Command), Container: p.Container, Cgroup: p.Cgroup, Job: visible.Allocation(env), Variables: []string{}, Beaten: []string{}}
	x.addNote(visible.CodeAtStart, "this is the environment that the process was started with; what it has changed since then cannot be seen from outside")
	inside := devicesInside(host, x, p, env)
	used := x.readRuntimes(asked, withMPSPipe(host, env, pid), inside)
	for _, r := range used {
		wins, beaten := visible.DecidingVariables(env, r.label, x.Machine, inside)
		for _, v := range wins {
			if !slices.Contains(x.Process.Variables, v) {
				// Two runtimes may obey one.
				x.Process.Variables = append(x.Process.Variables, v)
			}
		}
		x.Process.Beaten = append(x.Process.Beaten, beaten...)
	}

	// Another runtime obeys it.
	x.Process.Beaten = slices.DeleteFunc(x.Process.Beaten, func(v string) bool { return slices.Contains(x.Process.Variables, v) })
	if lease == nil {
		lease = findLease(host, x, p, env)
	}

	if lease != nil {
		x.compareWithLease(lease, used, env)
	}

	return nil
}

// readEnvironment reads a process and its environment, or says why that cannot be done.
func readEnvironment(host *machine.Host, pid int, target string) (gpu.Process, visible.Env, error) {
	p, err := host.Proc.Process(pid)
	switch {
	case errors.Is(err, os.ErrNotExist):
		hint := "what runs on the GPUs is in gpuard status"
		if pid < 64 {
			hint = fmt.Sprintf("for the number of a GPU write CUDA_VISIBLE_DEVICES=%d", pid)
		}
		return p, nil, exit.Usagef("cannot explain process %d: %s; %s", pid, cmp.Or(host.Proc.MissingReason(pid), "there is no such process"), hint)
	case errors.Is(err, os.ErrPermission):
		return p, nil, UnreadableError(p, pid, os.Geteuid(), target)
	case err != nil:
		return p, nil, err
	case p.State == "Z" || p.State == "X":
		return p, nil, exit.Usagef("cannot explain process %d: %s has ended, and has no environment any more", pid, p.Command)
	}

	env, err := host.Proc.Environ(pid)
	if errors.Is(err, os.ErrPermission) {
		return p, nil, UnreadableError(p, pid, os.Geteuid(), target)
	}

	// The PID may have been used again between the two.
	if again, late := host.Proc.Stat(pid); late != nil || again.Start != p.Start || again.State == "Z" {
		return p, nil, exit.Usagef("cannot explain process %d: it has just ended", pid)
	}

	return p, env, err
}

// UnreadableError is the error for a process whose environment this user may not read. The advice depends on the user:
// root needs no sudo.
func UnreadableError(p gpu.Process, pid, euid int, target string) error {
	what := fmt.Sprintf("cannot explain process %d", pid)
	if p.Command != "" {
		what += fmt.Sprintf(" (%s)", prose.Clean(p.Command))
	}

	ask := "sudo gpuard explain " + target
	switch {
	case euid == 0:
		return fmt.Errorf("%s: the kernel does not show its environment even to root here (a container without CAP_SYS_PTRACE, a user namespace, or a security module); ask outside: gpuard explain with its number there", what)
	case p.UID == nil:
		return fmt.Errorf("%s: this machine hides the processes of others; ask its owner, or: %s", what, ask)
	case int(*p.UID) == euid:
		return fmt.Errorf("%s: the kernel shows the environment of such a process (another identity, or no dumps) to root only: %s", what, ask)
	case *p.UID == 0:
		return fmt.Errorf("%s: it belongs to root, and only root may read its environment: %s", what, ask)
	}

	return fmt.Errorf("%s: it belongs to the user %s, and only that user and root may read its environment: %s", what, prose.Clean(p.User), ask)
}

// devicesInside is the machine as the process can open it: its Slurm job and its container may hold less than there is.
// What holds for us too is in the machine already.
func devicesInside(host *machine.Host, x *Explanation, p gpu.Process, env visible.Env) gpu.Machine {
	inside := x.Machine
	if allocation := visible.Allocation(env); allocation != "" && allocation != visible.Allocation(host.Env) {
		inside, x.Notes = appendNotes(x.Notes)(visible.InsideAllocation(env, inside))
	}

	if l, err := registry.LeaseOf(host, x.Machine, p.PID, env); err == nil && l != nil && l.Isolation != job.NoIsolation {
		x.addNote(visible.CodeIsolated, "the process is isolated by %s: it can open the GPUs of lease %s alone, and there they are numbered from 0", l.Isolation, l.ID)
		return leasedMachine(inside, l)
	}

	own, _ := host.Proc.Process(os.Getpid())
	if p.Container == "" || p.Container == own.Container {
		return inside
	}

	contained, notes := visible.InsideContainer(env, inside)
	files, err := host.Proc.DeviceFiles(p.PID)
	if err != nil || !host.IsHardware() {
		x.Notes = append(x.Notes, notes...)
		return contained
	}

	there := withFiles(inside, contained, files)
	if deviceNames(there) == deviceNames(contained) {
		x.Notes = append(x.Notes, notes...)
		return there
	}

	value, set := env.Lookup("NVIDIA_VISIBLE_DEVICES")
	said := "no NVIDIA_VISIBLE_DEVICES asks for them"
	if set {
		said = "NVIDIA_VISIBLE_DEVICES=" + strconv.Quote(value) + " asks for others"
	}

	x.addNote(visible.CodeDeviceFiles, "the container has the device files of %s: %s (CDI, --device or --privileged gave them); the files count, and inside these GPUs are numbered from 0", deviceNames(there), said)

	return there
}

// leasedMachine keeps the devices and the slices of a lease.
func leasedMachine(m gpu.Machine, l *job.Lease) gpu.Machine {
	out := m
	out.Devices = nil

	for _, d := range m.Devices {
		d.Links = nil
		if l.Holds(d.UUID) {
			out.Devices = append(out.Devices, d)
			continue
		}
		d.MIG = slices.DeleteFunc(slices.Clone(d.MIG), func(s gpu.MIGDevice) bool { return !l.Holds(s.UUID) })
		if len(d.MIG) > 0 {
			out.Devices = append(out.Devices, d)
		}
	}

	return out
}

// withFiles keeps the devices that the container has a file for. A device without a known file is left as contained has
// it.
func withFiles(m, contained gpu.Machine, files []string) gpu.Machine {
	out := contained
	out.Devices = nil

	for _, d := range m.Devices {
		i := slices.IndexFunc(contained.Devices, func(c gpu.Device) bool { return c.UUID == d.UUID && c.Index == d.Index })
		if i >= 0 {
			// With the MIG devices that were named.
			d = contained.Devices[i]
		}
		name, known := deviceFile(d)
		if known && slices.Contains(files, name) || !known && i >= 0 {
			d.Links = nil
			out.Devices = append(out.Devices, d)
		}
	}

	return out
}

// deviceFile is the file below /dev that opens the device, as far as it is known.
func deviceFile(d gpu.Device) (string, bool) {
	switch {
	case d.Minor == nil:
	case d.Vendor == gpu.NVIDIA:
		return fmt.Sprintf("nvidia%d", *d.Minor), true
	case d.Vendor == gpu.AMD:
		return fmt.Sprintf("dri/renderD%d", *d.Minor), true
	}
	return "", false
}

// deviceNames lists the devices of a machine for people.
func deviceNames(m gpu.Machine) string {
	var out []string
	for _, d := range m.Devices {
		out = append(out, machine.DeviceName(m, d))
	}
	if len(out) == 0 {
		return "no GPU"
	}

	return strings.Join(out, ", ")
}

// findLease finds the lease of the process, and says where the one that it names is none.
func findLease(host *machine.Host, x *Explanation, p gpu.Process, env visible.Env) *job.Lease {
	l, err := registry.LeaseOf(host, x.Machine, p.PID, env)
	id, _ := env.Lookup("GPUARD_LEASE")
	switch {
	case id == "", l != nil && l.ID == id:
	case err != nil:
		x.addNote(visible.CodeLeaseGone, "the process names lease %s, and the leases cannot be read: %v", prose.Clean(id), err)
	default:
		x.addNote(visible.CodeLeaseGone, "lease %s, which the process names, is not a live lease of %s: its GPUs may be another job's by now", prose.Clean(id), p.User)
	}

	return l
}

// compareWithLease holds what the process sees against what its lease has, for the vendors that were read.
func (x *Explanation) compareWithLease(l *job.Lease, used []gpuRuntime, env visible.Env) {
	matches := true
	seen := func(id gpu.UUID) bool {
		return slices.ContainsFunc(x.Visible, func(e visible.Entry) bool { return e.UUID == id })
	}

	for i, e := range x.Visible {
		again := slices.ContainsFunc(x.Visible[:i], func(o visible.Entry) bool { return o.UUID == e.UUID })
		if !again && !l.Holds(e.UUID) {
			matches = false
			x.addNote(visible.CodeOutsideLease, "the process sees %s, which its lease %s does not hold: another job may get it", x.deviceText(e.UUID), l.ID)
		}
	}

	for _, id := range l.Devices {
		d, _, ok := x.Machine.FindDevice(id)
		read := ok && slices.ContainsFunc(used, func(r gpuRuntime) bool { return slices.Contains(r.vendors, d.Vendor) })
		if read && !seen(id) && isOtherRank(env, id) {
			x.addNote(visible.CodeLeaseUnseen, "lease %s holds %s for another rank (--ranks=own): this process is rank %s", l.ID, x.deviceText(id), prose.Clean(rankOf(env)))
		} else if read && !seen(id) {
			matches = false
			x.addNote(visible.CodeLeaseUnseen, "lease %s holds %s, which the process does not see: it stays leased and unused", l.ID, x.deviceText(id))
		}
	}

	x.Process.Lease, x.Process.MatchesLease = l.ID, &matches
}

// isOtherRank reports whether gpuard started the process as one of several, each with its own device, and that device
// is not this one's.
func isOtherRank(env visible.Env, id gpu.UUID) bool {
	own, set := env.Lookup("GPUARD_GPUS")
	return set && own != "" && rankOf(env) != "" && !slices.Contains(strings.Split(own, ","), string(id))
}

func rankOf(env visible.Env) string {
	text, _ := env.Lookup("RANK")
	return text
}

// deviceText names a device, or a MIG device, for people.
func (x *Explanation) deviceText(id gpu.UUID) string {
	d, mig, ok := x.Machine.FindDevice(id)
	switch {
	case !ok:
		return string(id)
	case mig != nil:
		return fmt.Sprintf("MIG device %s of %s", mig.UUID, machine.DeviceName(x.Machine, *d))
	}
	return machine.DeviceName(x.Machine, *d)
}

// VisibleTo returns what process pid sees of m with this environment, the devices that are in its container, and
// the variables that decide it, as NAME=VALUE.
func VisibleTo(host *machine.Host, env visible.Env, pid int, m gpu.Machine) (x *Explanation, inside gpu.Machine, masks []string) {
	x, inside = &Explanation{Machine: m}, m
	env = withMPSPipe(host, env, pid)
	if p, err := host.Proc.Process(pid); err == nil {
		inside = devicesInside(host, x, p, env)
	}

	for _, r := range x.readRuntimes(nil, env, inside) {
		wins, _ := visible.DecidingVariables(env, r.label, x.Machine, inside)
		for _, pair := range wins {
			if name, _, _ := strings.Cut(pair, "="); name != "CUDA_DEVICE_ORDER" && !slices.Contains(masks, pair) {
				masks = append(masks, prose.Clean(pair))
			}
		}
	}

	return x, inside, masks
}
