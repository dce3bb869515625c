package cgroupfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/cgroupfs"
)

// TestFind: the folder of a group, from texts of the kernel on different machines.
func TestFind(t *testing.T) {
	const (
		unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		legacy  = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n33 31 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,cpu,devices\n"
		bound   = "41 31 0:38 /docker/12ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
		spaced  = "41 31 0:38 / /a\\040b rw - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct{ self, mounts, want, controller string }{
		{"0::/user.slice/run-1.scope\n", unified, "/sys/fs/cgroup/user.slice/run-1.scope", ""},
		{"0::/\n", unified, "/sys/fs/cgroup", ""},
		{"4:memory:/job\n0::/\n", hybrid, "/sys/fs/cgroup/unified", ""},
		{"4:memory:/job\n0::/in\n", hybrid, "/sys/fs/cgroup/unified/in", ""},
		{"0::/docker/12ab/in\n", bound, "/sys/fs/cgroup/in", ""},
		{"0::/docker/12abc\n", bound, "", ""},
		{"0::/../other\n", unified, "", ""},
		{"0::/a/../../b\n", unified, "", ""},
		{"0::/gone (deleted)\n", unified, "/sys/fs/cgroup/gone (deleted)", ""}, // that folder does not exist
		{"4:memory:/job\n", hybrid, "", ""},
		{"0::/in\n", "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "", ""},
		{"0::/in\n", spaced, "", ""},
		{"0::/in\n", spaced + unified, "/sys/fs/cgroup/in", ""},
		{"0::/in\n", "x\n - cgroup2 \n", "", ""},
		{"", unified, "", ""},
		{"4:memory:/job\n3:cpu,devices:/in\n0::/\n", legacy, "/sys/fs/cgroup/devices/in", "devices"},
		{"4:memory:/job\n0::/\n", legacy, "", "devices"},
		{"4:devices:/job\n0::/\n", hybrid, "", "devices"},
		{"4:devices:/job\n0::/two\n", hybrid, "/sys/fs/cgroup/unified/two", ""},
		{"4:devices:/docker/12ab/in\n", "32 31 0:29 /docker/12ab /devs ro - cgroup devices rw,devices\n", "/devs/in", "devices"},
	} {
		if got := cgroupfs.Find(c.self, c.mounts, c.controller); got != c.want {
			t.Errorf("%s of %q in %q is %q, want %q", c.controller, c.self, c.mounts, got, c.want)
		}
	}
}

// TestPrune: a group without a process is removed with those below it, of both versions, and one with a process keeps even the empty ones
// below.
func TestPrune(t *testing.T) {
	for controller, name := range map[string]string{"": "cgroup2", "devices": "cgroup1"} {
		t.Run(name, func(t *testing.T) {
			gate.Need(t, name)
			dir := filepath.Join(cgroupfs.Own(controller), "gpuard-test-prune."+strconv.Itoa(os.Getpid()))
			below := filepath.Join(dir, "below", "more")
			err := os.MkdirAll(below, 0o755) //nolint:gosec // as the kernel's
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sleep", "60")
			err = cmd.Start()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			if cgroupfs.Prune(dir) {
				t.Error("a group with a process is said to be gone")
			}
			if _, err := os.Stat(below); err != nil || len(cgroupfs.Processes(dir)) != 1 {
				t.Errorf("%v, has %d processes", err, len(cgroupfs.Processes(dir)))
			}
			_, _ = cmd.Process.Kill(), cmd.Wait()
			for _, when := range []string{"without a process", "that is gone"} {
				if !cgroupfs.Prune(dir) {
					t.Errorf("a group %s is said to be there", when)
				}
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		})
	}
}
