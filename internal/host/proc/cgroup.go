package proc

import (
	"strings"

	"gpuard/internal/core/prose"
)

// parseCgroup reads /proc/PID/cgroup (cgroups(7)): "0::/path" for version 2, "N:controllers:/path" for version 1.
// It returns the path of version 2, or that of version 1 if version 2 has only the root, as on hybrid machines.
func parseCgroup(text string) (path, container string) {
	rank := 0
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}

		if container == "" {
			container = containerID(fields[2])
		}

		r := 1
		if fields[0] == "0" && fields[2] != "/" {
			r = 3
		} else if fields[1] == "name=systemd" {
			r = 2
		}

		if r > rank {
			path, rank = fields[2], r
		}
	}
	return prose.Clean(path), container
}

// containerID finds the 64 hex digits that every runtime puts into the path: "/docker/ID", "docker-ID.scope",
// "libpod-ID.scope", "cri-containerd-ID.scope", "crio-ID.scope", "kubepods/…/podUID/ID", "….slice:cri-containerd:ID".
// It returns the outermost one, which the runtime of this machine knows. A monitor ("conmon") is not in the container.
func containerID(path string) string {
	for segment := range strings.SplitSeq(path, "/") {
		if strings.Contains(segment, "conmon-") {
			continue
		}
		name := strings.TrimSuffix(segment, ".scope")
		if i := strings.LastIndexAny(name, "-:"); i >= 0 {
			name = name[i+1:]
		}
		if len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" {
			return name
		}
	}
	return ""
}
