package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockedByNamesHolders: who inherited the lock holds it, who only has the file open does not.
func TestLockedByNamesHolders(t *testing.T) {
	f := New("/proc")
	path := filepath.Join(t.TempDir(), "held.lock")
	held, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	read, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	with := func(file *os.File) int {
		cmd := exec.Command("sleep", "60")
		cmd.ExtraFiles = []*os.File{file}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		waitFor(t, f, cmd.Process.Pid, func(Stat) bool { return f.DescribeProcess(cmd.Process.Pid).Command == "sleep 60" })
		return cmd.Process.Pid
	}
	heir := with(held)
	with(read)
	if err := os.Remove(path); err != nil { // a removed file is still held
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(held.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if got := f.LockHolders(st.Dev, st.Ino); len(got) != 0 {
		t.Errorf("nobody locked it: %+v", got)
	}
	if err := unix.FcntlFlock(held.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, b := range f.LockHolders(st.Dev, st.Ino) {
		pids = append(pids, b.PID)
		if b.PID == heir && (b.Command != "sleep 60" || b.Start == 0 || b.User == "") {
			t.Errorf("holder: %+v", b)
		}
	}
	want := []int{os.Getpid(), heir}
	slices.Sort(want)
	if !slices.Equal(pids, want) {
		t.Errorf("LockedBy names %v, want %v", pids, want)
	}
	if got := f.LockHolders(st.Dev+1, st.Ino); len(got) != 0 {
		t.Errorf("another device: %+v", got)
	}
}

func TestLockedByOnlyLooksAtProcesses(t *testing.T) {
	const lock = "pos:\t0\nflags:\t02100002\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:42 0 EOF\n"
	f := tree(t, map[string]string{
		"the.lock": "", "passwd": "root:x:0:0::/:/bin/sh\n",
		"5/stat": statLine(5, "five", "S", 1, 50), "5/cmdline": "five\x00", "5/status": "Uid:\t0\t0\t0\t0\n", "5/fd/x": "", "5/fdinfo/203": lock,
		"40/stat": statLine(40, "forty", "S", 1, 60), "40/cmdline": "forty\x00", "40/fd/x": "", "40/fdinfo/203": lock,
		"6/stat": statLine(6, "six", "S", 1, 50), "6/fd/x": "", "6/fdinfo/1": lock,
		"8/stat": statLine(8, "eight", "S", 1, 50), "8/fd/x": "", "8/fdinfo/203": "pos:\t0\nflags:\t02100000\n",
		"9/stat": statLine(9, "nine", "S", 1, 50), "9/fd/x": "", "9/fdinfo/203": strings.Replace(lock, "WRITE", "READ", 1),
		"self/fd/x": "", "self/fdinfo/203": lock, "7/stat": statLine(7, "nofds", "S", 1, 50),
	})
	target := filepath.Join(f.root, "the.lock")
	for _, dir := range []string{"5", "40", "8", "9", "self"} {
		if err := os.Symlink(target, filepath.Join(f.root, dir, "fd/203")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(f.root, "6/fd/1")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(target, &st); err != nil {
		t.Fatal(err)
	}
	got := f.LockHolders(st.Dev, st.Ino)
	if len(got) != 2 || got[0].PID != 5 || got[0].User != "root" || got[0].Start != 50 || got[1].PID != 40 || got[1].Command != "forty" {
		t.Errorf("LockedBy = %+v", got)
	}
}

func TestMountPoint(t *testing.T) {
	f := tree(t, map[string]string{"self/mountinfo": strings.Join([]string{
		`21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw`,
		`36 21 0:30 / /run rw,nosuid - tmpfs tmpfs rw`,
		`40 36 0:31 /x /run/gpuard rw - tmpfs tmpfs rw`,
		`41 21 0:32 / /mnt/with\040space\134and\011tab rw - tmpfs tmpfs rw`,
		`42 21 0:33 / /mnt/half\04 rw - tmpfs tmpfs rw`,
		`43 21 8:2 /var/tmp /var/tmp rw - ext4 /dev/sda2 rw`,
		`44 21 8:2 /home/x /var/cache rw - ext4 /dev/sda2 rw`,
		`short line`,
	}, "\n") + "\n"})
	for path, want := range map[string]bool{
		"/": true, "/run": true, "/run/": true, "/run/gpuard": true, "/run/gpuard/leases": false, "/run/../run": true,
		"/mnt/with space\\and\ttab": true, "/mnt/half\\04": true, "/etc": false,
		"/var/tmp/gpuard": true, "/var/tmpx": false, "/var/cache/gpuard": false,
	} {
		if got, err := f.IsMountPoint(path); got != want || err != nil {
			t.Errorf("MountPoint(%q) = %v, %v, want %v", path, got, err, want)
		}
	}
	if got, err := New("/proc").IsMountPoint("/proc"); !got || err != nil {
		t.Errorf("/proc itself: %v, %v", got, err)
	}
	for _, broken := range []FS{tree(t, nil), tree(t, map[string]string{"self/mountinfo": ""})} {
		if _, err := broken.IsMountPoint("/run"); err == nil || !strings.HasPrefix(err.Error(), "cannot tell whether /run") {
			t.Errorf("unreadable mountinfo: %v", err)
		}
	}
}
