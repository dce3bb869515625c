package check

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func TestContainer(t *testing.T) { see(t, containerChecks(), containerSightings()) }

// engines is a machine with these container settings.
func engines(s hostinfo.Site, c hostinfo.Containers) hostinfo.Site {
	s.Containers = hostinfo.AnswerOf(c)
	return s
}

// within is a site inside a container.
func within(s hostinfo.Site, kind string, d hostinfo.Driver) hostinfo.Site {
	s.Container, s.Driver = kind, hostinfo.AnswerOf(d)
	return s
}

// toolkitHere is a machine with Docker and NVIDIA's container toolkit as the packages install them.
func toolkitHere() hostinfo.Containers {
	return hostinfo.Containers{Toolkit: true, Hook: true, Docker: true, ToolkitVersion: "1.17.8", ConfigPath: "/etc/nvidia-container-runtime/config.toml", Mode: "auto", DockerConfig: "/etc/docker/daemon.json", CgroupDriver: "systemd", CgroupDefault: true}
}

func defaultRuntime(c hostinfo.Containers) hostinfo.Containers {
	c.DefaultRuntime = "nvidia"
	return c
}

func described(specs ...hostinfo.CDISpec) hostinfo.Containers {
	c := toolkitHere()
	c.Specs = specs
	return c
}

// spec describes the two GPUs that with makes.
func spec(path, driver string, devices ...string) hostinfo.CDISpec {
	folder := 0
	if strings.HasPrefix(path, "/var/run") {
		folder = 1
	}
	return hostinfo.CDISpec{Path: path, Folder: folder, Version: "0.5.0", Kind: "nvidia.com/gpu", Driver: driver, Devices: devices}
}

func driven(s hostinfo.Site, module string) hostinfo.Site {
	s.Driver = hostinfo.AnswerOf(hostinfo.Driver{Module: module})
	return s
}

func containerSightings() []sighting {
	const a100 = "NVIDIA A100-SXM4-80GB"
	const first, second = "GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-0000-0000-0000-000000000000"
	two := with(nil, a100, a100)
	closed, legacy, cdiMode, cgroupfs, unread := defaultRuntime(toolkitHere()), toolkitHere(), toolkitHere(), toolkitHere(), toolkitHere()
	closed.EnvWhenUnprivileged = new(false)
	legacy.Mode, cdiMode.Mode, cgroupfs.CgroupDriver = "legacy", "cdi", "cgroupfs"
	unread.Problems = []string{"/etc/docker/daemon.json: permission denied"}
	newer := defaultRuntime(toolkitHere())
	newer.ToolkitVersion = "1.18.1"
	unversioned := newer
	unversioned.ToolkitVersion = ""
	plain := unread
	plain.Toolkit, plain.Hook = false, false
	closedSpec := hostinfo.CDISpec{Path: "/etc/cdi/nvidia.yaml", Problem: "permission denied", Closed: true}
	rootless := described(closedSpec)
	rootless.Podman = true
	updated := driven(two, "550.54.14")
	updated.Driver.Found.Library = "570.26"
	off := described(spec("/etc/cdi/nvidia.yaml", "550.54.14", "0", "1", "all"))
	off.CDIOff = true
	hooked := described(spec("/etc/cdi/nvidia.yaml", "550.54.14", "0"))
	hooked.HookFile = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
	dark := toolkitHere()
	dark.Problems = []string{"/etc/cdi: permission denied"}
	strict := closed
	closed.AsVolumeMounts = new(true)
	hookAlone := toolkitHere()
	hookAlone.HookFile = hooked.HookFile
	sliced := driven(with(nil, a100), "550.54.14")
	sliced.Machine.Found.Devices[0].MIGMode = new(true)
	sliced.Machine.Found.Devices[0].MIG = []gpu.MIGDevice{{UUID: "MIG-a"}, {UUID: "MIG-b"}}
	fits := spec("/etc/cdi/nvidia.yaml", "550.54.14", "0", "1", first, second, "all")
	wsl := driven(two, "550.54.14")
	wsl.Driver.Found.WSL = true
	usable, podman := toolkitHere(), hostinfo.Containers{Podman: true, PodmanLacks: "you have no range of IDs in /etc/subuid"}
	usable.DockerSocket = "/run/docker.sock"
	denied, bare := usable, usable
	denied.DockerDenied, bare.Toolkit = true, false
	byFile := bare
	byFile.Specs = []hostinfo.CDISpec{fits}
	return []sighting{
		{"container-engine", "ready", engines(two, usable), OK},
		{"container-engine", "no engine", engines(two, hostinfo.Containers{}), OK},
		{"container-engine", "no daemon", engines(two, toolkitHere()), Info},
		{"container-engine", "no right", engines(two, denied), Info},
		{"container-engine", "no ranges", engines(two, podman), Info},
		{"container-engine", "no toolkit", engines(two, bare), Info},
		{"container-engine", "a CDI file in its place", engines(two, byFile), OK},
		{"container-engine", "inside", within(two, "docker", hostinfo.Driver{}), OK},
		{"container-takes-all", "the default, for every container", engines(two, defaultRuntime(toolkitHere())), Warning},
		{"container-takes-all", "one GPU", engines(with(nil, a100), defaultRuntime(toolkitHere())), Info},
		{"container-takes-all", "closed", engines(two, closed), OK},
		{"container-takes-all", "closed, mounts not read", engines(two, strict), OK},
		{"container-takes-all", "as installed", engines(two, toolkitHere()), OK},
		{"container-takes-all", "no toolkit", engines(two, hostinfo.Containers{Docker: true}), OK},
		{"container-takes-all", "by Podman's hook", engines(two, hostinfo.Containers{Toolkit: true, Hook: true, Podman: true, HookFile: "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"}), Info},
		{"container-takes-all", "hook of an engine that is not there", engines(two, hostinfo.Containers{Toolkit: true, Hook: true, HookFile: "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"}), OK},
		{"container-takes-all", "not to be read", engines(two, unread), Unknown},
		{"container-takes-all", "not to be read, and no toolkit", engines(two, plain), OK},
		{"container-takes-all", "inside", within(engines(two, defaultRuntime(toolkitHere())), "docker", hostinfo.Driver{}), OK},
		{"docker-cgroup-hook", "legacy", engines(two, legacy), Warning},
		{"docker-cgroup-hook", "older runtime for all", engines(two, defaultRuntime(toolkitHere())), Warning},
		{"docker-cgroup-hook", "runtime of a version that is not known", engines(two, unversioned), Info},
		{"docker-cgroup-hook", "newer runtime for all", engines(two, newer), Info},
		{"docker-cgroup-hook", "as installed", engines(two, toolkitHere()), Info},
		{"docker-cgroup-hook", "by CDI", engines(two, cdiMode), OK},
		{"docker-cgroup-hook", "cgroupfs", engines(two, cgroupfs), OK},
		{"docker-cgroup-hook", "Podman alone", engines(two, hostinfo.Containers{Podman: true, Hook: true, Toolkit: true}), OK},
		{"cdi-spec", "none", engines(two, toolkitHere()), Info},
		{"cdi-spec", "unreadable", engines(two, described(hostinfo.CDISpec{Path: "/etc/cdi/nvidia.yaml", Problem: "it has no kind"})), Warning},
		{"cdi-spec", "for root alone", engines(two, described(closedSpec)), Unknown},
		{"cdi-spec", "for root alone, with Podman", engines(two, rootless), Info},
		{"cdi-spec", "two of one folder", engines(two, described(fits, spec("/etc/cdi/old.yaml", "550.54.14", "0"))), Warning},
		{"cdi-spec", "with a hook", engines(two, hooked), Info},
		{"cdi-spec", "no answer", hostinfo.Site{Containers: hostinfo.NoAnswer[hostinfo.Containers]("no answer within 5s")}, Unknown},
		{"cdi-stale", "with a GPU of AMD", engines(mixed(nil), described(spec("/etc/cdi/nvidia.yaml", "", first))), OK},
		{"cdi-spec", "folder for root alone", engines(two, dark), Unknown},
		{"cdi-spec", "a hook alone", engines(two, hookAlone), Info},
		{"cdi-spec", "turned off", engines(two, off), Info},
		{"cdi-spec", "one over the other", engines(two, described(fits, spec("/var/run/cdi/nvidia.yaml", "550.54.14", "0", "1", "all"))), OK},
		{"cdi-spec", "with another vendor's", engines(two, described(fits, hostinfo.CDISpec{Path: "/etc/cdi/x.yaml", Kind: "amd.com/gpu", Devices: []string{"0"}})), OK},
		{"cdi-spec", "no GPU of NVIDIA's", engines(with(nil), toolkitHere()), OK},
		{"cdi-spec", "nothing installed", engines(two, hostinfo.Containers{}), OK},
		{"cdi-stale", "older driver", engines(driven(two, "570.26"), described(fits)), Warning},
		{"cdi-stale", "older driver, replaced", engines(driven(two, "570.26"), described(fits, spec("/var/run/cdi/nvidia.yaml", "570.26", "0", first, second))), Info},
		{"cdi-stale", "a card more", engines(driven(with(nil, a100, a100, a100), "550.54.14"), described(fits)), Warning},
		{"cdi-stale", "a card less", engines(driven(with(nil, a100), "550.54.14"), described(fits)), Warning},
		{"cdi-stale", "a card that a batch job does not see", engines(bus(driven(with(nil, a100), "550.54.14"), 0x10de, 0x10de), described(fits)), OK},
		{"cdi-stale", "a bus that cannot be read", engines(unbused(driven(with(nil, a100), "550.54.14")), described(fits)), OK},
		{"cdi-stale", "new libraries, before the reboot", engines(updated, described(spec("/etc/cdi/nvidia.yaml", "570.26", "0"))), OK},
		{"cdi-stale", "neither the module's nor the libraries'", engines(updated, described(spec("/etc/cdi/nvidia.yaml", "535.104", "0"))), Warning},
		{"cdi-stale", "a card less, and none hidden", engines(bus(driven(with(nil, a100), "550.54.14"), 0x10de), described(fits)), Warning},
		{"cdi-stale", "a file that names no version", engines(driven(two, "550.54.14"), described(spec("/etc/cdi/nvidia.yaml", "", "0"))), OK},
		{"cdi-stale", "other slices", engines(sliced, described(spec("/etc/cdi/nvidia.yaml", "550.54.14", "MIG-a", "MIG-c"))), Warning},
		{"cdi-stale", "slices", engines(sliced, described(spec("/etc/cdi/nvidia.yaml", "550.54.14", "0:0", "0:1", "MIG-a", "MIG-b", "all"))), OK},
		{"cdi-stale", "fits", engines(driven(two, "550.54.14"), described(fits)), OK},
		{"cdi-stale", "by number alone", engines(driven(two, "550.54.14"), described(spec("/etc/cdi/nvidia.yaml", "550.54.14", "0"))), OK},
		{"cdi-stale", "Windows' driver", engines(wsl, described(spec("/etc/cdi/nvidia.yaml", "551.1", "all"))), OK},
		{"cdi-stale", "driver not loaded", engines(without(), described(fits)), OK},
		{"cdi-stale", "none", engines(two, toolkitHere()), OK},
		{"container-gpus", "privileged", within(with([]string{"NVIDIA_VISIBLE_DEVICES=" + first}, a100, a100), "docker", hostinfo.Driver{}), Warning},
		{"container-gpus", "privileged, by number", within(with([]string{"NVIDIA_VISIBLE_DEVICES=1"}, a100, a100), "docker", hostinfo.Driver{}), Warning},
		{"container-gpus", "privileged and masked", within(with([]string{"NVIDIA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=1"}, a100, a100), "docker", hostinfo.Driver{}), Info},
		{"container-gpus", "no driver around", within(bus(without(), 0x10de), "kubernetes", hostinfo.Driver{}), Info},
		{"container-gpus", "no GPU given", within(bus(without(), 0x10de), "docker", hostinfo.Driver{Module: "550.54.14"}), OK},
		{"container-gpus", "no GPU around", within(bus(without()), "kubernetes", hostinfo.Driver{}), OK},
		{"container-gpus", "as started", within(with([]string{"NVIDIA_VISIBLE_DEVICES=" + first + "," + second}, a100, a100), "docker", hostinfo.Driver{}), OK},
		{"container-gpus", "slices of one", within(with([]string{"NVIDIA_VISIBLE_DEVICES=0:0"}, a100, a100), "docker", hostinfo.Driver{}), OK},
		{"container-gpus", "all", within(with([]string{"NVIDIA_VISIBLE_DEVICES=all"}, a100, a100), "docker", hostinfo.Driver{}), OK},
		{"container-gpus", "by CDI", within(with([]string{"NVIDIA_VISIBLE_DEVICES=void"}, a100, a100), "docker", hostinfo.Driver{}), OK},
		{"container-gpus", "inside of a lease", within(with([]string{"GPUARD_LEASE=x1", "NVIDIA_VISIBLE_DEVICES=" + first, "CUDA_VISIBLE_DEVICES=0"}, a100, a100), "docker", hostinfo.Driver{}), OK},
		{"container-gpus", "nothing said", within(with(nil, a100), "kubernetes", hostinfo.Driver{}), OK},
		{"container-gpus", "another vendor's", within(radeon(nil, 1), "podman", hostinfo.Driver{}), OK},
		{"container-gpus", "no driver around, LXC", within(bus(without(), 0x10de), "lxc", hostinfo.Driver{}), Info},
		{"container-gpus", "outside", without(), OK},
	}
}

func TestOlderSpec(t *testing.T) {
	a, b := spec("/etc/cdi/a.yaml", ""), spec("/etc/cdi/b.yaml", "")
	a.Modified, b.Modified = time.Unix(200, 0), time.Unix(100, 0)
	if olderSpecPath(a, b) != b.Path || olderSpecPath(b, a) != b.Path {
		t.Error("the newer file was to be removed")
	}
}

func TestSince(t *testing.T) {
	for version, want := range map[string]bool{"1.18.0": true, "1.20.1": true, "2.0.0": true, "1.17.8": false, "": false, "x.y": false, "1": false} {
		if got := isVersionSince(version, 1, 18); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
