// Package devfile decides from the files that a process has open whether it has a device open. That proves that the
// driver means this very process: a driver numbers processes as the first PID namespace of the machine does, and its
// numbers may be those of other processes elsewhere.
//
//	if !devfile.HasOpen(device, []string{"/dev/nvidiactl", "/dev/nvidia0"}) {
//		return errors.New("it does not use the device")
//	}
//
// It must not read processes: the caller passes in the targets of /proc/PID/fd and the files of /proc/PID/maps.
package devfile

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// HasOpen reports whether one of the files is that of the device. Where the device's number is not known, every file of
// its vendor's devices counts. nvidia-uvm and kfd belong to all devices of a vendor: with a known number they prove
// nothing, because the process may use another one. In WSL there is no file of one device, and the shared one counts.
func HasOpen(d gpu.Device, files []string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		name, found := nameBelowDev(file)
		return found && isFileOf(d, name)
	})
}

// FileName is the file of a device, for messages.
func FileName(d gpu.Device) string {
	number := "N"
	if d.Minor != nil {
		number = fmt.Sprint(*d.Minor)
	}
	return "/dev/" + d.Vendor.NodePrefix() + number
}

// IsDevicePath reports whether a path may be one of a device of any vendor.
func IsDevicePath(path string) bool {
	_, found := nameBelowDev(path)
	return found
}

// nameBelowDev is what follows /dev/ in a path. In a changed root folder (chroot) there is more before it.
func nameBelowDev(path string) (name string, found bool) {
	path = strings.TrimSuffix(path, " (deleted)")
	i := strings.LastIndex(path, "/dev/")
	if i < 0 {
		return "", false
	}

	return path[i+len("/dev/"):], true
}

func isFileOf(d gpu.Device, name string) bool {
	prefix := d.Vendor.NodePrefix()
	if prefix == "" {
		return false
	}
	if d.Vendor == gpu.NVIDIA && name == windowsFile {
		return true
	}
	if d.Minor != nil {
		return name == prefix+fmt.Sprint(*d.Minor)
	}

	number, numbered := strings.CutPrefix(name, prefix)

	return numbered && number != "" && strings.Trim(number, "0123456789") == "" || name == d.Vendor.SharedNode()
}

// windowsFile is the only file of GPUs in WSL, for all of them (microsoft/WSL2-Linux-Kernel drivers/hv/dxgkrnl).
const windowsFile = "dxg"
