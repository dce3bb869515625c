package nvidia

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/test/preload"
)

func (l *InventedMachine) writeFile(path, text string) {
	l.t.Helper()
	preload.WriteFile(l.t, l.root, path, text)
}

// writeMachineFiles writes what the libraries read of /proc and /sys.
func (l *InventedMachine) writeMachineFiles() {
	version := l.Library.Version
	l.writeFile("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n")
	l.writeFile("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "+version+"  Thu Mar 19 00:00:00 UTC 2026\nGCC version:  gcc version 12.2.0\n")
	l.writeFile("proc/modules", "nvidia_uvm 1540096 0 - Live 0x0000000000000000 (POE)\nnvidia 56823808 1 nvidia_uvm, Live 0x0000000000000000 (POE)\n")
	l.writeFile("proc/devices", "Character devices:\n  1 mem\n195 nvidia-frontend\n235 nvidia-uvm\n237 nvidia-caps\n\nBlock devices:\n  8 sd\n")
	l.writeFile("sys/module/nvidia/initstate", "live\n")
	l.writeFile("sys/module/nvidia/version", version+"\n")
	l.writeFile("sys/module/nvidia_uvm/initstate", "live\n")
	capability := func(path string, minor, mode int) {
		l.writeFile("proc/driver/nvidia/capabilities/"+path, fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode))
	}
	capability("mig/config", 1, 0o400)
	capability("mig/monitor", 2, 0o444)
	for _, name := range []string{"ctl", "-uvm", "-uvm-tools"} {
		l.writeFile("dev/nvidia"+name, "")
	}
	for i, d := range l.Machine.Devices {
		l.writeGPUFiles(i, d)
		l.writeFile(fmt.Sprintf("dev/nvidia%d", i), "")
		for _, s := range d.MIG {
			place := fmt.Sprintf("gpu%d/mig/gi%d/", i, s.GPUInstance)
			capability(place+"access", groupCapability(i, s), 0o444)
			capability(fmt.Sprintf("%sci%d/access", place, s.ComputeInstance), sliceCapability(i, s), 0o444)
		}
	}
}

// groupCapability is the minor number of the device file of a slice's GPU instance, and sliceCapability that of the slice.
func groupCapability(i int, s gpu.MIGDevice) int { return 3 + 64*i + 9*s.GPUInstance }
func sliceCapability(i int, s gpu.MIGDevice) int {
	return groupCapability(i, s) + 1 + s.ComputeInstance
}

func (l *InventedMachine) writeGPUFiles(i int, d gpu.Device) {
	place := "sys/bus/pci/devices/" + d.PCI + "/"
	config := make([]byte, 256)
	for at, value := range map[int]uint32{0: 0x10de, 4: 0x00100406, 8: 0x030200a1, 0x10: 0xb0000000 + 0x1000000*uint32(i), 0x14: 0xc, 0x18: 0x20 + uint32(i), 0x1c: 0xc} { //nolint:gosec // a few
		binary.LittleEndian.PutUint32(config[at:], value)
	}
	l.writeFile(place+"config", string(config))
	start := 0xb0000000 + 0x1000000*i
	for name, text := range map[string]string{
		"vendor": "0x10de", "class": "0x030200", "revision": "0xa1", "numa_node": strconv.Itoa(i / 2), "local_cpus": "3", "local_cpulist": "0-1", "enable": "1", "irq": strconv.Itoa(60 + i),
		"resource": fmt.Sprintf("0x%016x 0x%016x 0x0000000000040200", start, start+0xffffff) + strings.Repeat("\n0x0000000000000000 0x0000000000000000 0x0000000000000000", 12),
	} {
		l.writeFile(place+name, text+"\n")
	}
	l.writeFile("proc/driver/nvidia/gpus/"+d.PCI+"/information", fmt.Sprintf("Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", d.Name, 60+i, d.UUID, d.PCI, i))
}

// parseMachine reads a machine's file as far as gpuard's own model of a machine has it.
func parseMachine(t testing.TB, text string) (m gpu.Machine) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if key == "gpu" {
			n := len(m.Devices)
			m.Devices = append(m.Devices, gpu.Device{Index: n, Minor: &n, Vendor: gpu.NVIDIA, PCI: value})
			continue
		}
		if len(m.Devices) == 0 {
			continue
		}
		d := &m.Devices[len(m.Devices)-1]
		switch key {
		case "name":
			d.Name = value
		case "uuid":
			d.UUID = gpu.UUID("GPU-" + value)
		case "mig":
			d.MIGMode = new(value == "on")
		case "slice":
			var s gpu.MIGDevice
			var sms, gpcs, mib int
			var id string
			if _, err := fmt.Sscan(value, &s.GPUInstance, &s.ComputeInstance, &sms, &gpcs, &mib, &id); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			s.Index, s.UUID, s.Profile = len(d.MIG), gpu.UUID("MIG-"+id), fmt.Sprintf("%dg.%dgb", gpcs, mib>>10)
			d.MIG, d.MIGMode = append(d.MIG, s), new(true)
		}
	}
	return m
}
