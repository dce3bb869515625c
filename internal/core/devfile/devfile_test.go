package devfile

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestHasOpen: only the file of this very device proves that a process uses it.
func TestHasOpen(t *testing.T) {
	nvidia := gpu.Device{Vendor: gpu.NVIDIA, Minor: new(1)}
	amd := gpu.Device{Vendor: gpu.AMD, Minor: new(128)}
	unnumbered := gpu.Device{Vendor: gpu.NVIDIA}
	for _, c := range []struct {
		name   string
		device gpu.Device
		files  []string
		want   bool
	}{
		{"its file", nvidia, []string{"/dev/null", "/dev/nvidiactl", "/dev/nvidia1"}, true},
		{"made anew since", nvidia, []string{"/dev/nvidia1 (deleted)"}, true},
		{"in a changed root folder", nvidia, []string{"/srv/root/dev/nvidia1"}, true},
		{"another device", nvidia, []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia11"}, false},
		{"what all devices share", nvidia, []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset"}, false},
		{"a file of that name elsewhere", nvidia, []string{"/home/bob/nvidia1", "/dev/x/nvidia1", "nvidia1"}, false},
		{"none", nvidia, nil, false},
		{"a render node", amd, []string{"/dev/kfd", "/dev/dri/renderD128"}, true},
		{"another render node", amd, []string{"/dev/kfd", "/dev/dri/renderD129", "/dev/dri/card0"}, false},
		{"a device of unknown number", unnumbered, []string{"/dev/nvidia7"}, true},
		{"a device of unknown number, for computing", unnumbered, []string{"/dev/nvidia-uvm"}, true},
		{"a device of unknown number, to ask about it", unnumbered, []string{"/dev/nvidiactl", "/dev/nvidia"}, false},
		{"AMD's, of unknown number", gpu.Device{Vendor: gpu.AMD}, []string{"/dev/kfd"}, true},
		{"NVIDIA's in WSL", nvidia, []string{"/dev/dxg"}, true},
		{"another vendor's in WSL", amd, []string{"/dev/dxg"}, false},
		{"a vendor without a known file", gpu.Device{Vendor: gpu.Ascend, Minor: new(0)}, []string{"/dev/davinci0", "/dev/0"}, false},
	} {
		if got := HasOpen(c.device, c.files); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	for name, d := range map[string]gpu.Device{"/dev/nvidia1": nvidia, "/dev/dri/renderD128": amd, "/dev/nvidiaN": unnumbered} {
		if FileName(d) != name {
			t.Errorf("%s, not %s", FileName(d), name)
		}
	}
	if !IsDevicePath("/dev/nvidia0") || IsDevicePath("/home/bob/train.py") {
		t.Error("what may be a device file")
	}
}
