package kmod

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"gpuard/internal/core/hostinfo"
)

// machine writes files below a new root: name to content, "-> target" is a link, "/" at the end of a name is a folder.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case name[len(name)-1] == '/':
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDriver(t *testing.T) {
	t.Parallel()
	const closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:  gcc version 11.3.0 (Ubuntu 11.3.0-1ubuntu1~22.04.1)\n"
	const open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)  Sun Jul 27 07:00:00 UTC 2025\nGCC version:  gcc version 13.3.0\n"
	const secure = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	for name, c := range map[string]struct {
		files map[string]string
		want  hostinfo.Driver
	}{
		"closed":                                 {map[string]string{"proc/driver/nvidia/version": closed}, hostinfo.Driver{Module: "535.54.03", Open: new(false)}},
		"open":                                   {map[string]string{"proc/driver/nvidia/version": open}, hostinfo.Driver{Module: "580.65.06", Open: new(true)}},
		"no card":                                {map[string]string{"sys/module/nvidia/version": "550.54.15\n"}, hostinfo.Driver{Module: "550.54.15"}},
		"both":                                   {map[string]string{"proc/driver/nvidia/version": open, "sys/module/nvidia/version": "1.2\n"}, hostinfo.Driver{Module: "580.65.06", Open: new(true)}},
		"compiler's version is not the driver's": {map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA\nGCC version: gcc version 11.3.0\n"}, hostinfo.Driver{}},
		"another text":                           {map[string]string{"proc/driver/nvidia/version": "550.54.15\n", "sys/module/nvidia/version": "unknown\n"}, hostinfo.Driver{}},
		"nouveau":                                {map[string]string{"sys/module/nouveau/": "", "sys/module/vfio_pci/": ""}, hostinfo.Driver{Others: []string{"nouveau", "vfio_pci"}}},
		"WSL":                                    {map[string]string{"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n", "dev/dxg": ""}, hostinfo.Driver{WSL: true, Kernel: "5.15.90.1-microsoft-standard-WSL2"}},
		"WSL without a GPU":                      {map[string]string{"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n"}, hostinfo.Driver{Kernel: "5.15.90.1-microsoft-standard-WSL2"}},
		"a Jetson":                               {map[string]string{"proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\x00nvidia,tegra234\x00"}, hostinfo.Driver{Tegra: true}},
		"a container on a Jetson":                {map[string]string{"sys/module/nvgpu/": ""}, hostinfo.Driver{Tegra: true}},
		"another board":                          {map[string]string{"proc/device-tree/compatible": "raspberrypi,5-model-b\x00"}, hostinfo.Driver{}},
		"Secure Boot":                            {map[string]string{secure: "\x06\x00\x00\x00\x01"}, hostinfo.Driver{SecureBoot: true}},
		"no Secure Boot":                         {map[string]string{secure: "\x06\x00\x00\x00\x00"}, hostinfo.Driver{}},
		"built": {map[string]string{"proc/sys/kernel/osrelease": "6.8.0-45-generic\n", "lib/modules/6.8.0-45-generic/modules.dep": "updates/dkms/nvidia-drm.ko.zst: updates/dkms/nvidia.ko.zst\nupdates/dkms/nvidia.ko.zst:\n"},
			hostinfo.Driver{Kernel: "6.8.0-45-generic", Built: new(true)}},
		"built by Debian": {map[string]string{"proc/sys/kernel/osrelease": "6.1.0-9-amd64\n", "lib/modules/6.1.0-9-amd64/modules.dep": "updates/dkms/nvidia-current.ko:\n"},
			hostinfo.Driver{Kernel: "6.1.0-9-amd64", Built: new(true)}},
		"not built": {map[string]string{"proc/sys/kernel/osrelease": "6.8.0-47-generic\n", "lib/modules/6.8.0-45-generic/modules.dep": "updates/dkms/nvidia.ko:\n",
			"lib/modules/6.8.0-47-generic/modules.dep": "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.zst:\nkernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\nupdates/nvidia-current-drm.ko: x/nvidia.ko\n"},
			hostinfo.Driver{Kernel: "6.8.0-47-generic", Built: new(false)}},
		"a kernel that is no folder": {map[string]string{"proc/sys/kernel/osrelease": "../x\n"}, hostinfo.Driver{Kernel: "../x"}},
		"nothing":                    {nil, hostinfo.Driver{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.want.Modprobe = os.Geteuid() == 0
			if got, err := ReadDriver(machine(t, c.files)); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestDriverModprobe(t *testing.T) {
	t.Parallel()
	root := machine(t, map[string]string{"usr/bin/nvidia-modprobe": ""})
	for _, c := range []struct {
		mode os.FileMode
		want bool
	}{{0o755, os.Geteuid() == 0}, {0o755 | os.ModeSetuid, true}} {
		if err := os.Chmod(filepath.Join(root, "usr/bin/nvidia-modprobe"), c.mode); err != nil {
			t.Fatal(err)
		}
		if d, _ := ReadDriver(root); d.Modprobe != c.want {
			t.Errorf("%v: %v", c.mode, d.Modprobe)
		}
	}
}

// TestDriverUnreadable: a file that exists and cannot be read is an error, and not the same as no driver.
func TestDriverUnreadable(t *testing.T) {
	t.Parallel()
	if d, err := ReadDriver(machine(t, map[string]string{"proc/driver/nvidia/version/": ""})); err == nil {
		t.Errorf("%+v", d)
	}
}

// TestFabric: the driver's switches are listed; its control file and other entries are not switches.
func TestFabric(t *testing.T) {
	const folder = "sys/bus/pci/drivers/nvidia-nvswitch/"
	for name, c := range map[string]struct {
		files    map[string]string
		switches []string
		off      bool
	}{
		"two": {map[string]string{folder + "0000:c2:00.0/": "", folder + "0000:c1:00.0/": "", folder + "bind": "", folder + "module/": "",
			"proc/driver/nvidia/params": "EnableMSI: 1\nNvLinkDisable: 0\n"}, []string{"0000:c1:00.0", "0000:c2:00.0"}, false},
		"without NVLink":           {map[string]string{folder + "0000:c1:00.0/": "", "proc/driver/nvidia/params": "NvLinkDisable: 1\n"}, []string{"0000:c1:00.0"}, true},
		"only the control file":    {map[string]string{folder + "bind": "", "dev/nvidia-nvswitchctl": ""}, nil, false},
		"for a virtual machine":    {map[string]string{"sys/bus/pci/drivers/vfio-pci/0000:c1:00.0/": ""}, nil, false},
		"a machine without NVIDIA": {nil, nil, false},
	} {
		d, err := ReadDriver(machine(t, c.files))
		if err != nil || !slices.Equal(d.Switches, c.switches) || d.NoNVLink != c.off {
			t.Errorf("%s: %v, %v, %v", name, d.Switches, d.NoNVLink, err)
		}
	}
}

func TestMinors(t *testing.T) {
	t.Parallel()
	root := machine(t, map[string]string{
		"proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 245\nBus Location: \t 0000:17:00.0\nDevice Minor: \t 3\n",
		"proc/driver/nvidia/gpus/0000:AF:00.0/information": "Device Minor: \t 0\n",
		"proc/driver/nvidia/gpus/0000:b0:00.0/information": "Device Minor: \t none\n",
		"proc/driver/nvidia/gpus/0000:b1:00.0/":            "",
	})
	if got, want := DeviceMinors(root), (map[string]int{"0000:17:00.0": 3, "0000:af:00.0": 0}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := DeviceMinors(t.TempDir()); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	root := machine(t, map[string]string{
		"dev/nvidia0": "", "dev/nvidia10": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "", "dev/nvidia-uvm-tools": "", "dev/nvidia-modeset": "", "dev/nvidia": "",
		"dev/nvidia-caps/nvidia-cap1": "", "dev/kfd": "", "dev/null": "", "dev/dri/card0": "", "dev/dri/renderD128": "", "dev/dri/renderD129": "",
		"sys/class/drm/renderD128/device/vendor": "0x1002\n", "sys/class/drm/renderD129/device/vendor": "0x8086\n",
	})
	nodes, err := DeviceNodes(root)
	var paths []string
	for _, n := range nodes {
		paths = append(paths, n.Path)
		if n.Mode != 0o644 || n.UID != uint32(os.Geteuid()) || n.Kept {
			t.Errorf("%+v", n)
		}
	}
	if want := []string{"/dev/dri/renderD128", "/dev/kfd", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia10", "/dev/nvidiactl"}; err != nil || !reflect.DeepEqual(paths, want) {
		t.Errorf("%v, %v, want %v", paths, err, want)
	}
	if _, err := DeviceNodes(t.TempDir()); err == nil {
		t.Error("a machine without /dev is no error")
	}
}

// TestNodesClosed: a device file that a user other than root may not open has a Problem.
func TestNodesClosed(t *testing.T) {
	t.Parallel()
	root := machine(t, map[string]string{"dev/nvidia0": ""})
	if err := os.Chmod(filepath.Join(root, "dev/nvidia0"), 0o400); err != nil {
		t.Fatal(err)
	}
	nodes, err := DeviceNodes(root)
	if err != nil || len(nodes) != 1 || nodes[0].Mode != 0o400 || (nodes[0].Problem == "") != (os.Geteuid() == 0) {
		t.Errorf("%+v, %v", nodes, err)
	}
}
