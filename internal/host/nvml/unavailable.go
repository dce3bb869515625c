package nvml

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

const installRemedy = "install NVIDIA's driver and reboot; in a container, start it with the GPUs (docker run --gpus all …); without a GPU, use --cpu"

func missingError(loader error) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.LibraryMissing,
		Text:   fmt.Sprintf("cannot find the NVIDIA driver's library: %v", loader),
		Remedy: installRemedy,
	}
}

func unloadableError(loader error) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.LibraryUnloadable,
		Text:   fmt.Sprintf("cannot load the NVIDIA driver's library: %v", loader),
		Remedy: "see which file is found: ldconfig -p | grep nvidia-ml; echo $LD_LIBRARY_PATH; then install the driver again",
	}
}

// CrashedError is the reason why a library is not used that has crashed. how says where.
func CrashedError(how string) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.LibraryCrashed,
		Text:   "cannot use the NVIDIA driver's library: " + how,
		Remedy: "see which file it is: ldconfig -p | grep nvidia-ml; then install the driver again; in WSL: wsl --update",
	}
}

func tooOldError(library, function string) *gpu.Unavailable {
	return &gpu.Unavailable{
		Cause:  gpu.LibraryUnloadable,
		Text:   fmt.Sprintf("cannot use %s: it has no %s, so it is too old or not NVIDIA's", library, function),
		Remedy: "see which file is found: ldconfig -p | grep nvidia-ml; then update the driver",
	}
}

func noDeviceError(driver string) *gpu.Unavailable {
	text, remedy := explainCause(gpu.NoDevice)
	if driver != "" {
		text += " (driver " + driver + ")"
	}
	return &gpu.Unavailable{Cause: gpu.NoDevice, Text: text, Remedy: remedy}
}

// noAnswerError is the error for a driver that did not answer in time, or for a cancelled ctx.
func noAnswerError(ctx context.Context, at string, limit time.Duration) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("cannot read the GPUs: %w", context.Canceled)
	}
	return &gpu.Unavailable{
		Cause:  gpu.NoAnswer,
		Text:   fmt.Sprintf("cannot read the GPUs: %s during %s", prose.NoAnswerText(limit), at),
		Remedy: "see what the driver says: sudo dmesg | grep -iE 'nvrm|xid'; a hung GPU needs a reset (nvidia-smi --gpu-reset) or a reboot",
	}
}

// refusedError turns the code of nvmlInit or nvmlDeviceGetCount into a reason. library is the version of the library,
// "" if unknown. node is the error of opening /dev/nvidiactl: the library also returns "unknown error" when a container
// has lost the permission to open it (NVIDIA/cloud-native-docs container-toolkit/troubleshooting.md).
func refusedError(s returnCode, words, library string, node error) *gpu.Unavailable {
	cause := gpu.DriverError
	switch {
	case s == driverNotLoaded:
		cause = gpu.DriverNotLoaded
	case s == versionMismatch:
		cause = gpu.VersionMismatch
	case s == libraryNotFound:
		cause = gpu.LibraryUnloadable
	case s == gpuNotFound:
		cause = gpu.NoDevice
	case s == noPermission, errors.Is(node, fs.ErrPermission):
		cause = gpu.NoPermission
	case errors.Is(node, fs.ErrNotExist), errors.Is(node, syscall.ENXIO), errors.Is(node, syscall.ENODEV):
		cause = gpu.DriverNotLoaded
	}

	if library != "" && cause == gpu.VersionMismatch {
		words += ", the library is " + library
	}

	text, remedy := explainCause(cause)

	return &gpu.Unavailable{Cause: cause, Text: fmt.Sprintf("%s: %s (NVML %d)", text, words, s), Remedy: remedy}
}

// explainCause returns the message and the remedy for each cause that the driver reports.
func explainCause(cause gpu.Cause) (text, remedy string) {
	switch cause {
	case gpu.DriverNotLoaded:
		return "cannot use the GPUs: the NVIDIA kernel driver is not loaded",
			"load it: sudo modprobe nvidia; if that fails: sudo dmesg | grep -i nvrm; in a container, start it with the GPUs"
	case gpu.VersionMismatch:
		return "cannot use the GPUs: the driver's library and its kernel module are of different versions",
			"reboot; a driver update replaced one of the two (compare: cat /proc/driver/nvidia/version)"
	case gpu.LibraryUnloadable:
		return "cannot use the driver's library: it is a stand-in for building programs, or a part of it is missing",
			"take the toolkit's stubs folder out of LD_LIBRARY_PATH, or install the driver again"
	case gpu.NoDevice:
		return "cannot find a GPU: the NVIDIA driver runs and reports no device",
			"see whether the machine has one: lspci -nn | grep -i nvidia; and what the driver says of it: sudo dmesg | grep -i nvrm"
	case gpu.NoPermission:
		return "cannot use the GPUs: no permission for the driver's device nodes",
			"see who has permission: ls -l /dev/nvidia*; id; in a container, restart it with the GPUs; in a batch job, ask for a GPU"
	}
	return "cannot use the GPUs: the NVIDIA driver reports an error",
		"see what it says: sudo dmesg | grep -iE 'nvrm|xid'; nvidia-smi"
}
