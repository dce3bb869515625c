package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

// PCI vendor ids (pci-ids.ucw.cz).
const (
	pciNVIDIA = 0x10de
	pciAMD    = 0x1002
)

// pciCards are those of one vendor on the PCI bus.
func pciCards(s hostinfo.Site, vendor uint16) []hostinfo.Card {
	if s.Cards.Problem != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Cards.Found), func(c hostinfo.Card) bool { return c.Vendor != vendor })
}

// devicesOfVendor are the devices of one vendor that a driver shows.
func devicesOfVendor(s hostinfo.Site, vendor gpu.Vendor) []gpu.Device {
	if s.Machine.Problem != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Machine.Found.Devices), func(d gpu.Device) bool { return d.Vendor != vendor })
}

// nvidiaHere reports any sign of an NVIDIA GPU: the checks of its driver report nothing on other machines.
func nvidiaHere(s hostinfo.Site) bool {
	return len(pciCards(s, pciNVIDIA)) > 0 || len(devicesOfVendor(s, gpu.NVIDIA)) > 0 || s.Driver.Problem == "" && (s.Driver.Found.Module != "" || s.Driver.Found.Tegra || s.Driver.Found.WSL && hasWindowsDriver(s.Driver.Found))
}

// hasWindowsDriver reports whether Windows provides its NVIDIA driver to this system: WSL also runs with other GPUs.
func hasWindowsDriver(d hostinfo.Driver) bool {
	return d.CUDAPath != "" || d.LibraryPath != "" || d.Elsewhere != ""
}

// hasNoGPU reports whether this machine certainly has no GPU of a supported vendor, so that checks of devices do not
// apply.
func hasNoGPU(s hostinfo.Site) bool {
	return s.Cards.Problem == "" && !nvidiaHere(s) && len(pciCards(s, pciAMD)) == 0 && len(devicesOfVendor(s, gpu.AMD)) == 0
}

// okFindingf is ok with a format.
func okFindingf(code, format string, args ...any) []Finding {
	return okFinding(code, fmt.Sprintf(format, args...))
}

// deviceLabel is the name of a device for users: "GPU 3", or "GPU amd:3" where there are several vendors.
func deviceLabel(m gpu.Machine, d gpu.Device) string {
	if slices.ContainsFunc(m.Devices, func(o gpu.Device) bool { return o.Vendor != d.Vendor }) {
		return fmt.Sprintf("GPU %s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprintf("GPU %d", d.Index)
}

// joinDeviceNames joins names: "GPU 0, 1 and 3".
func joinDeviceNames(names []string) string {
	for i := 1; i < len(names); i++ {
		names[i] = strings.TrimPrefix(names[i], "GPU ")
	}
	return prose.JoinWords(names, "and")
}

// addressesText are the PCI addresses of cards.
func addressesText(cards []hostinfo.Card) string {
	return prose.JoinWords(prose.Texts(cards, func(c hostinfo.Card) string { return c.PCI }), "and")
}

// smiDeviceID names a device for nvidia-smi, independent of masks.
func smiDeviceID(d gpu.Device) string {
	if d.PCI != "" {
		return d.PCI
	}
	return fmt.Sprint(d.Index)
}
