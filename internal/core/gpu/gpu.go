// Package gpu has the types for machines, devices, MIG devices, processes, sizes and identifiers:
//
//	m, err := gpu.InventMachine("demo:2xL4")
//	d, slice, ok := m.Find(id)
//
// It must not read hardware or decide about devices, and it knows nothing of leases.
package gpu

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// UUID identifies a device. It is the vendor's own string, such as "GPU-8932f937-…" or "MIG-…".
type UUID string

// Machine is all devices, their processes and readings at one moment. It is a plain value. The tags are for machine
// files, whose keys are in the order of the fields: see fileKey.
type Machine struct {
	// When the readings were made.
	Taken time.Time `file:"taken,required"`
	// Driver version, "" when unknown.
	Driver string `file:"driver,required"`
	// Highest CUDA version the driver supports, "" when unknown.
	CUDA string `file:"cuda,required"`
	// What was read: "nvml", "nvidia-smi", "amdgpu", two of them joined by +; "file", "invented".
	Source string `file:"source"`
	// What could not be read, in plain words; the other devices are still listed.
	Problems []string `file:"problems"`
	// The devices in index order per vendor.
	Devices []Device `file:"gpus,required"`
	// The processes on any device, in any order.
	Processes []Process `file:"processes,required"`
	// A driver call of this reading still blocks a thread of this process; not recorded.
	Stuck bool
	// Unknown keys of a machine file, kept for Encode.
	Extra extraKeys
}

// extraKeys holds keys of a recorded file that this version does not know.
type extraKeys = map[string]json.RawMessage

// Device is one whole GPU. Every pointer is an optional reading: nil means absent, which is not zero.
type Device struct {
	// Order within the vendor (NVML's PCI order).
	Index int `file:"index,required" max:"4095"`
	// Its identity.
	UUID UUID `file:"uuid,required" form:"uuid"`
	// "NVIDIA A100-SXM4-80GB".
	Name   string `file:"name,required" form:"name"`
	Vendor Vendor `file:"vendor,required" form:"vendor"`
	// "0000:17:00.0", lower case, four digits of domain.
	PCI string `file:"pci,required" form:"pci"`
	// N of /dev/nvidiaN; of /dev/dri/renderDN for AMD.
	Minor *int `file:"minor,required" max:"1048576"`

	MemoryTotal *Bytes `file:"memory_total,required"`
	// The memory that processes use; without the driver's own reserve where Reserved is known.
	MemoryUsed *Bytes `file:"memory_used,required"`
	// The memory that the driver and firmware keep.
	MemoryReserved *Bytes `file:"memory_reserved"`
	// 0..1.
	Utilization *float64 `file:"utilization,required" max:"1"`
	// Celsius.
	Temperature *int `file:"temperature,required" min:"-100" max:"300"`
	// Part of the time in which its memory was read or written, 0..1.
	MemoryLoad *float64 `file:"memory_utilization" max:"1"`
	// Celsius at which the driver starts to slow the device down.
	TempSlowdown *int `file:"temp_slowdown" min:"-100" max:"300"`
	// Celsius left before slowdown, where the driver reports a margin instead.
	TempMargin *int `file:"temp_margin" min:"-300" max:"300"`
	// Watts; the limit is the enforced one.
	Power      *float64 `file:"power" max:"1e5"`
	PowerLimit *float64 `file:"power_limit" max:"1e5"`
	// Joules since the driver was loaded.
	Energy *float64 `file:"energy" max:"1e13"`
	// MHz.
	ClockSM     *int `file:"clock_sm" max:"1e5"`
	ClockSMMax  *int `file:"clock_sm_max" max:"1e5"`
	ClockMemory *int `file:"clock_memory" max:"1e5"`
	// Why clocks are lowered (ClockEvent names); nil absent, empty none.
	ClockEvents []string `file:"clock_events"`

	// Current mode.
	ECC *bool `file:"ecc"`
	// The errors since the driver was loaded.
	ECCCorrected   *int64        `file:"ecc_corrected"`
	ECCUncorrected *int64        `file:"ecc_uncorrected"`
	RemappedRows   *RemappedRows `file:"remapped_rows"`
	RetiredPages   *RetiredPages `file:"retired_pages"`
	// Driver errors of this boot that are not settled, oldest first; nil: none is known.
	XIDs []XID `file:"xids"`
	// Who takes it out of use, since when and why, in words; "" when it is not drained.
	Drained string `file:"drained"`
	// What the driver asks for: "none", "reset", "reboot", "drain_p2p", "drain_and_reset"; "" absent.
	RecoveryAction string `file:"recovery_action"`
	// What the driver says is wrong with its NVLink fabric, as "degraded_bandwidth"; nil absent, empty nothing.
	Fabric      []string `file:"fabric"`
	Persistence *bool    `file:"persistence"`
	// "default", "exclusive_process", "exclusive_thread", "prohibited"; "" absent.
	ComputeMode string `file:"compute_mode"`
	// It is part of a processor and works in the main memory; nil unknown.
	Integrated *bool `file:"integrated"`
	// The machine's memory, of a device that has none of its own: MemoryTotal, Used and Reserved are nil then.
	MainMemory *Bytes `file:"main_memory"`
	// The part of MainMemory that a program can have now without swapping (proc_meminfo(5)).
	MainAvailable *Bytes      `file:"main_available"`
	Compute       *Capability `file:"compute"`
	NUMA          *int        `file:"numa" max:"65536"`
	MIGMode       *bool       `file:"mig_mode"`
	MIG           []MIGDevice `file:"mig"`
	// A screen shows what it draws; it may be absent where no process draws.
	DisplayActive *bool `file:"display_active"`
	// The links by position in Machine.Devices; nil absent.
	Links []Link `file:"links" form:"link"`
	// Why the device cannot be used or read ("GPU is lost", "no answer within 5s"); "" when it answers.
	Problem string `file:"problem"`
	// Why its processes could not be listed; "" when they were, or were not asked for.
	Unlisted string `file:"unlisted"`
	Extra    extraKeys
}

// RemappedRows are the row remapping counters of Ampere and later.
type RemappedRows struct {
	Correctable   int  `json:"correctable" file:"correctable,required" max:"1073741824"`
	Uncorrectable int  `json:"uncorrectable" file:"uncorrectable,required" max:"1073741824"`
	Pending       bool `json:"pending" file:"pending,required"`
	Failed        bool `json:"failed" file:"failed,required"`
}

// XID is one error that NVIDIA's driver reported about a device (docs.nvidia.com/deploy/xid-errors).
type XID struct {
	Code int `file:"code,required" max:"1048576"`
	// Wall clock; zero unknown, in this boot.
	At time.Time `file:"at,required"`
	// The process that the driver blames; 0 unknown.
	PID int `file:"pid" max:"4194304"`
	// "nvml" or "kernel log".
	Source string `file:"source"`
}

// Event is one error that the driver reported while a process waited for it.
type Event struct {
	Device UUID
	XID    XID
}

// RetiredPages are the page retirement counters of architectures before Ampere.
type RetiredPages struct {
	SingleBit int  `json:"single_bit" file:"single_bit,required" max:"1073741824"`
	DoubleBit int  `json:"double_bit" file:"double_bit,required" max:"1073741824"`
	Pending   bool `json:"pending" file:"pending,required"`
}

// MIGDevice is one MIG slice (a compute instance) of a device.
type MIGDevice struct {
	// Order within its parent, as nvidia-smi prints it.
	Index int `file:"index,required" max:"4095"`
	// "MIG-…".
	UUID UUID `file:"uuid,required" form:"uuid"`
	// "1g.10gb", or "1c.2g.20gb" when the compute instance is smaller than its GPU instance.
	Profile         string `file:"profile,required" form:"profile"`
	GPUInstance     int    `file:"gpu_instance,required" max:"4095"`
	ComputeInstance int    `file:"compute_instance,required" max:"4095"`
	MemoryTotal     *Bytes `file:"memory_total,required"`
	MemoryUsed      *Bytes `file:"memory_used,required"`
	Extra           extraKeys
}

// Kind says how a process uses a device.
type Kind string

// Process kinds as the driver reports them.
const (
	ComputeProcess  Kind = "compute"
	GraphicsProcess Kind = "graphics"
	BothKinds       Kind = "compute+graphics"
)

// Process is one process on one device. A process on two devices appears twice.
type Process struct {
	// 0: which process it is in this PID namespace is not known. The limit is PID_MAX_LIMIT, torvalds/linux
	// include/linux/threads.h.
	PID int `file:"pid,required" max:"4194304"`
	// The driver's number of such a process; 0 for all others.
	Outside int `file:"outside_pid" max:"4194304"`
	// The UUID of the device, or of the MIG device.
	GPU UUID `file:"gpu,required" form:"uuid"`
	// The memory on that device; nil when the driver does not say.
	Memory *Bytes `file:"memory,required"`
	// Owner's name, or the number, or "" when unknown.
	User string `file:"user,required"`
	// Command line, control characters removed.
	Command string `file:"command,required"`
	// "" when unknown.
	Kind Kind    `file:"kind" form:"kind"`
	UID  *uint32 `file:"uid" max:"4294967295"`
	// Start time in clock ticks since boot (field 22 of /proc/PID/stat); 0 unknown.
	Start uint64 `file:"start"`
	// The same as wall clock, for display; zero unknown.
	Started time.Time `file:"started"`
	// One letter of /proc/PID/stat ("Z" is a zombie); "" unknown, "gone" when /proc has no such process.
	State  string `file:"state"`
	Cgroup string `file:"cgroup"`
	// Container id, "" outside containers.
	Container string `file:"container"`
	Extra     extraKeys
}

// ServesMPS reports whether the process is the server of NVIDIA's Multi-Process Service, through which all programs of
// one user compute on a device (docs.nvidia.com/deploy/mps). Its end is theirs.
func (p Process) ServesMPS() bool {
	program, _, _ := strings.Cut(p.Command, " ")
	return path.Base(program) == "nvidia-cuda-mps-server"
}

// What selects the parts of a machine to read; parts are combined with |.
type What uint

// Parts of a machine. Identity is always read.
const (
	// Index, UUID, name, PCI, minor, compute capability, MIG layout, memory total.
	Identity What = 1 << iota
	// Memory, utilisation, temperature, clock events.
	Quick
	// Clocks, the highest one, and the temperature at which they are lowered.
	Clocks
	// Power and its limit.
	Power
	// Processes on each device.
	Processes
	// Link class between devices.
	Links
	// Uncorrectable errors, remapped rows, retired pages, recovery action, NVLink fabric, compute mode.
	Faults
	// ECC and its corrected errors, persistence.
	Modes
	// Count the devices again first: a device may have appeared since this process started.
	RecountDevices
	// Nothing is shown: what says nothing new of an empty or a cool device may be left out.
	Deciding

	Load       = Quick | Clocks | Power
	Health     = Faults | Modes
	Shown      = Identity | Load | Processes | Health
	Everything = Shown | Links
)

// Query is what a reading is about: parts of the machine, of all its devices or of some.
type Query struct {
	What What
	// Only has the indexes of the NVIDIA devices of which more than the identity is read; nil: all. Other vendors'
	// devices are always read whole.
	Only []int
	// Known: the identity of the other devices may be that of an earlier reading.
	Known bool
}

// Wants reports whether more than the identity is read of the device.
func (q Query) Wants(d *Device) bool {
	return q.Only == nil || d.Vendor != NVIDIA || slices.Contains(q.Only, d.Index)
}

// FillFromEarlier gives the devices that the query of m did not want their earlier readings, with their processes. One
// that does not answer any more keeps its problem. same is false where the devices are others by now, in another order,
// or split otherwise.
func (m Machine) FillFromEarlier(earlier Machine, query Query) (whole Machine, same bool) {
	if len(m.Devices) != len(earlier.Devices) || m.Source != earlier.Source {
		return m, false
	}

	m.Devices = slices.Clone(m.Devices)
	kept := map[UUID]bool{}
	for i := range m.Devices {
		d, old := &m.Devices[i], earlier.Devices[i]
		if d.UUID != old.UUID || d.Index != old.Index || d.Problem == "" && d.UsesMIG() != old.UsesMIG() {
			return m, false
		}

		if query.Wants(d) {
			if d.Links == nil {
				d.Links, d.NUMA = old.Links, old.NUMA
			}
			continue
		}

		if d.Problem != "" {
			continue
		}

		// These are not read from the device.
		old.Drained, old.XIDs = d.Drained, d.XIDs
		*d, kept[old.UUID] = old, true
	}

	m.Processes = slices.Clone(m.Processes)

	for _, p := range earlier.Processes {
		if d, _, found := earlier.FindDevice(p.GPU); found && kept[d.UUID] {
			m.Processes = append(m.Processes, p)
		}
	}

	return m, true
}

// Link is the connection between two devices, best first. Source of the classes: nvmlGpuTopologyLevel_t and
// nvmlDeviceGetNvLinkState in NVIDIA/go-nvml gen/nvml/nvml.h.
type Link string

// Link classes from best to worst; the names are those of `nvidia-smi topo -m` in words.
const (
	LinkSelf   Link = "self"
	LinkNVLink Link = "nvlink"
	// One PCIe switch (PIX) or several (PXB).
	LinkSwitch Link = "switch"
	// Through the host bridge of one socket (PHB).
	LinkBridge Link = "bridge"
	// Within one NUMA node (NODE).
	LinkNode Link = "node"
	// Across sockets (SYS).
	LinkSystem Link = "system"
)

// Capability is a CUDA compute capability.
type Capability struct{ Major, Minor int }

// ModelName is a device's name without its maker, as status shows it: "A100-SXM4-80GB" of "NVIDIA A100-SXM4-80GB".
func ModelName(name string) string {
	for _, maker := range []string{"NVIDIA ", "AMD ", "Intel "} {
		if rest, ok := strings.CutPrefix(name, maker); ok && rest != "" {
			return rest
		}
	}
	return name
}

// KernelAddress converts a PCI address to the kernel's form, "0000:17:00.0": NVML writes eight digits of domain, in upper
// case. It is "" for what is no address.
func KernelAddress(text string) string {
	parts := regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])$`).FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return ""
	}

	domain, err := strconv.ParseUint("0"+parts[1], 16, 33)
	if err != nil {
		return ""
	}

	return fmt.Sprintf("%04x:%s", domain, parts[2])
}

// AddTo adds the process to those of devices. One that is in several lists of a driver, as of its computing and of its
// drawing, is added once, with the larger memory.
func (p Process) AddTo(list []Process) []Process {
	i := slices.IndexFunc(list, func(o Process) bool { return o.PID == p.PID && o.GPU == p.GPU })
	if i < 0 {
		return append(list, p)
	}

	o := &list[i]
	if o.Kind != p.Kind {
		o.Kind = BothKinds
	}
	if o.Memory == nil || p.Memory != nil && *p.Memory > *o.Memory {
		o.Memory = p.Memory
	}

	return list
}

// FindDevice returns the device, and for a MIG UUID its parent and the slice; ok is false when the machine has neither.
func (m *Machine) FindDevice(id UUID) (d *Device, mig *MIGDevice, ok bool) {
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.UUID == id {
			return d, nil, true
		}

		for j := range d.MIG {
			if d.MIG[j].UUID == id {
				return d, &d.MIG[j], true
			}
		}
	}
	return nil, nil, false
}

// ProcessesOn returns the processes on the device or MIG device id, in the machine's order. For a whole device that has
// MIG devices, the processes of its slices are included.
func (m *Machine) ProcessesOn(id UUID) []Process {
	ids := map[UUID]bool{id: true}
	if d, mig, ok := m.FindDevice(id); ok && mig == nil {
		for i := range d.MIG {
			ids[d.MIG[i].UUID] = true
		}
	}

	var out []Process
	for _, p := range m.Processes {
		if ids[p.GPU] {
			out = append(out, p)
		}
	}

	return out
}

// DevicesUnder lists the UUIDs of the devices, or MIG devices, that any of the processes is on, in index order.
func (m *Machine) DevicesUnder(pids []int) []string {
	on := map[UUID]bool{}
	for _, p := range m.Processes {
		if slices.Contains(pids, p.PID) {
			on[p.GPU] = true
		}
	}

	var out []string
	add := func(id UUID) {
		if on[id] {
			out = append(out, string(id))
		}
	}

	for _, d := range m.Devices {
		add(d.UUID)
		for _, s := range d.MIG {
			add(s.UUID)
		}
	}

	return out
}

// UseUnknown reports whether nothing tells if the device, or its slice, is in use: its memory, its load and its
// processes cannot be read, as on Jetson modules, old GeForce boards and some virtual GPUs. A device that does not
// answer has a Problem instead.
func (d *Device) UseUnknown(slice *MIGDevice) bool {
	used, load := d.MemoryUsed, d.Utilization
	if slice != nil {
		// The load of a split device is not reported.
		used, load = slice.MemoryUsed, nil
	}
	return d.Problem == "" && d.Unlisted != "" && used == nil && load == nil
}

// UsesMIG reports whether the device is split: such a device is given as slices, never whole.
func (d *Device) UsesMIG() bool { return len(d.MIG) > 0 || (d.MIGMode != nil && *d.MIGMode) }
