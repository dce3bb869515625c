package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

func driverChecks() []Check {
	return []Check{gpuPresent(), driverBound(), driverLoaded(), deviceNodes(), driverLibrary(), libraryVersion(), devicesShown(), fabricManager()}
}

const installGuide = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

func gpuPresent() Check {
	return Check{Page{
		Code:  "gpu-present",
		Title: "A GPU of NVIDIA or AMD is in the machine",
		Text: `GPU programs need a device, and the first question is whether the machine has one at all. Doctor looks at the PCI bus as the
kernel lists it, which needs no driver, and at what the drivers show.

A card that is in the machine and not on the bus is not seated well, lacks its power cable, is switched off in the firmware, or, in
a virtual machine, was not passed through. ` + "`lspci -nn | grep -iE 'vga|3d|display'`" + ` shows what the kernel sees.`,
		From: []string{"torvalds/linux: Documentation/ABI/testing/sysfs-bus-pci", "https://pci-ids.ucw.cz"},
	}, true, checkGPUPresence}
}

func checkGPUPresence(s hostinfo.Site) []Finding {
	const code = "gpu-present"
	m := s.Machine
	onBus := len(pciCards(s, pciNVIDIA)) + len(pciCards(s, pciAMD))
	switch {
	case m.Problem == "" && len(m.Found.Devices) > 0:
		return okFindingf(code, "%s shown by the drivers", prose.CountNoun(len(m.Found.Devices), "GPU"))
	case onBus > 0:
		return okFindingf(code, "%s on the PCI bus", prose.CountNoun(onBus, "GPU"))
	case s.Driver.Found.Tegra:
		return unknownFinding(code, "the GPU", jetsonReason, option.Expand("{gpuard doctor} {run}"))
	case !hasNoGPU(s) && nvidiaHere(s):
		return okFindingf(code, "NVIDIA's driver is here")
	case s.Cards.Problem != "":
		return unknownFinding(code, "the PCI bus", s.Cards.Problem, "")
	}

	if s.Container != "" && strings.Contains(strings.ToLower(s.Driver.Found.Kernel), "microsoft") {
		return []Finding{{code, Error, "this container under WSL was given no GPU", "Programs that ask for a GPU find none and stop, or run on the CPU.", startAdvice(s.Container)}}
	}
	if s.Driver.Found.WSL {
		return []Finding{{code, Error, "Windows gives this system no driver of NVIDIA", "Programs that ask for a GPU find none and stop, or run on the CPU.",
			option.Expand("install NVIDIA's driver in Windows, not here, then in Windows: wsl --shutdown; without a GPU of NVIDIA: {gpuard run} {cpu} -- COMMAND")}}
	}

	return []Finding{{code, Error, "there is no GPU of NVIDIA or AMD on the PCI bus", "Programs that ask for a GPU find none and stop, or run on the CPU.",
		option.Expand("use a machine with a GPU, or run on the CPU: {gpuard run} {cpu} -- COMMAND")}}
}

// jetsonReason is why GPUs inside NVIDIA's Tegra chips cannot be read.
const jetsonReason = "this is a Jetson, whose GPU is a part of the chip, and gpuard reads GPUs on the PCI bus"

func driverBound() Check {
	return Check{Page{
		Code:  "driver-bound",
		Title: "The vendor's driver has the card",
		Text: `One kernel driver has a card. The free driver nouveau (and its successor nova) serves displays and no CUDA, and a card that
vfio-pci has is given to virtual machines: NVIDIA's driver cannot take it as long as the other one has it. Nouveau often has the cards
after a kernel update, when NVIDIA's module was not built for the new kernel.

Install NVIDIA's driver, keep nouveau away by ` + "`blacklist nouveau`" + ` in /etc/modprobe.d, make the initial RAM disk anew and reboot. For a card of
vfio-pci, remove its ids from the kernel's command line or /etc/modprobe.d.`,
		From: []string{installGuide, "torvalds/linux: Documentation/driver-api/vfio.rst"},
	}, true, checkBoundDriver}
}

func checkBoundDriver(s hostinfo.Site) []Finding {
	const code = "driver-bound"
	if s.Cards.Problem != "" {
		return unknownFinding(code, "which driver has the cards", s.Cards.Problem, "")
	}

	own, others := pciCards(s, pciNVIDIA), map[string][]hostinfo.Card{}
	for _, c := range own {
		if c.Driver != "" && !takenByNVIDIA(c.Driver) {
			others[c.Driver] = append(others[c.Driver], c)
		}
	}

	var found []Finding
	for _, driver := range slices.Sorted(maps.Keys(others)) {
		found = append(found, foreignDriverFinding(s, code, driver, others[driver], len(own)))
	}

	if amd := pciCards(s, pciAMD); len(amd) > 0 && len(devicesOfVendor(s, gpu.AMD)) == 0 && !slices.ContainsFunc(amd, func(c hostinfo.Card) bool { return c.Driver == "amdgpu" }) && len(own) == 0 {
		found = append(found, Finding{code, Error, fmt.Sprintf("no amdgpu driver has the AMD GPU at %s", addressesText(amd)), "ROCm programs need the amdgpu driver.",
			"sudo modprobe amdgpu; if that fails: sudo dmesg | grep -i amdgpu"})
	}

	if len(found) > 0 {
		return found
	}

	return okFinding(code, "no other driver has a card")
}

// foreignDriverFinding reports cards of NVIDIA that another driver has.
func foreignDriverFinding(s hostinfo.Site, code, driver string, has []hostinfo.Card, all int) Finding {
	f := Finding{Code: code, Severity: Warning, Seen: fmt.Sprintf("the driver %s has the NVIDIA GPU at %s", prose.Brief(driver), addressesText(has))}
	if len(has) == all {
		f.Severity = Error
	}

	switch {
	case driver == "vfio-pci":
		f.Why = "A card of vfio-pci belongs to virtual machines; programs of this system cannot use it."
		f.Do = "if no virtual machine needs it, take its ids out of the kernel's command line and /etc/modprobe.d (grep -r vfio-pci /etc/modprobe.d /proc/cmdline), and reboot"
		if len(has) < all {
			f.Severity = Info
		}
	case strings.EqualFold(driver, "nouveau"), strings.HasPrefix(strings.ToLower(driver), "nova"):
		f.Why = "It serves displays and runs no CUDA program, and NVIDIA's driver cannot take the card meanwhile."
		f.Do = "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf; sudo update-initramfs -u (Fedora, RHEL: sudo dracut --force); sudo reboot"

		switch d := s.Driver.Found; {
		case d.Built != nil && !*d.Built && hasDriver(d):
			f.Seen += ", and NVIDIA's driver, which is installed, has no module for the kernel " + prose.Brief(d.Kernel)
			f.Do = rebuildModule + "sudo reboot"
		case !hasDriver(d):
			f.Do = "install NVIDIA's driver, then: " + f.Do
		}
		if len(has) < all && !slices.ContainsFunc(has, func(c hostinfo.Card) bool { return !c.Boot }) {
			// The one that drives the screen may have another driver.
			f.Severity = Info
		}
	default:
		f.Why = "NVIDIA's driver cannot take the card meanwhile."
		f.Do = fmt.Sprintf("see why: lspci -nnk -s %s; then bind it to nvidia", has[0].PCI)
	}

	return f
}

// rebuildModule builds the module of an installed driver for the running kernel.
const rebuildModule = "build it: sudo dkms autoinstall (Fedora: sudo akmods --force; where dkms status has no nvidia, install the driver again); then: "

// hasDriver reports whether NVIDIA's driver was installed, with or without a module.
func hasDriver(d hostinfo.Driver) bool { return d.LibraryPath != "" || d.CUDAPath != "" }

// takenByNVIDIA reports whether a card's kernel driver is NVIDIA's. nvidiafb is the kernel's own, for screens.
func takenByNVIDIA(driver string) bool {
	return driver == "nvidia" || strings.HasPrefix(driver, "nvidia-")
}

func driverLoaded() Check {
	return Check{Page{
		Code:  "driver-loaded",
		Title: "NVIDIA's kernel module is loaded",
		Text: `Every CUDA program and nvidia-smi talk to the kernel module nvidia. It is missing when the driver was never installed, when it was
not built for a new kernel (look at ` + "`dkms status`" + `), or when Secure Boot refuses an unsigned module.

` + "`sudo modprobe nvidia`" + ` loads it, and ` + "`sudo dmesg | grep -iE 'nvidia|nvrm'`" + ` says why it could not. In a container the module of the host counts:
load it there.`,
		From: []string{installGuide, "NVIDIA/open-gpu-kernel-modules: README.md"},
	}, true, checkLoadedModule}
}

func checkLoadedModule(s hostinfo.Site) []Finding {
	const code = "driver-loaded"
	d, own := s.Driver.Found, pciCards(s, pciNVIDIA)
	switch {
	case s.Driver.Problem == "" && d.WSL:
		return okFinding(code, "the driver is that of Windows")
	case s.Driver.Problem == "" && d.Module != "":
		kind := "loaded"
		if d.Open != nil && *d.Open {
			kind = "loaded (open kernel modules)"
		}
		return okFindingf(code, "NVIDIA's driver %s is %s", d.Module, kind)
	case len(devicesOfVendor(s, gpu.NVIDIA)) > 0:
		return okFindingf(code, "NVIDIA's driver %s answers", s.Machine.Found.Driver)
	case s.Driver.Problem != "":
		return unknownFinding(code, "the kernel's modules", s.Driver.Problem, "")
	case len(own) == 0:
		return okFinding(code, "not needed: no GPU of NVIDIA is on the PCI bus")
	case !slices.ContainsFunc(own, func(c hostinfo.Card) bool { return c.Driver == "" || takenByNVIDIA(c.Driver) }):
		return []Finding{{code, Info, "NVIDIA's kernel module is not loaded: another driver has the cards", "", ""}}
	}

	f := Finding{code, Error, fmt.Sprintf("%s on the PCI bus (%s), and NVIDIA's kernel module is not loaded", prose.CountNoun(len(own), "NVIDIA GPU"), addressesText(own)),
		"Without it no program reaches the GPU.", "install NVIDIA's driver (" + installGuide + ") and reboot"}

	switch {
	case s.Container != "":
		f.Do = "load it on the host, not in this container: sudo modprobe nvidia"
	case hasDriver(d) && d.Built != nil && !*d.Built:
		f.Seen += ": it was not built for the kernel " + prose.Brief(d.Kernel)
		f.Do = rebuildModule + "sudo modprobe nvidia"
	case hasDriver(d) && d.Built != nil && d.SecureBoot:
		f.Do = "sudo modprobe nvidia; if it says “Key was rejected by service”, Secure Boot wants the key that signed the module: sudo mokutil --import /var/lib/dkms/mok.pub (Ubuntu: sudo update-secureboot-policy --enroll-key), and reboot"
	case hasDriver(d):
		f.Do = "sudo modprobe nvidia; if that fails, this says why: sudo dmesg | grep -iE 'nvidia|nvrm'; dkms status; mokutil --sb-state"
	}

	return []Finding{f}
}

func devicesShown() Check {
	return Check{Page{
		Code:  "devices-shown",
		Title: "The driver shows every card that is on the PCI bus",
		Text: `A card can be on the PCI bus and missing in nvidia-smi: its start failed, it is too old or too new for the installed driver, its power cable
is loose, or the firmware gave it no room in the address space. The driver says why in the kernel's log when it is loaded.

In a container or a batch job it is usual that only some cards are shown; doctor says so as information only.`,
		From: []string{"NVIDIA/open-gpu-kernel-modules: README.md (supported GPUs)", "https://docs.nvidia.com/deploy/xid-errors/", "torvalds/linux: Documentation/ABI/testing/sysfs-bus-pci"},
	}, true, checkShownDevices}
}

func checkShownDevices(s hostinfo.Site) []Finding {
	const code = "devices-shown"
	switch own := pciCards(s, pciNVIDIA); {
	case s.Cards.Problem != "":
		return unknownFinding(code, "the PCI bus", s.Cards.Problem, "")
	case len(own) == 0:
		return okFinding(code, "no GPU of NVIDIA is on the PCI bus")
	case s.Machine.Problem != "" && !showsNone(s):
		return unknownFinding(code, "what the driver shows", s.Machine.Problem, "")
	}

	var bound, missing []hostinfo.Card
	kept := s.Container != ""
	for _, c := range pciCards(s, pciNVIDIA) {
		if c.Driver != "" && !takenByNVIDIA(c.Driver) {
			continue
		}
		bound = append(bound, c)
		if !slices.ContainsFunc(s.Machine.Found.Devices, func(d gpu.Device) bool { return d.PCI == c.PCI }) {
			missing = append(missing, c)
			kept = kept || isDeniedByCgroup(s, c)
		}
	}

	// A lost device may not report its address.
	devices := devicesOfVendor(s, gpu.NVIDIA)
	switch {
	case len(missing) == 0, len(devices) >= len(bound):
		return okFinding(code, "every NVIDIA GPU on the PCI bus is shown")
	case slices.ContainsFunc(devices, func(d gpu.Device) bool { return d.PCI == "" }):
		return unknownFinding(code, "which card is which", "the driver does not report the address of one", "")
	case kept:
		return []Finding{{code, Info, fmt.Sprintf("the GPU at %s is not shown here: this container or job was not given it", addressesText(missing)), "", ""}}
	}

	f := Finding{code, Warning, fmt.Sprintf("the driver does not show the GPU at %s, which is on the PCI bus", addressesText(missing)),
		"Programs can use the others only, and numbers of GPUs have moved.",
		"see what the driver said of it: sudo dmesg | grep -iE 'nvrm|" + strings.ToLower(missing[0].PCI) + "'; lspci -vv -s " + missing[0].PCI}

	if len(devices) == 0 && len(devicesOfVendor(s, gpu.AMD)) == 0 {
		f.Severity, f.Why = Error, "The driver could not start it: it is not made for this GPU, or the GPU is broken or lacks power."
	}

	return []Finding{f}
}

// showsNone reports whether NVIDIA's driver runs and reports that it has no device.
func showsNone(s hostinfo.Site) bool {
	return strings.Contains(s.Machine.Problem, "reports no device") || strings.Contains(s.Machine.Problem, "No devices were found")
}

// isDeniedByCgroup reports whether a device cgroup denies this process a card. Where the module does not say which
// device file is the card's, any denied file counts.
func isDeniedByCgroup(s hostinfo.Site, c hostinfo.Card) bool {
	return s.Nodes.Problem == "" && slices.ContainsFunc(s.Nodes.Found, func(n hostinfo.Node) bool {
		return n.Kept && (c.Minor == nil || n.Path == fmt.Sprintf("/dev/nvidia%d", *c.Minor))
	})
}
