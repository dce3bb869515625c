package amdgpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// noAnswerError is the error for a kernel that did not answer in time, or for a cancelled ctx.
func noAnswerError(ctx context.Context, at string, limit time.Duration) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("cannot read the AMD GPUs: %w", context.Canceled)
	}
	return &gpu.Unavailable{
		Cause:  gpu.NoAnswer,
		Text:   fmt.Sprintf("cannot read the AMD GPUs: %s during %s", prose.NoAnswerText(limit), at),
		Remedy: "see what the driver says: sudo dmesg | grep -i amdgpu; a GPU that hangs needs a reset or a reboot",
	}
}

// noDeviceError returns the reason why there is no device at all.
func (f fileReader) noDeviceError(hidden int) *gpu.Unavailable {
	switch {
	case hidden > 0:
		return &gpu.Unavailable{
			Cause:  gpu.NoPermission,
			Text:   fmt.Sprintf("cannot use the AMD GPUs: the machine has %d, and none of them is given to this container or job", hidden),
			Remedy: "start the container with them (docker run --device /dev/kfd --device /dev/dri …); in a batch job, ask for a GPU",
		}
	case f.hasFile(driverFolder):
		return &gpu.Unavailable{
			Cause:  gpu.NoDevice,
			Text:   "cannot find an AMD GPU: the amdgpu driver is loaded and has no device",
			Remedy: "see whether the machine has one: lspci -nn -d 1002:; and what the driver says of it: sudo dmesg | grep -i amdgpu",
		}
	}
	if pci := f.findUnclaimed(); pci != "" {
		return &gpu.Unavailable{
			Cause:  gpu.DriverNotLoaded,
			Text:   fmt.Sprintf("cannot use the AMD GPU at %s: the amdgpu kernel driver is not loaded", pci),
			Remedy: "load it: sudo modprobe amdgpu; if that fails: sudo dmesg | grep -i amdgpu",
		}
	}
	return &gpu.Unavailable{Cause: gpu.NoDevice, Text: "cannot find an AMD GPU: the machine has none", Remedy: "see what it has: lspci -nn -d 1002:"}
}

// findUnclaimed returns the address of an AMD display or processing device without a driver, "" if there is none. The
// file modalias has both vendor and class (torvalds/linux drivers/pci/pci-sysfs.c); class 03 is display, 12 is a
// processing accelerator.
func (f fileReader) findUnclaimed() string {
	for _, pci := range f.listNames("sys/bus/pci/devices") {
		alias := f.readShort("sys/bus/pci/devices", pci, "modalias")
		ours := strings.HasPrefix(alias, "pci:v00001002") && (strings.Contains(alias, "bc03") || strings.Contains(alias, "bc12"))
		if ours && !f.hasFile("sys/bus/pci/devices", pci, "driver") {
			return pci
		}
	}
	return ""
}

// refusedReason says why ROCm programs of this user cannot start, "" if they can. ROCm opens /dev/kfd and the render
// node of every GPU that it lists (ROCm/ROCR-Runtime libhsakmt/src/openclose.c and topology.c).
func refusedReason(node string, err error) string {
	const groups = "sudo usermod -aG render,video $USER, then log in again"
	switch {
	case err == nil:
		return ""
	case errors.Is(err, unix.EACCES):
		return fmt.Sprintf("no permission for %s, so ROCm programs cannot start: %s", node, groups)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s is missing, so ROCm programs cannot start: in a container, add --device %s", node, node)
	}
	return fmt.Sprintf("cannot use %s, so ROCm programs cannot start: %s", node, errorReason(err))
}
