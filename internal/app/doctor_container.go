package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/files"
	"gpuard/internal/text/cdi"
	"gpuard/internal/text/toolkit"
)

// siteContainers reads how containers of this machine get at GPUs, from files alone: no engine is asked.
func (a *App) siteContainers(context.Context) hostinfo.Answer[hostinfo.Containers] {
	var c hostinfo.Containers
	is := func(paths ...string) bool {
		for _, p := range paths {
			if files.Is(a.below(p)) {
				return true
			}
		}
		return false
	}
	c.Hook = is("/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-container-toolkit", "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook")
	c.Toolkit = c.Hook || is("/usr/bin/nvidia-ctk", "/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-ctk")
	c.Docker = is("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/sbin/dockerd")
	c.Podman = is("/usr/bin/podman", "/usr/local/bin/podman")
	c.ToolkitVersion = a.toolkitVersion()
	a.settings(&c, "/etc/nvidia-container-runtime/config.toml", &c.ConfigPath, toolkit.Runtime)
	a.settings(&c, "/etc/docker/daemon.json", &c.DockerConfig, toolkit.Docker)
	if c.CgroupDriver == "" && c.Docker {
		c.CgroupDriver, c.CgroupDefault = a.dockersChoice(), true
	}
	for _, hook := range []string{"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "/etc/containers/oci/hooks.d/oci-nvidia-hook.json"} {
		if is(hook) {
			c.HookFile = hook
		}
	}
	a.specs(&c)
	return hostinfo.Read(c)
}

// settings reads one file of settings into c; that there is none is no problem.
func (a *App) settings(c *hostinfo.Containers, path string, into *string, read func([]byte, *hostinfo.Containers) error) {
	text, err := files.Read(a.below(path))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	*into = path
	if err == nil {
		err = read(text.Content, c)
	}
	if err != nil {
		c.Problems = append(c.Problems, path+": "+err.Error())
	}
}

// toolkitVersion is taken from the name of the library that the toolkit's packages bring, which has their version: no program
// is run and no package database is read.
func (a *App) toolkitVersion() string {
	for _, folder := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"} {
		matches, _ := filepath.Glob(a.below(folder + "/libnvidia-container.so.1.*.*"))
		for _, m := range matches {
			if version, ok := strings.CutPrefix(filepath.Base(m), "libnvidia-container.so."); ok {
				return version
			}
		}
	}
	return ""
}

// dockersChoice is the cgroup driver that Docker takes where nobody says: systemd on a machine that systemd runs with the
// unified hierarchy (moby/moby daemon/daemon_unix.go).
func (a *App) dockersChoice() string {
	if files.Is(a.below("/sys/fs/cgroup/cgroup.controllers")) && files.Is(a.below("/run/systemd/system")) {
		return "systemd"
	}
	return "cgroupfs"
}

// specs reads the CDI files. The folders are those that engines use where nobody says otherwise, the later one winning
// (cncf-tags/container-device-interface pkg/cdi/spec-dirs.go). /var/run is a link to /run.
func (a *App) specs(c *hostinfo.Containers) {
	for place, folder := range []string{"/etc/cdi", "/var/run/cdi"} {
		names, err := files.Names(a.below(folder), ".yaml", ".json")
		if err != nil {
			c.Problems = append(c.Problems, folder+": "+err.Error())
		}
		for i, name := range names {
			if i == 64 {
				c.Problems = append(c.Problems, fmt.Sprintf("%s: only the first %d of %d files were read", folder, i, len(names)))
				break
			}
			path := folder + "/" + name
			text, err := files.Read(a.below(path))
			spec, bad := cdi.Read(text.Content)
			if err == nil {
				err = bad
			}
			if err != nil {
				spec = hostinfo.CDISpec{Problem: err.Error(), Closed: errors.Is(err, os.ErrPermission)}
			}
			spec.Path, spec.Folder, spec.Modified = path, place, text.Modified
			c.Specs = append(c.Specs, spec)
		}
	}
}
