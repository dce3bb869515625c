package container

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// judgeOption says of an option why it is left out, or why the container cannot be kept to a lease with it.
func (c Call) judgeOption(o engineOption, form Form) (drop, why string) {
	sources, why := c.sourcesOf(o)
	if why != "" {
		return "", why
	}

	switch o.name {
	case "--device":
		return c.judgeDevices(o.value, form)
	case "--gpus":
		return inItsPlaceReason, ""
	case "--env":
		return form.judgeEnv(o.value), ""
	case "--label":
		if strings.HasPrefix(o.value, "gpuard.") {
			return "gpuard writes such labels", ""
		}
	}

	for _, s := range sources {
		if why := c.found.judgeSource(s); why != "" {
			return "", why
		}
	}

	return "", c.found.judgeSetting(o.name, o.value)
}

// judgeSetting is why an option of one word must not be given; "" it may.
func (f Found) judgeSetting(name, value string) string {
	switch name {
	case "--privileged":
		if isSwitchOn(value) {
			return "it can open every device of the machine"
		}
	case "--use-api-socket":
		if isSwitchOn(value) {
			return "through the engine's socket it could start containers that have no lease"
		}
	case "--watch":
		if isSwitchOn(value) {
			return "it starts containers again whenever a file changes, each without a lease"
		}
	case "--device-cgroup-rule":
		if slices.ContainsFunc(strings.Split(value, ","), allowsGPUs) {
			return "it lets the container open GPUs that are not of the lease"
		}
	case "--cap-add":
		return judgeCapability(value)
	case "--security-opt":
		return judgeSecurity(value)
	case "--annotation":
		return judgeAnnotation(value)
	case "--runtime":
		return judgeRuntime(value)
	case "--pid":
		return f.judgePID(value)
	case "--cgroups", "--cgroup-manager":
		if value == "disabled" {
			return "without a control group nothing keeps it from devices that are not of the lease"
		}
	}
	return judgeConfiguration(name, value)
}

// judgeConfiguration is why an option must not be given that names files with more options, or with devices.
func judgeConfiguration(name, value string) string {
	switch name {
	case "--module", "--default-mounts-file", "--cdi-spec-dir":
		return "what it names can give the container more devices; write that as options of the container"
	case "--pod-id-file":
		return "gpuard does not read it; write --pod NAME"
	case "--hooks-dir":
		if !slices.Contains([]string{"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}, strings.TrimSuffix(value, "/")) {
			return "its hooks can give the container more devices"
		}
	case "--runtime-flag":
		if key, _, _ := strings.Cut(strings.TrimLeft(value, "-"), "="); !slices.Contains([]string{"debug", "log", "log-format", "log-level"}, key) {
			return "gpuard does not know what it lets the container open"
		}
	}
	return ""
}

// isSwitchOn reports whether a switch is on: it is, unless its value is one of those that Go reads as false.
func isSwitchOn(value string) bool {
	on, err := strconv.ParseBool(value)
	return on || err != nil
}

// isQualified reports whether a value of --device is a name of CDI, VENDOR/CLASS=NAME.
func isQualified(value string) bool {
	kind, _, named := strings.Cut(value, "=")
	return named && strings.Contains(kind, "/") && !isPath(kind)
}

// judgeDevices judges a value of --device. Podman 4 reads several from one value.
func (c Call) judgeDevices(value string, form Form) (drop, why string) {
	values := strings.Split(value, ",")
	kept := 0
	for _, one := range values {
		left, bad := c.judgeDevice(strings.TrimSpace(one), form)
		if bad != "" {
			return "", bad
		}
		drop = cmp.Or(drop, left)
		if left == "" {
			kept++
		}
	}

	if drop != "" && kept > 0 {
		return "", "some of it is of the lease; write each device with a --device of its own"
	}

	return drop, ""
}

// judgeDevice judges one device: a name of CDI, or a file.
func (c Call) judgeDevice(value string, form Form) (drop, why string) {
	if isQualified(value) {
		return judgeQualified(value)
	}

	file, _, _ := strings.Cut(value, ":")
	if !strings.HasPrefix(file, "/") {
		return "", "gpuard does not know which file the engine takes it for; write its path from / on"
	}

	for _, p := range append([]string{c.found.absolutePath(file)}, c.found.Paths[file]...) {
		switch {
		case slices.Contains(form.nodes, p) || form.any && isGPUFile(p):
			drop = "it is of the lease"
		// So AMD's pages give a container all GPUs.
		case (form.amd || form.any) && (p == "/dev/kfd" || p == "/dev/dri"):
			drop = inItsPlaceReason
		case p == "/dev/kfd":
		case judgePath(p) != "":
			return "", "it is not of the lease, or gpuard does not know that it is no GPU"
		}
	}

	return drop, ""
}

// isGPUFile reports whether a path may be the device file of one GPU.
func isGPUFile(p string) bool {
	number, ok := strings.CutPrefix(p, "/dev/nvidia")
	if !ok {
		number, ok = strings.CutPrefix(p, "/dev/dri/renderD")
	}
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// judgeQualified judges a name of CDI by its kind. Those of NVIDIA's toolkit are in its pkg/nvcdi.
func judgeQualified(name string) (drop, why string) {
	kind, _, _ := strings.Cut(name, "=")
	switch kind {
	case "nvidia.com/gpu", "runtime.nvidia.com/gpu", "nvidia.com/mig", "amd.com/gpu":
		return inItsPlaceReason, ""
	case "nvidia.com/gds", "nvidia.com/gdrcopy", "nvidia.com/mofed":
		return "", ""
	}
	return "", "what CDI lists under " + kind + " may be devices that are not of the lease"
}

// judgeCapability is why a capability must not be added. Docker gives MKNOD to every container; whoever adds it wants
// to make device files.
func judgeCapability(value string) string {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "CAP_")
		if slices.Contains([]string{"ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "BPF", "MKNOD"}, name) {
			return "with this capability it could open devices that are not of the lease"
		}
	}
	return ""
}

// judgeSecurity is why an option of --security-opt must not be given. Those that are known give no device.
func judgeSecurity(value string) string {
	key, _, _ := strings.Cut(strings.NewReplacer(":", "=").Replace(value), "=")
	if slices.Contains(strings.Fields("apparmor credentialspec label mask no-new-privileges proc-opts seccomp systempaths unmask"), strings.ToLower(strings.TrimSpace(key))) {
		return ""
	}
	return fmt.Sprintf("gpuard does not know what %s lets the container open", key)
}

// judgeAnnotation is why an annotation must not be given: runtimes read devices from some.
func judgeAnnotation(value string) string {
	key, _, _ := strings.Cut(strings.ToLower(value), "=")
	if slices.ContainsFunc([]string{"cdi.k8s.io", "nvidia", "device", "org.systemd.property."}, func(part string) bool { return strings.Contains(key, part) }) {
		return "runtimes read from it devices that are not of the lease"
	}
	return ""
}

// judgeRuntime is why a runtime must not be chosen. NVIDIA's gives the GPUs of NVIDIA_VISIBLE_DEVICES, which gpuard
// sets.
func judgeRuntime(value string) string {
	name := value[strings.LastIndex(value, "/")+1:]
	if slices.Contains(strings.Fields("runc crun youki kata kata-runtime runsc sysbox-runc nvidia nvidia-cdi nvidia-legacy nvidia-container-runtime io.containerd.runc.v2 io.containerd.kata.v2 io.containerd.runsc.v1"), name) {
		return ""
	}
	return "gpuard does not know which devices this runtime gives the container"
}

// judgePID is why processes of the machine must not be seen: without the device cgroup, their files are open to the
// container.
func (f Found) judgePID(value string) string {
	if f.Rootless && value != "" && value != "private" {
		return "of an engine without root's rights, it could reach devices that are not of the lease through other processes"
	}
	return ""
}

// allowsGPUs reports whether a rule such as "c 195:* rwm" covers device files of GPUs: those of NVIDIA (195, and the
// dynamic numbers of nvidia-caps), of DRM (226), or all. What cannot be read may be one.
func allowsGPUs(rule string) bool {
	fields := strings.Fields(strings.ToLower(rule))
	if len(fields) < 2 {
		return true
	}

	major, _, _ := strings.Cut(fields[1], ":")
	n, err := strconv.Atoi(major)

	return fields[0] != "b" && (fields[0] != "c" || err != nil || n == 195 || n == 226 || n >= 234)
}

// judgeEnv judges a value of --env: why it is left out, "" where it stays.
func (form Form) judgeEnv(assignment string) string {
	name, value, given := strings.Cut(assignment, "=")
	if slices.Contains(strings.Fields(engineVariables), name) || strings.HasPrefix(name, "DOCKER_RESOURCE_") {
		return byLeaseReason
	}

	switch name {
	case "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL":
		if !given {
			return "numbers of this machine mean nothing in the container, where its GPUs begin at 0"
		}
		for entry := range strings.SplitSeq(value, ",") {
			if n, err := strconv.Atoi(entry); err == nil && n >= form.count {
				return fmt.Sprintf("the container has %d of the GPUs, and numbers begin at 0 there", form.count)
			}
		}
	}

	return ""
}

// inItsPlaceReason is said of what asks for GPUs without a choice, and is left out.
const inItsPlaceReason = "the lease's GPUs take its place"

// byLeaseReason is said of what chooses GPUs and is left out.
const byLeaseReason = "the lease decides"

// engineVariables are those by which runtimes give a container devices.
const engineVariables = "NVIDIA_VISIBLE_DEVICES AMD_VISIBLE_DEVICES HABANA_VISIBLE_DEVICES ASCEND_VISIBLE_DEVICES MTHREADS_VISIBLE_DEVICES NVIDIA_MIG_CONFIG_DEVICES NVIDIA_MIG_MONITOR_DEVICES NVIDIA_IMEX_CHANNELS"
