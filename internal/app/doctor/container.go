package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/files"
	"gpuard/internal/text/toolkit"
)

// siteContainers reads how containers of this machine get at GPUs, from files alone: no engine is asked.
func siteContainers(_ context.Context, host *machine.Host) hostinfo.Answer[hostinfo.Containers] {
	var c hostinfo.Containers
	is := func(paths ...string) bool {
		for _, p := range paths {
			if files.Exists(host.SystemPath(p)) {
				return true
			}
		}
		return false
	}

	c.Hook = is("/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-container-toolkit", "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook")
	c.Toolkit = c.Hook || is("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-ctk")
	c.Docker = is("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/sbin/dockerd")
	c.Podman = is("/usr/bin/podman", "/usr/local/bin/podman")
	if c.Docker {
		c.DockerSocket, c.DockerDenied = dockerSocket(host)
	}

	if c.Podman && os.Getuid() != 0 {
		c.PodmanLacks = podmanLacks(host)
	}

	c.ToolkitVersion = toolkitVersion(host)
	readSettings(host, &c, "/etc/nvidia-container-runtime/config.toml", &c.ConfigPath, toolkit.ReadRuntime)
	readSettings(host, &c, "/etc/docker/daemon.json", &c.DockerConfig, toolkit.ReadDocker)
	if c.CgroupDriver == "" && c.Docker {
		c.CgroupDriver, c.CgroupDefault = defaultCgroupDriver(host), true
	}

	for _, hook := range []string{"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "/etc/containers/oci/hooks.d/oci-nvidia-hook.json"} {
		if is(hook) {
			c.HookFile = hook
		}
	}

	var wrong []string
	c.Specs, wrong = engine.Specs(host)
	c.Problems = append(c.Problems, wrong...)

	return hostinfo.AnswerOf(c)
}

// dockerSocket is the socket of Docker's daemon, also of one that this user runs, and whether the user may not open it.
func dockerSocket(host *machine.Host) (path string, denied bool) {
	own, _ := host.Env.Lookup("XDG_RUNTIME_DIR")
	for _, path := range []string{filepath.Join(own, "docker.sock"), "/run/docker.sock", "/var/run/docker.sock"} {
		if info, err := os.Stat(host.SystemPath(path)); err == nil && info.Mode()&os.ModeSocket != 0 {
			return path, !files.IsWritable(host.SystemPath(path))
		}
	}
	return "", false
}

// podmanLacks says what Podman needs for a user who is not root and does not find; "" nothing.
func podmanLacks(host *machine.Host) string {
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if !files.Exists(host.SystemPath("/usr/bin/" + program)) {
			return "the program " + program + " is not"
		}
	}
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := files.ReadFile(host.SystemPath(path))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return ""
		}
		id, name := strconv.Itoa(os.Getuid()), host.Names(uint32(os.Getuid())) //nolint:gosec // an id
		if !slices.ContainsFunc(strings.Split(string(text.Content), "\n"), func(line string) bool {
			owner, _, _ := strings.Cut(line, ":")
			return owner == id || owner == name
		}) {
			return "you have no range of IDs in " + path
		}
	}
	return ""
}

// readSettings reads one file of settings into c; that there is none is no problem.
func readSettings(host *machine.Host, c *hostinfo.Containers, path string, into *string, read func([]byte, *hostinfo.Containers) error) {
	text, err := files.ReadFile(host.SystemPath(path))
	if errors.Is(err, os.ErrNotExist) {
		return
	}

	*into = path
	if err != nil {
		c.Problems = append(c.Problems, path+": "+err.Error())
		return
	}

	err = read(text.Content, c)
	if err != nil {
		c.Problems = append(c.Problems, path+": "+err.Error())
	}
}

// toolkitVersion is taken from the name of the library that the toolkit's packages bring, which has their version: no
// program is run and no package database is read.
func toolkitVersion(host *machine.Host) string {
	for _, folder := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"} {
		matches, _ := filepath.Glob(host.SystemPath(folder + "/libnvidia-container.so.1.*.*"))
		for _, m := range matches {
			if version, ok := strings.CutPrefix(filepath.Base(m), "libnvidia-container.so."); ok {
				return version
			}
		}
	}
	return ""
}

// defaultCgroupDriver is Docker's default cgroup driver: systemd where systemd runs the machine with cgroup v2
// (moby/moby daemon/daemon_unix.go).
func defaultCgroupDriver(host *machine.Host) string {
	if files.Exists(host.SystemPath("/sys/fs/cgroup/cgroup.controllers")) && files.Exists(host.SystemPath("/run/systemd/system")) {
		return "systemd"
	}
	return "cgroupfs"
}
