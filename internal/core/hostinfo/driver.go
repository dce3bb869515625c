package hostinfo

import "gpuard/internal/core/gpu"

// Driver is the NVIDIA driver as the kernel and the loader see it.
type Driver struct {
	Module      string // version of the loaded kernel module (/proc/driver/nvidia/version, /sys/module/nvidia/version); "" when it is not loaded
	Open        *bool  // the open kernel modules; nil unknown
	Library     string // version of the libnvidia-ml.so.1 that the loader finds, from the file it points to; "" when there is none
	LibraryPath string
	CUDALibrary string // the same of libcuda.so.1
	CUDAPath    string
	Elsewhere   string   // a libcuda.so.1 in a folder that some systems use and the loader does not search; "" none, or it is found anyway
	Others      []string // loaded kernel modules that also drive NVIDIA cards: "nouveau", "nova_core", "vfio_pci"
	WSL         bool     // Windows Subsystem for Linux: the driver is Windows' own
	Tegra       bool     // a Jetson: its GPU is part of the chip, not on the PCI bus
	Kernel      string   // the running kernel: "6.8.0-45-generic"; "" unknown
	Built       *bool    // there is an nvidia module for that kernel, loaded or not; nil unknown
	SecureBoot  bool     // the firmware makes the kernel load only signed modules
	Switches    []string // PCI addresses of the NVSwitches known to the driver
	NoNVLink    bool     // the driver's configuration disables NVLink (NVreg_NvLinkDisable)
	// FabricManager: the daemon that sets up NVSwitches runs; nil: there are no NVSwitches, or the machine's processes
	// cannot be seen.
	FabricManager *bool
	Modprobe      bool // programs of this user can create missing device files: they run as root, or nvidia-modprobe does it
}

// Card is a display or 3D controller on the PCI bus.
type Card struct {
	PCI    string // "0000:17:00.0"
	Vendor uint16 // 0x10de is NVIDIA
	Device uint16
	Driver string // kernel module bound to it; "" none
	Boot   bool   // shows the firmware's screen
	Minor  *int   // N of /dev/nvidiaN, as NVIDIA's kernel module reports it; nil: unknown to it
}

// Node is one device file of a GPU driver.
type Node struct {
	Path     string
	Mode     uint32 // permission bits
	UID, GID uint32
	Problem  string // why the caller cannot open it for reading and writing; "" when it can
	Kept     bool   // the problem is a device cgroup: the container or batch job has other devices
}

// Library is one shared library in a folder that the loader searches.
type Library struct {
	Name    string // "libcudnn.so.9"
	Path    string
	Version string // "9.1.0", from the name of the file that the link points to; "" unknown
	From    string // "LD_LIBRARY_PATH", "ld.so.cache", "default"
}

// Toolkit is one CUDA toolkit.
type Toolkit struct {
	Folder  string
	Version string   // "12.4"; "" unknown
	OnPath  bool     // PATH finds its nvcc
	NVCC    bool     // it has a compiler; without one it may be only the runtime
	Homes   []string // CUDA_HOME and CUDA_PATH, if they name it
}

// Error is one error of NVIDIA's driver in the kernel log.
type Error struct {
	PCI string // "0000:17:00": domain, bus and device
	XID gpu.XID
}
