package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
)

// Sources of the rules about containers.
const (
	toolkitSpecialized = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
	toolkitCDI         = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
	toolkitTroubles    = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
)

// containerChecks check how containers of this machine get GPUs and, inside a container, what it was given.
func containerChecks() []Check {
	return []Check{containerEngine(), containerGPUs(), containerTakesAll(), cdiSpecs(), cdiDriver(), dockerCgroup()}
}

// checkOnHost runs a check of the host's container settings. Inside a container they cannot be read.
func checkOnHost(code string, s hostinfo.Site, check func(c hostinfo.Containers) []Finding) []Finding {
	switch {
	case s.Container != "":
		return okFinding(code, "not looked at inside of a container: it is a matter of the machine around it")
	case s.Containers.Problem != "":
		return unknownFinding(code, "the settings of containers", s.Containers.Problem, "")
	}
	return check(s.Containers.Found)
}

func containerTakesAll() Check {
	page := Page{
		Code: "container-takes-all", Title: "Any image can give itself all GPUs",
		Text: "NVIDIA's container runtime gives a container the GPUs that its variable `NVIDIA_VISIBLE_DEVICES` names, and an image may bring that variable: NVIDIA's own CUDA images say `all`. While `accept-nvidia-visible-devices-envvar-when-unprivileged` is true, which is the default, and `nvidia` is Docker's default runtime, every container of such an image has every GPU of the machine, whatever was leased. An OCI hook file of former times (`oci-nvidia-hook.json`) does the same in Podman.\n\n" +
			"Take `default-runtime` out of Docker's `daemon.json` and restart Docker: then only containers that ask for GPUs (`--gpus`, `--device nvidia.com/gpu=…`, `--runtime=nvidia`) get some. Or let the variable count for privileged containers only: `sudo nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false --set accept-nvidia-visible-devices-as-volume-mounts=true`. Mind that `--gpus` works by the same variable where NVIDIA's hook serves it, and then gives nothing either: containers are to be started with `--device nvidia.com/gpu=…`. Kubernetes' device plugin needs its own setting with it (`deviceListStrategy`).",
		From: []string{toolkitSpecialized, "NVIDIA/nvidia-container-toolkit: api/config/v1/config.go, cmd/nvidia-container-runtime-hook/container_config.go", "https://github.com/NVIDIA/k8s-device-plugin/issues/61"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return checkOnHost(page.Code, s, func(c hostinfo.Containers) []Finding {
			unread := slices.IndexFunc(c.Problems, func(p string) bool { return strings.Contains(p, "config.toml") || strings.Contains(p, "daemon.json") })
			switch open := c.EnvWhenUnprivileged == nil || *c.EnvWhenUnprivileged; {
			case !c.Toolkit:
				return okFinding(page.Code, "NVIDIA's container toolkit is not installed")
			case unread >= 0:
				return unknownFinding(page.Code, "the settings of containers", c.Problems[unread], option.Expand("sudo {gpuard doctor}, if the file is for root alone"))
			case !open && c.AsVolumeMounts != nil && *c.AsVolumeMounts:
				return okFinding(page.Code, "NVIDIA_VISIBLE_DEVICES of an image counts in privileged containers only; others name their GPUs by mounts")
			case !open:
				return okFinding(page.Code, "NVIDIA_VISIBLE_DEVICES of an image counts in privileged containers only")
			case c.DefaultRuntime != "nvidia" && c.Podman && c.HookFile != "":
				return []Finding{{page.Code, Info, c.HookFile + " lets images name GPUs for themselves in Podman", "a container of a CUDA image has every GPU, because the image says NVIDIA_VISIBLE_DEVICES=all", "sudo rm " + c.HookFile + "; start containers with --device nvidia.com/gpu=…"}}
			case c.DefaultRuntime != "nvidia":
				return okFinding(page.Code, "images can name GPUs for themselves, but only where nvidia's runtime was asked for")
			}

			severity := Warning
			if s.Machine.Problem == "" && len(s.Machine.Found.Devices) < 2 {
				severity = Info
			}

			return []Finding{{
				page.Code, severity, "nvidia is Docker's default runtime (" + c.DockerConfig + "), and images may name GPUs for themselves",
				"a container of a CUDA image has every GPU, whatever was leased, because the image says NVIDIA_VISIBLE_DEVICES=all",
				`take "default-runtime": "nvidia" out of ` + c.DockerConfig + " and: sudo systemctl restart docker (containers that ask for GPUs, as with --gpus, still get them)",
			}}
		})
	}}
}

func dockerCgroup() Check {
	page := Page{
		Code: "docker-cgroup-hook", Title: "Containers can lose their GPUs while they run",
		Text: "With `docker run --gpus`, or the NVIDIA runtime in legacy mode, a hook opens the devices to the container without the knowledge of Docker's own runtime. Where systemd keeps the containers' cgroups, `systemctl daemon-reload`, which every package update calls, resets the devices of all containers without them: programs inside then fail with \"Failed to initialize NVML: Unknown Error\" until the container is started again. Newer versions of Docker give GPUs by CDI for `--gpus` too, where a CDI file is there.\n\n" +
			"Give GPUs by CDI instead (`docker run --device nvidia.com/gpu=…`, or `nvidia-container-runtime.mode` set to `cdi`), name the device files with `--device`, or let Docker keep the cgroups itself: `\"exec-opts\": [\"native.cgroupdriver=cgroupfs\"]` in `/etc/docker/daemon.json`.",
		From: []string{toolkitTroubles, "https://github.com/NVIDIA/nvidia-docker/issues/1730", "https://github.com/moby/moby/pull/50228", "https://docs.docker.com/reference/cli/dockerd/"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return checkOnHost(page.Code, s, func(c hostinfo.Containers) []Finding {
			switch {
			case !c.Docker || !c.Hook:
				return okFinding(page.Code, "Docker and NVIDIA's hook are not both installed")
			case c.CgroupDriver != "systemd":
				return okFinding(page.Code, "Docker keeps the cgroups of containers itself")
			case c.Mode == "cdi" || c.Mode == "jit-cdi":
				return okFinding(page.Code, "NVIDIA's runtime gives GPUs by CDI, which a reload leaves alone")
			}
			seen, severity := "systemd keeps the cgroups of Docker's containers, and NVIDIA's hook opens GPUs to them", Info
			if c.Mode == "legacy" || c.DefaultRuntime == "nvidia" && c.ToolkitVersion != "" && !isVersionSince(c.ToolkitVersion, 1, 18) {
				severity = Warning
			}

			return []Finding{{
				page.Code, severity, seen, "a container that gets GPUs by the hook can lose them at the next systemctl daemon-reload, as package updates call it",
				"start containers with --device nvidia.com/gpu=… in place of --gpus (list the names: nvidia-ctk cdi list)",
			}}
		})
	}}
}

// isVersionSince reports whether a version is at least major.minor; one that is not known is older.
func isVersionSince(version string, major, minor int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}

	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])

	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// containerGPUs checks the devices given to the container that this process runs in. Other checks report that it was
// given none, or a driver without libcuda.
func containerGPUs() Check {
	page := Page{
		Code: "container-gpus", Title: "The container has other GPUs than it was started for",
		Text: "`NVIDIA_VISIBLE_DEVICES` says which GPUs a container was to get. A privileged container (`--privileged`, or `/dev` mounted from the machine) has all of them whatever the variable says, and programs inside take the first one, which another user may be using. The other way round a container has only the GPUs that it was started with, however many the machine has.\n\n" +
			"Start the container without `--privileged`, with `--gpus '\"device=0,1\"'` or `--device nvidia.com/gpu=0`; where it must be privileged, set `CUDA_VISIBLE_DEVICES` inside as well. A container without GPUs is started with `docker run --gpus all`, in Kubernetes with `resources: limits: nvidia.com/gpu: 1`, Apptainer with `--nv`.",
		From: []string{toolkitSpecialized, "https://github.com/NVIDIA/k8s-device-plugin/issues/61", "https://apptainer.org/docs/user/main/gpu.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		nvidia := onlyNVIDIA(s)
		switch {
		case s.Container == "" && s.Containers.Problem != "":
			return unknownFinding(page.Code, "whether this is a container", s.Containers.Problem, "")
		case s.Container == "":
			return okFinding(page.Code, "this is no container")
		case len(nvidia) > 0:
			return compareContainerGPUs(page.Code, s, nvidia)
		case s.Machine.Problem == "" && len(s.Machine.Found.Devices) > 0:
			return okFinding(page.Code, fmt.Sprintf("this container (%s) has %s", s.Container, gpuCountText(len(s.Machine.Found.Devices))))
		case hasVendor(s, gpu.NVIDIA) && s.Driver.Problem == "" && s.Driver.Found.Module == "":
			return []Finding{{page.Code, Info, fmt.Sprintf("this container (%s) shows no GPU, and there are cards of NVIDIA's on the machine's PCI bus", s.Container), "programs in a container see only the GPUs that it was started with", startAdvice(s.Container)}}
		}
		return okFinding(page.Code, fmt.Sprintf("this container (%s) shows no GPU", s.Container))
	}}
}

// compareContainerGPUs compares the devices with the list that the container was started with.
func compareContainerGPUs(code string, s hostinfo.Site, devices []gpu.Device) []Finding {
	value, _ := s.Env.Lookup("NVIDIA_VISIBLE_DEVICES")
	if lease, _ := s.Env.Lookup("GPUARD_LEASE"); lease != "" {
		// Set by the lease, not by the container.
		value = ""
	}

	entries := strings.Split(value, ",")
	_, masked := s.Env.Lookup("CUDA_VISIBLE_DEVICES")
	has := fmt.Sprintf("this container (%s) has %s of NVIDIA's", s.Container, gpuCountText(len(devices)))
	switch {
	case slices.ContainsFunc(entries, func(e string) bool { return !isDeviceName(strings.TrimSpace(e)) }):
		// All, void, empty, or a form that does not say how many.
		return okFinding(code, has)
	case len(devices) <= len(entries):
		return okFinding(code, has)
	case masked:
		return []Finding{{code, Info, has + ", and NVIDIA_VISIBLE_DEVICES=" + value, "the container can open more than it was started for, as privileged ones can, and only CUDA_VISIBLE_DEVICES keeps programs from the other GPUs", "start the container without --privileged"}}
	}

	return []Finding{{code, Warning, has + ", and NVIDIA_VISIBLE_DEVICES=" + value, "the container can open more than it was started for, as privileged ones can, and programs take the first GPU, even if another user has it", "start the container without --privileged, or set CUDA_VISIBLE_DEVICES inside"}}
}

// isDeviceName reports whether an entry is one whole GPU, by number or identifier.
func isDeviceName(entry string) bool {
	_, err := strconv.ParseUint(entry, 10, 16)
	return err == nil || strings.HasPrefix(entry, "GPU-")
}

func onlyNVIDIA(s hostinfo.Site) []gpu.Device {
	if s.Machine.Problem != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Machine.Found.Devices), func(d gpu.Device) bool { return d.Vendor != gpu.NVIDIA })
}

// startAdvice is the command that starts such a container with GPUs.
func startAdvice(container string) string {
	switch container {
	case "kubernetes":
		return "ask for a GPU in the pod: resources: limits: nvidia.com/gpu: 1"
	case "apptainer":
		return "start the container with --nv"
	case "podman":
		return "start the container with --device nvidia.com/gpu=all"
	case "docker":
		return "start the container with --gpus all"
	}
	return "give the container the devices, as its manager's documentation says"
}

func gpuCountText(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
