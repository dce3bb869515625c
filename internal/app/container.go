package app

import (
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/host/files"
)

// below is where a file of the system lies for doctor.
func (a *App) below(path string) string { return filepath.Join(a.Root, path) }

// siteContainer is the kind of container this runs in, "" outside. It must not wait for anything.
func (a *App) siteContainer() string {
	set := func(name string) bool { value, _ := a.Env.Lookup(name); return value != "" }
	switch {
	case set("KUBERNETES_SERVICE_HOST"):
		return "kubernetes"
	case set("APPTAINER_CONTAINER"), set("SINGULARITY_CONTAINER"), files.Is(a.below("/.singularity.d")):
		return "apptainer"
	case files.Is(a.below("/run/.containerenv")):
		return "podman"
	case files.Is(a.below("/.dockerenv")):
		return "docker"
	}
	text, _ := files.Read(a.below("/run/systemd/container")) // systemd writes there what it runs in: "lxc", "systemd-nspawn"
	own, _ := a.Env.Lookup("container")                      // what many managers set for what they start
	for _, kind := range []string{own, strings.TrimSpace(string(text.Content))} {
		if slices.Contains(managers(), kind) {
			return kind
		}
	}
	return ""
}

// managers are the names of container managers in the variable container (systemd/systemd src/basic/virt.c). "wsl" is not among
// them: Windows' subsystem is a machine of its own. Other values are somebody's own variable.
func managers() []string {
	return []string{"systemd-nspawn", "lxc-libvirt", "lxc", "openvz", "docker", "podman", "rkt", "proot", "pouch", "oci", "flatpak"}
}

// wsl reports whether this is a Linux of Windows' subsystem, and no container in it: each of them has its own PID and
// mount namespace, and is a machine of its own (microsoft/WSL issue 12115, microsoft/wslg issue 919).
func (a *App) wsl() bool {
	release, err := files.Read(a.below("/proc/sys/kernel/osrelease"))
	first, ferr := a.Proc.Stat(1)
	return err == nil && ferr == nil && strings.Contains(strings.ToLower(string(release.Content)), "microsoft") &&
		(first.Comm == "systemd" || strings.HasPrefix(first.Comm, "init")) && files.Is(filepath.Join(a.Run, "WSL")) &&
		a.siteContainer() == ""
}
