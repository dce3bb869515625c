package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

func deviceNodes() Check {
	return Check{Page{
		Code:  "device-nodes",
		Title: "The driver's device files are there and this user may open them",
		Text: `A CUDA program opens /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0 and so on. Without /dev/nvidia-uvm nvidia-smi works and CUDA
fails with an unknown error: it is made by the first program that may do so, which is nvidia-modprobe where that acts as root.

Normally everybody may open these files. Where an administrator gave them to a group, a user has to be in it, and log in again after
joining. In a container or a batch job the files are those that it was given: start the container with the GPUs, or ask for one in
the job. For AMD, /dev/kfd and /dev/dri/renderD* belong to the groups render and video.`,
		From: []string{"https://docs.nvidia.com/cuda/cuda-installation-guide-linux/ (device node verification)", "NVIDIA/nvidia-modprobe: README",
			"https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html"},
	}, true, checkNodes}
}

func checkNodes(s hostinfo.Site) []Finding {
	const code = "device-nodes"
	nvidia := s.Driver.Problem == "" && s.Driver.Found.Module != "" && len(pciCards(s, pciNVIDIA)) > 0
	switch {
	case s.Nodes.Problem != "":
		return unknownFinding(code, "the device files", s.Nodes.Problem, "")
	case s.Driver.Found.WSL, !nvidia && !slices.ContainsFunc(s.Nodes.Found, func(n hostinfo.Node) bool { return n.Problem != "" }):
		return okFinding(code, "no device file is missing or closed")
	}

	var found []Finding
	if nvidia {
		found = nvidiaNodes(code, s)
	}

	if closed := nodesOf(s, func(n hostinfo.Node) bool {
		return !strings.HasPrefix(n.Path, "/dev/nvidia") && n.Problem != "" && !n.Kept
	}); len(closed) > 0 && len(pciCards(s, pciAMD)) > 0 {
		f := Finding{code, Info, fmt.Sprintf("this user may not open %s: %s", nodePathsText(closed), closed[0].Problem), "ROCm programs cannot use AMD's GPUs.", "sudo usermod -aG render,video $USER; then log in again"}
		if !nvidiaHere(s) && s.Container == "" {
			f.Severity = Warning
		}
		found = append(found, f)
	}

	if len(found) > 0 {
		return found
	}

	return okFindingf(code, "this user may open %s", nodePathsText(nodesOf(s, func(n hostinfo.Node) bool { return n.Problem == "" })))
}

// nvidiaNodes reports what is wrong with the device files of a loaded driver; nil when nothing is.
func nvidiaNodes(code string, s hostinfo.Site) []Finding {
	own := nodesOf(s, func(n hostinfo.Node) bool { return strings.HasPrefix(n.Path, "/dev/nvidia") })
	cardFiles := slices.DeleteFunc(slices.Clone(own), func(n hostinfo.Node) bool { return strings.Trim(n.Path[len("/dev/nvidia"):], "0123456789") != "" })
	kept := slices.DeleteFunc(slices.Clone(cardFiles), func(n hostinfo.Node) bool { return !n.Kept })
	closed := slices.DeleteFunc(slices.Clone(own), func(n hostinfo.Node) bool { return n.Problem == "" || n.Kept })
	var missing []string
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		if !slices.ContainsFunc(own, func(n hostinfo.Node) bool { return n.Path == path }) {
			missing = append(missing, path)
		}
	}

	const why = "CUDA programs open these files; without them they fail, or find no device."

	switch {
	case s.Container != "" && len(cardFiles) == 0:
		return []Finding{{code, Error, "this container was given no GPU: it has no /dev/nvidia0 or other card file", why, startAdvice(s.Container)}}
	case len(cardFiles) > 0 && len(kept) == len(cardFiles):
		return []Finding{{code, Error, "a device cgroup keeps every GPU from this process", why, "in a batch job ask for a GPU (Slurm: --gpus-per-node=1); in a container start it with GPUs, again after systemctl daemon-reload"}}
	case len(closed) > 0:
		return []Finding{deniedFinding(code, s, closed, why)}
	case len(missing) > 0 && (!s.Driver.Found.Modprobe || s.Container != ""):
		f := Finding{code, Error, prose.JoinWords(missing, "and") + " is missing, and nvidia-modprobe cannot make it for this user", why, "sudo nvidia-modprobe -u -c=0 (of the package nvidia-modprobe, which makes them by itself from then on)"}
		if s.Container != "" {
			f.Do = startAdvice(s.Container) + ", and not with single files of /dev"
		}
		return []Finding{f}
	}

	return nil
}

// deniedFinding reports files whose permissions exclude this user. If only one card's file does, the other cards still
// work.
func deniedFinding(code string, s hostinfo.Site, closed []hostinfo.Node, why string) Finding {
	n := closed[0]
	f := Finding{code, Error, fmt.Sprintf("this user may not open %s (mode %04o, user %d, group %d)", nodePathsText(closed), n.Mode, n.UID, n.GID), why,
		fmt.Sprintf("join the group that may: sudo usermod -aG $(stat -c %%G %s) $USER; then log in again", n.Path)}

	if n.Mode&0o060 != 0o060 || n.GID == 0 {
		f.Do = "let all users open them, as the driver does by default: sudo chmod a+rw " + strings.ReplaceAll(nodePathsText(closed), " and ", " ")
	}

	if len(devicesOfVendor(s, gpu.NVIDIA)) > 0 && !slices.ContainsFunc(closed, func(n hostinfo.Node) bool { return n.Path == "/dev/nvidiactl" || n.Path == "/dev/nvidia-uvm" }) {
		f.Severity = Warning
	}

	return f
}

func nodesOf(s hostinfo.Site, want func(hostinfo.Node) bool) []hostinfo.Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes.Found), func(n hostinfo.Node) bool { return !want(n) })
}

func nodePathsText(nodes []hostinfo.Node) string {
	return prose.JoinWords(prose.Texts(nodes, func(n hostinfo.Node) string { return n.Path }), "and")
}

func driverLibrary() Check {
	return Check{Page{
		Code:  "driver-library",
		Title: "The loader finds the driver's CUDA library",
		Text: `CUDA programs load libcuda.so.1, which belongs to the driver and not to the CUDA toolkit or to a wheel. Some distributions have it in a package of
its own (libcuda1 of Debian, libnvidia-compute of Ubuntu): then nvidia-smi works and CUDA programs find no device. The toolkit's folder
lib64/stubs has a stand-in for building programs only; with it in LD_LIBRARY_PATH programs fail.

Into containers the NVIDIA container toolkit brings the library from the host, when NVIDIA_DRIVER_CAPABILITIES has compute (the
default is utility and compute).`,
		From: []string{"https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html (driver capabilities)", installGuide, "https://man7.org/linux/man-pages/man8/ld.so.8.html", "https://docs.nvidia.com/cuda/wsl-user-guide/", "NixOS/nixpkgs: pkgs/build-support/add-driver-runpath"},
	}, true, checkLibrary}
}

func checkLibrary(s hostinfo.Site) []Finding {
	const code = "driver-library"
	d := s.Driver.Found
	const why = "CUDA programs load libcuda.so.1 first; without it they find no device."

	switch {
	case s.Driver.Problem != "":
		return unknownFinding(code, "the driver's libraries", s.Driver.Problem, "")
	case !nvidiaHere(s):
		return okFinding(code, "not needed: there is no GPU of NVIDIA")
	case strings.Contains(d.CUDAPath, "/stubs/"):
		return []Finding{{code, Error, fmt.Sprintf("the loader takes the stand-in %s for the driver's library", d.CUDAPath), "It is for building programs; with it CUDA reports error 34 (stub library).",
			"take the stubs folder out of LD_LIBRARY_PATH (echo $LD_LIBRARY_PATH) or out of /etc/ld.so.conf.d"}}
	case d.WSL && s.Container == "" && s.Machine.Problem != "" && d.CUDAPath != "" && !strings.HasPrefix(d.CUDAPath, "/usr/lib/wsl/"):
		return []Finding{{code, Error, fmt.Sprintf("the loader takes %s, and under WSL the driver is that of Windows, in /usr/lib/wsl/lib", d.CUDAPath), "A driver of Linux that is installed under WSL hides the one that works.",
			"take the Linux driver out: sudo apt-get purge 'nvidia-driver-*' 'libnvidia-*'; then in Windows: wsl --shutdown"}}
	case d.CUDAPath != "":
		return okFindingf(code, "libcuda.so.1 is %s", d.CUDAPath)
	case d.Elsewhere != "" && len(devicesOfVendor(s, gpu.NVIDIA)) == 0:
		return []Finding{{code, Error, "libcuda.so.1 is in " + path.Dir(d.Elsewhere) + ", where the loader does not look by itself", why, "export LD_LIBRARY_PATH=" + path.Dir(d.Elsewhere) + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"}}
	case d.Module == "" && len(devicesOfVendor(s, gpu.NVIDIA)) == 0:
		return []Finding{{code, Info, "the driver's library libcuda.so.1 is not here, and its kernel module is not loaded", "", ""}}
	case len(devicesOfVendor(s, gpu.NVIDIA)) > 0 && d.LibraryPath == "":
		// The driver answers through its other library, so this system has another way to find libraries.
		return unknownFinding(code, "libcuda.so.1", "this system's loader looks in places that gpuard does not know", "")
	case s.Container != "" && s.Nodes.Problem == "" && !slices.ContainsFunc(s.Nodes.Found, func(n hostinfo.Node) bool { return strings.HasPrefix(n.Path, "/dev/nvidia") }):
		return []Finding{{code, Info, "the container has no libcuda.so.1: it was given no GPU", "", ""}}
	case s.Container != "":
		return []Finding{{code, Error, "the container has no libcuda.so.1", why, withCompute(s.Container)}}
	}

	return []Finding{{code, Error, "the loader finds no libcuda.so.1, and NVIDIA's driver " + d.Module + " is loaded", why,
		"install the driver's CUDA library, of the same version (Debian: libcuda1; Ubuntu: libnvidia-compute-" + majorOf(d.Module) + "; RHEL, Fedora: nvidia-driver-cuda-libs)"}}
}

// withCompute says how a container gets the driver's libraries.
func withCompute(container string) string {
	switch container {
	case "apptainer":
		return startAdvice(container)
	case "docker", "podman":
		return startAdvice(container) + " -e NVIDIA_DRIVER_CAPABILITIES=compute,utility"
	}
	return startAdvice(container) + ", and set NVIDIA_DRIVER_CAPABILITIES=compute,utility in it"
}

// majorOf is "550" of "550.54.15".
func majorOf(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}
