package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// openDescriptors lists what a process has open.
func openDescriptors(t testing.TB, pid int) map[int]string {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	open := map[int]string{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		target, err := os.Readlink(filepath.Join(folder, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since, such as the listing itself
		}
		if err != nil {
			t.Fatal(err)
		}
		open[n] = target
	}
	return open
}

// TestDriverDescriptors: a command has its standard streams, what the caller passed on, and the lease's descriptor at
// 200 or above; nothing that gpuard or the driver opened for themselves.
func TestDriverDescriptors(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.WriteFile("control", "a device node")
	passed, err := os.Create(filepath.Join(t.TempDir(), "passed"))
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close() //nolint:errcheck // not read
	cmd := r.cmd("run", "-q", "--", "sh", "-c", "echo on; kill -STOP $$")
	cmd.ExtraFiles = []*os.File{passed, nil, passed} // 3 and 5
	inherited := openDescriptors(t, os.Getpid())     // inherited by this test from its parent
	startToFirstLine(t, cmd)
	waitUntil(t, "it has stopped, and opens nothing more", func() bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return strings.Contains(string(line), ") T ")
	})
	open := openDescriptors(t, cmd.Process.Pid)
	var numbers, leases []int
	for fd, target := range open {
		switch {
		case fd > 5 && inherited[fd] == target:
		case fd >= 200:
			leases = append(leases, fd)
			if !strings.HasPrefix(target, r.state) || !strings.HasSuffix(target, ".lock") {
				t.Errorf("descriptor %d is %s, not the lease", fd, target)
			}
		case fd > 5 || fd == 4:
			t.Errorf("descriptor %d (%s) is not for the command", fd, target)
		default:
			numbers = append(numbers, fd)
		}
		if strings.Contains(target, "control") {
			t.Errorf("descriptor %d is the driver's", fd)
		}
	}
	if len(numbers) != 5 || len(leases) != 1 || open[3] != passed.Name() || open[5] != passed.Name() {
		t.Errorf("the command has %v", open)
	}

	// The holder has nothing but the lease, the command's pidfd and the folder's lock; no end of the caller's pipes. While it
	// starts it has what it reads just then.
	holder, strange := waitForHolder(t, r.state), ""
	if !pollUntil(10*time.Second, func() bool {
		strange = ""
		for fd, target := range openDescriptors(t, holder) {
			ours := strings.HasPrefix(target, r.state) || strings.HasPrefix(target, "anon_inode:") || target == "/dev/null" ||
				strings.HasPrefix(target, "/sys/fs/cgroup/") // Go's own, to follow its CPU limit
			if fd < 3 && target != "/dev/null" || !ours {
				strange = fmt.Sprintf("descriptor %d of the holder is %s", fd, target)
			}
		}
		return strange == ""
	}) {
		t.Error(strange)
	}
}

// TestHolderMemory: what a holder costs for as long as its command runs.
func TestHolderMemory(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Log("the race detector needs memory of its own")
		return
	}
	r := newFakeDriverMachine(t, makeA100s(1)...)
	startToFirstLine(t, r.cmd("run", "-q", "--", "sh", "-c", "echo on; exec sleep 60"))
	private := privateMemory(t, waitForHolder(t, r.state))
	t.Logf("%d KiB", private)
	if private == 0 || private > 4<<10 {
		t.Errorf("the holder has %d KiB of its own, more than 4 MiB", private)
	}
}

// waitForHolder waits for the one holder of a state folder to have begun its watch: when the command starts it is only on
// its way.
func waitForHolder(t testing.TB, folder string) (pid int) {
	t.Helper()
	waitUntil(t, "one holder watches", func() bool {
		holders := holdersOf(folder)
		if len(holders) != 1 {
			return false
		}
		pid = holders[0]
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
		return slices.ContainsFunc(threads, func(path string) bool {
			where, _ := os.ReadFile(path)
			return strings.Contains(string(where), "poll") || string(where) == "0" // where the kernel does not say
		})
	})
	return pid
}

// privateMemory is in KiB: what would be free if the process were not there (proc_pid_smaps(5)).
func privateMemory(t testing.TB, pid int) (sum int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var n int
		if name, rest, ok := strings.Cut(lines.Text(), ":"); ok && strings.HasPrefix(name, "Private_") {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
