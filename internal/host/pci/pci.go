// Package pci finds GPUs and accelerators in the kernel's list of PCI devices: those of vendors without a reader in
// gpuard, and all others too, even without a driver. It only lists them: it reads no state and opens no device.
//
//	cards, err := pci.ListCards("/")
package pci

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

// PCI vendor ids (pci.ids).
const (
	nvidia = 0x10de
	amd    = 0x1002
)

// ListOtherDevices lists the Intel GPUs and Ascend accelerators below root ("/" for this machine), only with vendor and
// PCI address. If the list cannot be read, it is empty: gpuard only mentions these devices. Similar devices are left
// out: Intel's NPUs, which are accelerators (class 0x12) and obey none of Intel's GPU variables, and Huawei's
// management chips, which are displays (19e5:1711). Source: pci.ids, and the Linux kernel's include/linux/pci_ids.h for
// classes.
func ListOtherDevices(root string) []gpu.Device {
	folders, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	if err != nil {
		return nil
	}

	var found []gpu.Device
	for _, folder := range folders {
		class, vendor := readLine(folder, "class"), readLine(folder, "vendor")
		d := gpu.Device{Index: len(found), PCI: filepath.Base(folder)}
		switch {
		case vendor == "0x8086" && strings.HasPrefix(class, "0x03"):
			d.Vendor = gpu.Intel
		case vendor == "0x19e5" && strings.HasPrefix(class, "0x1200"):
			d.Vendor = gpu.Ascend
		default:
			continue
		}
		found = append(found, d)
	}

	return found
}

// ListCards lists the display controllers and accelerators below root ("/" for this machine) by address, with any
// driver or none. It leaves out virtual functions (SR-IOV). The error says that the list cannot be read: the machine
// has no PCI, or sysfs is not mounted.
func ListCards(root string) ([]hostinfo.Card, error) {
	entries, err := os.ReadDir(filepath.Join(root, "sys/bus/pci/devices"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the PCI devices: %w", err)
	}

	var found []hostinfo.Card
	for _, e := range entries {
		folder := filepath.Join(root, "sys/bus/pci/devices", e.Name())
		class := readLine(folder, "class")
		c := hostinfo.Card{PCI: e.Name(), Vendor: parseID(readLine(folder, "vendor")), Device: parseID(readLine(folder, "device")), Boot: readLine(folder, "boot_vga") == "1"}
		accelerator := strings.HasPrefix(class, "0x1200") && c.Vendor != 0x8086
		if _, err := os.Lstat(filepath.Join(folder, "physfn")); err == nil || !accelerator && !strings.HasPrefix(class, "0x03") {
			continue
		}

		if driver, err := os.Readlink(filepath.Join(folder, "driver")); err == nil {
			c.Driver = filepath.Base(driver)
		}

		found = append(found, c)
	}

	return found, nil
}

// HasNoGPU reports that the machine below root certainly has no GPU of NVIDIA or AMD. The GPUs of WSL (/dev/dxg) and of
// boards that are described by a device tree, such as NVIDIA's Tegra, are no PCI devices.
func HasNoGPU(root string) bool {
	for _, path := range []string{"dev/dxg", "proc/device-tree", "sys/firmware/devicetree"} {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return false
		}
	}
	cards, err := ListCards(root)
	return err == nil && !slices.ContainsFunc(cards, func(c hostinfo.Card) bool { return c.Vendor == nvidia || c.Vendor == amd })
}

// parseID parses a PCI id such as "0x10de"; 0 if it is not one.
func parseID(s string) uint16 {
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// readLine returns the content of a file of one line; "" if it cannot be read.
func readLine(folder, name string) string {
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(string(data)))
}
