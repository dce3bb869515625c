package machine

import (
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/host/files"
)

// SystemPath is where a file of the system lies for doctor.
func (h *Host) SystemPath(path string) string { return filepath.Join(h.Root, path) }

// Container is the kind of container this runs in, "" outside. It must not wait for anything.
func (h *Host) Container() string {
	set := func(name string) bool { value, _ := h.Env.Lookup(name); return value != "" }
	switch {
	case set("KUBERNETES_SERVICE_HOST"):
		return "kubernetes"
	case set("APPTAINER_CONTAINER"), set("SINGULARITY_CONTAINER"), files.Exists(h.SystemPath("/.singularity.d")):
		return "apptainer"
	case files.Exists(h.SystemPath("/run/.containerenv")):
		return "podman"
	case files.Exists(h.SystemPath("/.dockerenv")):
		return "docker"
	}

	// systemd writes there what it runs in: "lxc", "systemd-nspawn".
	text, _ := files.ReadFile(h.SystemPath("/run/systemd/container"))

	// What many managers set for what they start.
	own, _ := h.Env.Lookup("container")
	for _, kind := range []string{own, strings.TrimSpace(string(text.Content))} {
		if slices.Contains(containerManagers(), kind) {
			return kind
		}
	}

	return ""
}

// containerManagers are the values of the variable container that mean a container (systemd/systemd src/basic/virt.c).
// "wsl" is not among them: WSL is a machine of its own. Other values are variables of users.
func containerManagers() []string {
	return []string{"systemd-nspawn", "lxc-libvirt", "lxc", "openvz", "docker", "podman", "rkt", "proot", "pouch", "oci", "flatpak"}
}

// isWSL reports whether this is a Linux of Windows' subsystem, and no container in it: each of them has its own PID and
// mount namespace, and is a machine of its own (microsoft/WSL issue 12115, microsoft/wslg issue 919).
func (h *Host) isWSL() bool {
	release, err := files.ReadFile(h.SystemPath("/proc/sys/kernel/osrelease"))
	first, ferr := h.Proc.Stat(1)
	return err == nil && ferr == nil && strings.Contains(strings.ToLower(string(release.Content)), "microsoft") &&
		(first.Comm == "systemd" || strings.HasPrefix(first.Comm, "init")) && files.Exists(filepath.Join(h.Run, "WSL")) &&
		h.Container() == ""
}

// HasOwnPIDNamespace reports whether drivers number processes otherwise than this procfs: in a PID namespace other than
// the machine's. Kernel modules of NVIDIA's that translate (os_find_ns_pid in open-gpu-kernel-modules
// kernel-open/nvidia/os-interface.c) cannot be told from older ones, so that only what a process has open says who it
// is. WSL has such a namespace, and is a machine of its own all the same.
func (h *Host) HasOwnPIDNamespace() bool {
	initial, err := h.Proc.InitialPIDNamespace()
	return err == nil && !initial && !h.isWSL()
}
