package isolate

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
)

// Node is a device file that belongs to one device, or to a part of one.
type Node struct {
	// "" of a capability: the driver's helper has not made it yet.
	Path string
	Kind Kind
	// Number is the minor number of a GPU, with which the driver names its file, and which is no index: of the file
	// itself, also of a Render, and of the GPU of a capability.
	Number int
	// Device of a file of the kernel's graphics: its address, as in gpu.Device; "" not known.
	PCI string
	// GPUInstance and ComputeInstance are those of a capability; the second is -1 in that of a whole GPU instance.
	GPUInstance, ComputeInstance int
}

// Kind is what a device file is.
type Kind int

// Kinds of device files. NVIDIA's are nvidia0 (NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-frontend.c), and
// nvidia-caps/nvidia-cap3 for each part of a GPU in MIG mode (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Device
// Nodes and Capabilities"); dri/card0 and dri/renderD128 are the kernel's graphics, of every vendor, the second for
// computing; kfd is that of AMD, one for all its GPUs (docs.kernel.org/gpu/amdgpu, "AMDKFD").
const (
	Card Kind = iota
	Capability
	Graphics
	Render
	AMDCompute
)

// FilesToClose returns the files that a job with these devices must not open: those of all others, also of GPUs that
// are not on the machine that was read. The order is that of nodes.
func FilesToClose(nodes []Node, m gpu.Machine, given []job.Given) ([]string, *job.Refusal) {
	own, refusal := ownDevices(nodes, m, given)
	if refusal != nil {
		return nil, refusal
	}

	isGPU := graphicsOfGPUs(nodes, m)
	var closed []string
	for _, n := range nodes {
		if n.Path != "" && !own.mayOpen(n, isGPU) {
			closed = append(closed, n.Path)
		}
	}

	return closed, nil
}

// ownedDevice is a device of the job.
type ownedDevice struct {
	device *gpu.Device
	// nil: the whole device.
	slice *gpu.MIGDevice
}

type ownedDevices []ownedDevice

func ownDevices(nodes []Node, m gpu.Machine, given []job.Given) (own ownedDevices, refusal *job.Refusal) {
	for _, g := range given {
		d, slice, found := m.FindDevice(g.UUID)
		of := func(kind Kind) bool {
			return slices.ContainsFunc(nodes, func(n Node) bool { return n.Kind == kind && n.Path != "" && n.Number == *d.Minor })
		}
		switch {
		case !found:
			return nil, newRefusal(fmt.Sprintf("cannot isolate the job: %s is not on the machine any more", g), "try again")
		case d.Vendor != gpu.NVIDIA && d.Vendor != gpu.AMD:
			return nil, newRefusal(fmt.Sprintf("cannot isolate a job on %s: that is known for GPUs of NVIDIA and AMD alone", g),
				option.Expand("leave {isolate} out to rely on variables, or run it in a container that is given only this device"))
		case d.Minor == nil, d.Vendor == gpu.AMD && !of(Render):
			return nil, newRefusal(fmt.Sprintf("cannot isolate the job: the driver does not say which device file is that of %s", g), option.Expand("leave {isolate} out to rely on variables"))
		case partitioned(d, m, given):
			return nil, newRefusal(fmt.Sprintf("cannot isolate a job on %s: it is a partition of a GPU, and behind a wall without the others it would have the name of another", g),
				option.Expand("ask for all partitions of that GPU, or leave {isolate} out to rely on variables"))
		case slice != nil && !of(Capability):
			return nil, newRefusal(fmt.Sprintf("cannot isolate the job: no device file of a slice is found, so %s cannot be told from the others of its GPU", g), option.Expand("leave {isolate} out to rely on variables"))
		}
		own = append(own, ownedDevice{device: d, slice: slice})
	}
	return own, nil
}

// partitioned reports whether a device of AMD is one of several at its address, and not all of them are given. They are
// told apart by their order.
func partitioned(d *gpu.Device, m gpu.Machine, given []job.Given) bool {
	return d.Vendor == gpu.AMD && slices.ContainsFunc(m.Devices, func(other gpu.Device) bool {
		return other.PCI == d.PCI && !slices.ContainsFunc(given, func(g job.Given) bool { return g.UUID == other.UUID })
	})
}

// graphicsOfGPUs are the devices of the kernel's graphics that are GPUs, also ones that were not read: what computes.
// The rest are screens of a server's own management, which are nobody's.
func graphicsOfGPUs(nodes []Node, m gpu.Machine) map[string]bool {
	// What is not known may be one.
	is := map[string]bool{"": true}
	for _, d := range m.Devices {
		is[d.PCI] = true
	}
	for _, n := range nodes {
		if n.Kind == Render {
			is[n.PCI] = true
		}
	}

	return is
}

func (own ownedDevices) mayOpen(n Node, isGPU map[string]bool) bool {
	owns := func(vendor gpu.Vendor, is func(ownedDevice) bool) bool {
		return slices.ContainsFunc(own, func(o ownedDevice) bool { return o.device.Vendor == vendor && is(o) })
	}

	switch n.Kind {
	case AMDCompute:
		return owns(gpu.AMD, func(ownedDevice) bool { return true })
	case Card:
		return owns(gpu.NVIDIA, func(o ownedDevice) bool { return *o.device.Minor == n.Number })
	case Capability:
		return owns(gpu.NVIDIA, func(o ownedDevice) bool {
			return *o.device.Minor == n.Number && (o.slice == nil ||
				o.slice.GPUInstance == n.GPUInstance && (n.ComputeInstance < 0 || o.slice.ComputeInstance == n.ComputeInstance))
		})
	case Graphics, Render:
	}

	if len(own) == 0 {
		// It draws on no screen either.
		return false
	}

	atAddress := func(o ownedDevice) bool { return n.PCI != "" && o.device.PCI == n.PCI }

	return !isGPU[n.PCI] || owns(gpu.NVIDIA, atAddress) || n.Kind == Graphics && owns(gpu.AMD, atAddress) ||
		n.Kind == Render && owns(gpu.AMD, func(o ownedDevice) bool { return *o.device.Minor == n.Number })
}

// Suits refuses a level behind which a vendor's library finds nothing. Where one render node of several may not be
// opened (EACCES, as under Landlock), AMD's shows no GPU at all; it leaves out those that are not there, or that a
// control group does not allow (ENOENT, EPERM), and counts the others from 0 (ROCm/ROCR-Runtime
// libhsakmt/src/topology.c, topology_sysfs_check_node_supported).
func Suits(level job.Isolation, given []job.Given) *job.Refusal {
	i := slices.IndexFunc(given, func(g job.Given) bool { return g.Vendor == gpu.AMD })
	if level != job.Landlock || i < 0 {
		return nil
	}
	return newRefusal(fmt.Sprintf("cannot isolate a job on %s by landlock: ROCm finds no GPU at all where it may not open those of others", given[i]), option.Expand("write {isolate=namespace}, or leave {isolate} out to rely on variables"))
}

// CheckSharedFiles are the shared files that a program behind a wall could not have made and needs: the driver's own
// helper is a program with the rights of root (nvidia-modprobe), which has none there.
func CheckSharedFiles(given []job.Given, exists func(path string) bool) *job.Refusal {
	if !slices.ContainsFunc(given, func(g job.Given) bool { return g.Vendor != gpu.AMD }) || exists("/dev/nvidia-uvm") || !exists("/dev/nvidiactl") {
		return nil
	}
	return newRefusal("cannot isolate the job: there is no /dev/nvidia-uvm yet, which CUDA needs and could not make there", "make it first: nvidia-modprobe -u -c=0")
}

// CheckSliceFiles refuses a job with a slice while another slice of its GPU has no file yet, where what is made later
// can be opened: at every level but Landlock.
func CheckSliceFiles(level job.Isolation, nodes []Node, m gpu.Machine, given []job.Given) *job.Refusal {
	if level == job.Landlock {
		return nil
	}

	own, refusal := ownDevices(nodes, m, given)
	if refusal != nil {
		return refusal
	}

	for _, n := range nodes {
		ofGPU := slices.ContainsFunc(own, func(o ownedDevice) bool { return o.slice != nil && *o.device.Minor == n.Number })
		if n.Kind != Capability || n.Path != "" || !ofGPU || own.mayOpen(n, nil) {
			continue
		}

		file := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", n.Number, n.GPUInstance)
		if n.ComputeInstance >= 0 {
			file += fmt.Sprintf("/ci%d", n.ComputeInstance)
		}

		return newRefusal(fmt.Sprintf("cannot isolate the job by %s: the device file of another slice of its GPU is not made yet, and could be opened as soon as it is", level), option.Sprintf("make it first: sudo nvidia-modprobe -f %s/access; or write {isolate=landlock}", file))
	}

	return nil
}

// LevelCosts says what a level takes from a program beside the devices of others, one sentence each.
func LevelCosts(level job.Isolation) []string {
	switch level {
	case job.Namespace:
		return []string{
			"files of other users and of root are shown as nobody's, so ssh may refuse its system-wide settings and git a folder of another user",
			"sudo, su, newgrp, ping and fusermount have no rights there",
			"the groups that the user has still count, but chgrp to one of them fails, and cp -p and rsync -a do not keep the group of a file",
			"nvidia-modprobe cannot make device files there: they must exist before",
		}
	case job.Landlock:
		return []string{
			"sudo, su and every other program with rights of its own have none there",
			"nothing can be mounted: no bubblewrap, no rootless container, no Flatpak, no fuse",
			"files that are made later directly in / or /dev cannot be opened, nor can a program of outside be traced",
			"a file system directly in / that is mounted again meanwhile (automount, NFS) is lost to it",
		}
	case job.Cgroup:
		return []string{
			"no device file with the number of a closed one can be made (mknod)",
			"what runs as root can move out of its control group: let the command become a user, as with setpriv --reuid NAME --regid GROUP --init-groups COMMAND",
		}
	}
	return nil
}

// ProgramDoubt says what a program that is known cannot do at a level; "" nothing is known.
func ProgramDoubt(level job.Isolation, program string) string {
	is := func(names string) bool { return slices.Contains(strings.Fields(names), program) }
	switch {
	case level == job.Cgroup && is("sudo su doas pkexec runuser login"):
		return option.Sprintf("%s may move out of the control group of {isolate=cgroup}: where PAM makes a session for it (pam_systemd), systemd does that; write setpriv --reuid NAME --regid GROUP --init-groups COMMAND", program)
	case level == job.NoIsolation || level == job.Cgroup:
		return ""
	case is("sudo su doas pkexec newgrp sg ping fusermount fusermount3 sshfs newuidmap newgidmap"):
		return option.Sprintf("%s will not get rights of root behind {isolate=%s}: start it without, and gpuard inside of it", program, level)
	case is("bwrap podman buildah apptainer singularity flatpak unshare rootlesskit") && level == job.Landlock:
		return option.Sprintf("%s cannot mount anything behind {isolate=landlock}: use {isolate=namespace}", program)
	case is("podman buildah rootlesskit") && level == job.Namespace:
		return option.Sprintf("%s finds one user id behind {isolate=namespace}, and containers with several do not start: leave {isolate} out, a container is given only its own devices", program)
	}
	return ""
}
