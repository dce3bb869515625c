// Package pci finds the GPUs and accelerators of vendors that no reader of ours knows, in the kernel's list of PCI devices.
// It says that they are there and no more: it reads no state of theirs and opens no device.
package pci

import (
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/core/gpu"
)

// Others lists the Intel GPUs and Ascend accelerators below root ("/" for this machine) with their vendor and PCI address
// only. A list that cannot be read is empty: these devices are worth a remark, not an error. Two look alike and are left
// out: Intel's NPUs, which are accelerators (class 0x12) and follow none of its GPU variables, and Huawei's management
// chips, which are displays (19e5:1711). Source: pci.ids, and the Linux kernel's include/linux/pci_ids.h for classes.
func Others(root string) []gpu.Device {
	folders, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	if err != nil {
		return nil
	}
	var found []gpu.Device
	for _, folder := range folders {
		class, vendor := line(folder, "class"), line(folder, "vendor")
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

// line is a file of one short line, or "" when it cannot be read.
func line(folder, name string) string {
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(string(data)))
}
