package hostinfo

import "gpuard/internal/core/gpu"

// Driver is the NVIDIA driver as the kernel and the loader see it.
type Driver struct {
	// Version of the loaded kernel module (/proc/driver/nvidia/version, /sys/module/nvidia/version); "" when it is
	// not loaded.
	Module string
	// The open kernel modules; nil unknown.
	Open *bool
	// Version of the libnvidia-ml.so.1 that the loader finds, from the file it points to; "" when there is none.
	Library     string
	LibraryPath string
	// The same of libcuda.so.1.
	CUDALibrary string
	CUDAPath    string
	// A libcuda.so.1 in a folder that some systems use and the loader does not search; "" none, or it is found
	// anyway.
	Elsewhere string
	// Loaded kernel modules that also drive NVIDIA cards: "nouveau", "nova_core", "vfio_pci".
	Others []string
	// Windows Subsystem for Linux: the driver is Windows' own.
	WSL bool
	// A Jetson: its GPU is part of the chip, not on the PCI bus.
	Tegra bool
	// The running kernel: "6.8.0-45-generic"; "" unknown.
	Kernel string
	// There is an nvidia module for that kernel, loaded or not; nil unknown.
	Built *bool
	// The firmware makes the kernel load only signed modules.
	SecureBoot bool
	// PCI addresses of the NVSwitches known to the driver.
	Switches []string
	// The driver's configuration disables NVLink (NVreg_NvLinkDisable).
	NoNVLink bool
	// FabricManager: the daemon that sets up NVSwitches runs; nil: there are no NVSwitches, or the machine's processes
	// cannot be seen.
	FabricManager *bool
	// Programs of this user can create missing device files: they run as root, or nvidia-modprobe does it.
	Modprobe bool
}

// Card is a display or 3D controller on the PCI bus.
type Card struct {
	PCI    string // "0000:17:00.0"
	Vendor uint16 // 0x10de is NVIDIA
	Device uint16
	// Kernel module bound to it; "" none.
	Driver string
	// Shows the firmware's screen.
	Boot bool
	// N of /dev/nvidiaN, as NVIDIA's kernel module reports it; nil: unknown to it.
	Minor *int
}

// Node is one device file of a GPU driver.
type Node struct {
	Path     string
	Mode     uint32 // permission bits
	UID, GID uint32
	// Why the caller cannot open it for reading and writing; "" when it can.
	Problem string
	// The problem is a device cgroup: the container or batch job has other devices.
	Kept bool
}

// Library is one shared library in a folder that the loader searches.
type Library struct {
	Name string // "libcudnn.so.9"
	Path string
	// "9.1.0", from the name of the file that the link points to; "" unknown.
	Version string
	// "LD_LIBRARY_PATH", "ld.so.cache", "default".
	From string
}

// Toolkit is one CUDA toolkit.
type Toolkit struct {
	Folder  string
	Version string // "12.4"; "" unknown
	// PATH finds its nvcc.
	OnPath bool
	// It has a compiler; without one it may be only the runtime.
	NVCC bool
	// CUDA_HOME and CUDA_PATH, if they name it.
	Homes []string
}

// Error is one error of NVIDIA's driver in the kernel log.
type Error struct {
	// "0000:17:00": domain, bus and device.
	PCI string
	XID gpu.XID
}
