// Package kmod reads files of the kernel about GPU drivers: loaded modules with their versions, and the device files
// that programs open. It calls no driver, opens no device and judges nothing.
//
//	driver, err := kmod.ReadDriver("/") // driver.Module == "": NVIDIA's module is not loaded
//	nodes, err := kmod.DeviceNodes("/")
package kmod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/sys"
)

// ReadDriver reads the kernel part of NVIDIA's driver from the files below root ("/" for this machine). It does not
// fill the libraries of the result. A module that is not loaded is no error; the error says that the kernel's files
// cannot be read.
func ReadDriver(root string) (hostinfo.Driver, error) {
	var d hostinfo.Driver
	banner, err := readText(root, "proc/driver/nvidia/version")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, fmt.Errorf("cannot read the version of NVIDIA's kernel module: %w", err)
	}

	d.Module, d.Open = parseModule(banner)
	if d.Module == "" {
		// Without a card, the first file is missing.
		if version, err := readText(root, "sys/module/nvidia/version"); err == nil && isVersion(strings.TrimSpace(version)) {
			d.Module = strings.TrimSpace(version)
		}
	}

	for _, other := range []string{"nouveau", "nova_core", "vfio_pci"} {
		if fileExists(root, "sys/module/"+other) {
			d.Others = append(d.Others, other)
		}
	}

	release, err := readText(root, "proc/sys/kernel/osrelease")
	d.Switches, d.NoNVLink = readFabric(root)
	d.Kernel = strings.TrimSpace(release)
	d.Built = isModuleBuilt(root, d.Kernel)
	d.SecureBoot = isSecureBoot(root)

	// "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0".
	compatible, _ := readText(root, "proc/device-tree/compatible")
	d.Tegra = strings.Contains(compatible, "nvidia,tegra") || fileExists(root, "sys/module/nvgpu")
	d.WSL = err == nil && strings.Contains(strings.ToLower(release), "microsoft") && fileExists(root, "dev/dxg")
	d.Modprobe = os.Geteuid() == 0 || slices.ContainsFunc([]string{"usr/bin/nvidia-modprobe", "bin/nvidia-modprobe"}, func(path string) bool {
		info, err := os.Stat(filepath.Join(root, path))
		return err == nil && info.Mode()&fs.ModeSetuid != 0
	})

	return d, nil
}

// parseModule reads the first line of /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module
// 535.54.03  Tue Jun …", and of the open modules "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06
// Release Build …" (NVIDIA/open-gpu-kernel-modules src/nvidia/arch/nvalloc/unix/include/nv.h, the NVRM_ID).
func parseModule(banner string) (version string, open *bool) {
	line, _, _ := strings.Cut(banner, "\n")
	if !strings.HasPrefix(line, "NVRM version:") {
		return "", nil
	}

	for _, word := range strings.Fields(line) {
		if isVersion(word) {
			return word, new(strings.Contains(line, "Open Kernel Module"))
		}
	}

	return "", nil
}

// isVersion reports whether s is a driver version: "580.65.06", "535.54", "340.108".
func isVersion(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 4 || len(parts[0]) < 2 {
		return false
	}
	return !slices.ContainsFunc(parts, func(p string) bool { return p == "" || strings.Trim(p, "0123456789") != "" })
}

// DeviceMinors returns the N of /dev/nvidiaN for each card of NVIDIA's module, by PCI address ("0000:17:00.0").
func DeviceMinors(root string) map[string]int {
	found := map[string]int{}
	folders, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/gpus/*"))
	for _, folder := range folders {
		information, err := readText(folder, "information")
		if err != nil {
			continue
		}

		for line := range strings.Lines(information) {
			name, value, _ := strings.Cut(line, ":")
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16); strings.TrimSpace(name) == "Device Minor" && err == nil {
				found[strings.ToLower(filepath.Base(folder))] = int(n)
			}
		}
	}

	return found
}

// readFabric lists the NVSwitches of NVIDIA's driver, which are PCI devices of class 0x0680 with the driver
// nvidia-nvswitch (NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/linux_nvswitch.c), and reports whether NVLink is
// switched off. It ignores /dev/nvidia-nvswitchctl, which exists on machines without a switch too, and switches with
// the driver vfio-pci, which belong to a virtual machine.
func readFabric(root string) (switches []string, off bool) {
	// Without the folder there is none.
	entries, _ := listNames(filepath.Join(root, "sys/bus/pci/drivers/nvidia-nvswitch"))
	for _, name := range entries {
		if strings.Count(name, ":") == 2 {
			switches = append(switches, name)
		}
	}

	slices.Sort(switches)
	params, _ := readText(root, "proc/driver/nvidia/params")
	for line := range strings.Lines(params) {
		name, value, _ := strings.Cut(line, ":")
		off = off || name == "NvLinkDisable" && strings.TrimSpace(value) == "1"
	}

	return switches, off
}

// maxFileSize is the size up to which these files are read, in bytes; all are smaller.
const maxFileSize = 64 << 10

// readText returns the content of a file of the kernel.
func readText(root, path string) (string, error) {
	data, err := sys.ReadSome(filepath.Join(root, path), maxFileSize)
	return string(data), err
}

func fileExists(root, path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}
