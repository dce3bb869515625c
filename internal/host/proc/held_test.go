package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// plantHolder adds a process to a procfs of the test: with these files open, and these mapped.
func plantHolder(t *testing.T, root string, pid int, open, mapped []string) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755)
	for i, target := range open {
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, "fd", fmt.Sprint(i)))
		}
	}
	maps := "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0\n"
	for _, path := range mapped {
		maps += "7f04-7f05 rw-s 00000000 00:06 99                         " + path + "\n"
	}
	for name, text := range map[string]string{
		"maps": maps, "cmdline": "python\x00train.py\x00", "status": "Uid:\t1000\t1000\t1000\t1000\n", "cgroup": "0::/\n",
		"stat": fmt.Sprintf("%d (python) S 1 1 1 0 -1 4194304 %s", pid, strings.Repeat("7 ", 43)),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDevicesHeld(t *testing.T) {
	root := t.TempDir()
	plantHolder(t, root, 7, []string{"/dev/nvidiactl", "/home/a/data", "socket:[1]", "/dev/nvidia0"}, []string{"/dev/nvidia0", "/dev/nvidia1 (deleted)"})
	got, err := New(root).HeldDeviceFiles(7)
	if want := []string{"/dev/nvidia0", "/dev/nvidia1 (deleted)", "/dev/nvidiactl"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := New(root).HeldDeviceFiles(8); err == nil {
		t.Errorf("a process that does not exist has %q", got)
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	if own, err := New("/proc").HeldDeviceFiles(os.Getpid()); err != nil || !slices.Contains(own, "/dev/null") {
		t.Errorf("this process has %q, %v", own, err)
	}
}

// TestFillInAnotherNamespace: in a PID namespace of its own only a process that has the device open is the one that the
// driver means. Of all others neither name nor user is shown, and nothing that could be ended.
func TestFillInAnotherNamespace(t *testing.T) {
	root := t.TempDir()
	plantHolder(t, root, 3, []string{"/dev/pts/0"}, nil)
	plantHolder(t, root, 4, []string{"/dev/nvidiactl", "/dev/nvidia0"}, nil)
	plantHolder(t, root, 5, nil, []string{"/dev/nvidia0"})
	plantHolder(t, root, 6, []string{"/dev/nvidia1"}, nil)
	f := New(root)
	f.passwd = filepath.Join(root, "passwd")
	read := func(apart bool) []gpu.Process {
		m := gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-0", Vendor: gpu.NVIDIA, Minor: new(0), MIG: []gpu.MIGDevice{{UUID: "MIG-0"}}}}}
		for _, pid := range []int{3, 4, 5, 6, 8123} {
			m.Processes = append(m.Processes, gpu.Process{PID: pid, GPU: "GPU-0", Memory: new(gpu.GiB), Kind: gpu.ComputeProcess})
		}
		m.Processes = append(m.Processes, gpu.Process{PID: 4, GPU: "MIG-0"})
		f.FillProcesses(&m, time.Now(), apart)
		return m.Processes
	}
	for i, p := range read(true) {
		known := slices.Contains([]int{1, 2, 5}, i)
		switch {
		case known && (p.PID == 0 || p.Outside != 0 || p.Command != "python train.py" || p.UID == nil || p.Start == 0):
			t.Errorf("%d, which has the device open: %+v", i, p)
		case !known && (p.PID != 0 || p.Outside == 0 || p.Command+p.User+p.State != "" || p.UID != nil || p.Start != 0 || p.Memory == nil || p.Kind == ""):
			t.Errorf("%d, which is another one: %+v", i, p)
		}
	}
	for i, p := range read(false) {
		if p.PID == 0 || p.Outside != 0 {
			t.Errorf("%d in the namespace of the driver: %+v", i, p)
		}
	}
}
