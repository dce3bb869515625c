package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProcess(t *testing.T) {
	f := tree(t, map[string]string{
		"passwd": "alice:x:1000:1000::/:/bin/sh\n",
		"7/stat": statLine(7, "python3", "S", 1, 9), "7/status": "Uid:\t1000\t1000\t1000\t1000\n", "7/cmdline": "python3\x00train.py\x00",
		"7/cgroup": "0::/docker/" + id64 + "\n",
		"8/stat":   statLine(8, "ended", "Z", 1, 9), "9/stat": "9 (broken",
	})
	p, err := f.Process(7)
	if err != nil || p.PID != 7 || p.User != "alice" || p.Command != "python3 train.py" || p.Container != id64 || p.State != "S" {
		t.Errorf("Process(7) = %+v, %v", p, err)
	}
	if p, err := f.Process(8); err != nil || p.State != "Z" {
		t.Errorf("a zombie: %+v, %v", p, err)
	}
	for _, pid := range []int{6, 0, -1} {
		if _, err := f.Process(pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Process(%d): %v", pid, err)
		}
	}
	if _, err := f.Process(9); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unreadable stat: %v", err)
	}
}

func TestInsideAnotherRoot(t *testing.T) {
	f := tree(t, map[string]string{
		"7/root/dev/nvidia0": "", "7/root/dev/nvidia12": "", "7/root/dev/nvidiactl": "", "7/root/dev/nvidia-uvm": "", "7/root/dev/nvidia": "",
		"7/root/dev/dri/renderD129": "", "7/root/dev/dri/card1": "", "7/root/tmp/nvidia-mps/control": "",
		"8/root/dev/null": "", "9/stat": "",
	})
	got, err := f.DeviceFiles(7)
	if want := []string{"nvidia0", "nvidia12", "dri/renderD129"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("DeviceFiles(7) = %q, %v, want %q", got, err, want)
	}
	if got, err := f.DeviceFiles(8); err != nil || len(got) != 0 {
		t.Errorf("none there: %q, %v", got, err)
	}
	if _, err := f.DeviceFiles(9); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing to see: %v", err)
	}
	if !f.HasFile(7, "/tmp/nvidia-mps/control") || f.HasFile(7, "/tmp/nvidia-mps/log") || f.HasFile(8, "/tmp/nvidia-mps/control") {
		t.Error("Has is wrong about files")
	}
}

// Only a part of a folder is read that was filled to delay the reader.
func TestInsideManyFiles(t *testing.T) {
	folder := t.TempDir()
	for i := range 5 {
		if err := os.Symlink("x", filepath.Join(folder, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readDir(folder, 3); err != nil || len(got) != 3 {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if got, err := readDir(t.TempDir(), 3); err != nil || len(got) != 0 {
		t.Errorf("an empty folder: %d entries, %v", len(got), err)
	}
}

func TestInsideRealProcess(t *testing.T) {
	f := New("/proc")
	if !f.HasFile(os.Getpid(), "/proc/self") || f.HasFile(os.Getpid(), filepath.Join(t.TempDir(), "missing")) {
		t.Error("our own root is not ours")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	waitFor(t, f, cmd.Process.Pid, func(Stat) bool { return f.DescribeProcess(cmd.Process.Pid).Command == "sleep 60" })
	p, err := f.Process(cmd.Process.Pid)
	if err != nil || p.Command != "sleep 60" || int(*p.UID) != os.Getuid() {
		t.Errorf("%+v, %v", p, err)
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, f, cmd.Process.Pid, func(s Stat) bool { return s.State == "Z" })
	if p, err := f.Process(cmd.Process.Pid); err != nil || p.State != "Z" {
		t.Errorf("a zombie is a process: %+v, %v", p, err)
	}
	if got, want := f.MissingReason(cmd.Process.Pid), fmt.Sprintf("it has ended, and its parent, process %d, has not collected it", os.Getpid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := f.MissingReason(os.Getpid()); got != "" {
		t.Errorf("of what lives: %q", got)
	}
}
