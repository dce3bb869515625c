package container

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Facts are what was found out about an engine and this machine.
type Facts struct {
	Engine string // "docker", "podman"
	// The engine runs as the caller, without the device cgroup.
	Rootless bool
	// The engine reads CDI files.
	CDI bool
	// CDI files that cannot be read, with the reason.
	Broken []string
	// Full names of the devices in those files: "nvidia.com/gpu=GPU-8a…".
	Names []string
	// The engine has NVIDIA's runtime or hook, which answers --gpus.
	Toolkit bool
	// The files of SharedFiles that this machine has.
	Files []string
	// Labels keep containers from device files.
	SELinux bool
}

// Form is how an engine is told of the devices of a lease.
type Form struct {
	// "cdi", "request" (docker --gpus), "nodes" (device files) or "none" (no device).
	Kind  string
	Words []string
	// What the person should know.
	Notes []string
	// The devices as CDI or a request names them.
	ids   []string
	uuids []string // of the devices
	// Device files that are the lease's.
	nodes []string
	count int // of devices
	// The lease's device files are not known yet.
	any bool
	// Some of the devices are AMD's.
	amd bool
}

// ChooseForm decides the form for these devices: CDI where the engine lists every one of them, else docker's device
// request where something answers it, else the device files. A MIG device has no file of its own that would do.
func ChooseForm(f Facts, devices []gpu.Device) (Form, error) {
	isAMD := func(d gpu.Device) bool { return d.Vendor == gpu.AMD }
	form := Form{count: len(devices), amd: slices.ContainsFunc(devices, isAMD)}
	names, listed := cdiNames(f, devices)
	nvidia := !slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.Vendor != gpu.NVIDIA })

	for _, d := range devices {
		form.nodes = append(form.nodes, filesOf(d)...)
		form.uuids = append(form.uuids, string(d.UUID))
	}

	switch {
	case len(devices) == 0:
		form.Kind = "none"
	case f.CDI && listed:
		form.Kind, form.ids = "cdi", names
		for _, name := range names {
			form.Words = append(form.Words, "--device", name)
		}
	case f.Engine == "docker" && f.Toolkit && nvidia:
		form.Kind, form.ids = "request", form.uuids

		// docker reads the value as CSV: the quotes belong to it.
		form.Words = []string{"--gpus", `"device=` + strings.Join(form.uuids, ",") + `"`}
	default:
		form.Kind = "nodes"
		if err := form.addNodes(f, devices); err != nil {
			return form, err
		}
	}

	if form.Kind != "request" {
		// An image that asks for all GPUs gets none more where NVIDIA's runtime is the default.
		form.Words = append(form.Words, "--env", "NVIDIA_VISIBLE_DEVICES=void")
	}

	if f.Engine == "podman" && f.SELinux {
		form.Words = append(form.Words, "--security-opt=label=disable")
	}

	return form, nil
}

// DeviceFiles are the device files that the engine is given by path; none in another form.
func (form Form) DeviceFiles() []string {
	if form.Kind != "nodes" {
		return nil
	}
	return form.nodes
}

// cdiNames are the names of the devices in CDI: by UUID, else by index for a whole device.
func cdiNames(f Facts, devices []gpu.Device) (names []string, all bool) {
	for _, d := range devices {
		kind := CDIKinds()[d.Vendor] + "="
		byUUID, byIndex := kind+string(d.UUID), fmt.Sprintf("%s%d", kind, d.Index)
		switch {
		case slices.Contains(f.Names, byUUID):
			names = append(names, byUUID)
		case slices.Contains(f.Names, byIndex) && !strings.HasPrefix(string(d.UUID), "MIG-"):
			names = append(names, byIndex)
		default:
			return nil, false
		}
	}
	return names, true
}

func (form *Form) addNodes(f Facts, devices []gpu.Device) error {
	var shared []string
	for _, d := range devices {
		if len(filesOf(d)) == 0 || strings.HasPrefix(string(d.UUID), "MIG-") {
			return fmt.Errorf("cannot give GPU %d to a container of %s: it has no device file of its own; list it in CDI: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", d.Index, f.Engine)
		}
		for _, file := range SharedFiles(d.Vendor) {
			if slices.Contains(f.Files, file) && !slices.Contains(shared, file) {
				shared = append(shared, file)
			}
		}
	}

	for _, file := range append(shared, form.nodes...) {
		form.Words = append(form.Words, "--device", file)
	}

	if form.amd {
		group := "video"
		if f.Rootless && f.Engine == "podman" {
			group = "keep-groups"
		}
		form.Words = append(form.Words, "--group-add", group)
	} else {
		form.Notes = append(form.Notes, "only the device files are given: the image needs the driver's libraries of this machine's version; with NVIDIA's container toolkit they come with the GPU: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit")
	}

	return nil
}

// filesOf are the device files of one device alone.
func filesOf(d gpu.Device) []string {
	if d.Minor == nil || d.Vendor != gpu.NVIDIA && d.Vendor != gpu.AMD {
		return nil
	}
	return []string{fmt.Sprintf("/dev/%s%d", d.Vendor.NodePrefix(), *d.Minor)}
}

// SharedFiles are the device files that a vendor's programs need beside the device's own. They open no other device.
func SharedFiles(v gpu.Vendor) []string {
	if v == gpu.AMD {
		return []string{"/dev/kfd"}
	}
	return []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
}
