package affinity

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func allowed(t *testing.T) []int {
	t.Helper()
	cpus, err := AllowedCPUs()
	if err != nil || len(cpus) == 0 {
		t.Fatalf("%v, %v", cpus, err)
	}
	return cpus
}

// started is what a process that Around started reports of its processors and memory.
func started(t *testing.T, cpus []int, node int) (processors, memory string) {
	t.Helper()
	var status []byte
	err := CallBound(cpus, node, func() (err error) {
		status, err = exec.Command("grep", "-hE", "^Cpus_allowed_list:| stack ", "/proc/self/status", "/proc/self/numa_maps").Output()
		return err
	})
	if err != nil && len(status) == 0 {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			processors = strings.TrimSpace(list)
		} else if fields := strings.Fields(line); len(fields) > 1 {
			memory = fields[1]
		}
	}
	return processors, memory
}

// TestAround: the process is bound, and neither this thread nor later processes are.
func TestAround(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := allowed(t)
	last := all[len(all)-1]
	unbound, usual := started(t, nil, -1)
	processors, memory := started(t, []int{last}, -1)
	if processors == unbound && len(all) > 1 || strings.ContainsAny(processors, ",-") {
		t.Errorf("bound to processor %d it may use %s, unbound %s", last, processors, unbound)
	}
	if memory != usual {
		t.Errorf("memory %q without a node, usually %q", memory, usual)
	}
	if after := allowed(t); !slices.Equal(after, all) {
		t.Errorf("this process may use %v afterwards, before %v", after, all)
	}
	if again, _ := started(t, nil, -1); again != unbound {
		t.Errorf("what is started later may use %s, before %s", again, unbound)
	}
}

// TestMemory: memory comes preferably from the node, an existing policy stays, and a node that does not exist sets
// none.
func TestMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil || memoryPolicy() != unix.MPOL_DEFAULT {
		t.Skipf("memory policies cannot be seen here, or one is set: %v", err)
	}
	if _, err := NodeCPUs("/", 0); err != nil {
		t.Skip(err)
	}
	if _, memory := started(t, nil, 0); !strings.HasPrefix(memory, "prefer") {
		t.Errorf("memory policy %q", memory)
	}
	if got := memoryPolicy(); got != unix.MPOL_DEFAULT {
		t.Errorf("this thread keeps policy %d", got)
	}
	if _, memory := started(t, nil, 1000); memory != "default" {
		t.Errorf("with a node that does not exist: %q", memory)
	}
	done := make(chan struct{})
	go func() { // on a thread of its own, which ends with it
		defer close(done)
		runtime.LockOSThread()
		nodes := uint64(1)
		if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_INTERLEAVE, uintptr(unsafe.Pointer(&nodes)), 65); errno != 0 {
			t.Errorf("cannot interleave: %v", errno)
			return
		}
		if _, memory := started(t, nil, 0); !strings.HasPrefix(memory, "interleave") {
			t.Errorf("the policy of whoever called us became %q", memory)
		}
	}()
	<-done
}

// TestNode reads the kernel's files, and those of the test.
func TestNode(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/devices/system/node/node1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpulist"), []byte("8-15,24-31\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := NodeCPUs(root, 1); err != nil || list != "8-15,24-31\n" {
		t.Errorf("%q, %v", list, err)
	}
	if _, err := NodeCPUs(root, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if list, err := NodeCPUs("/", 0); err == nil && strings.TrimSpace(list) == "" {
		t.Error("node 0 of this machine has no processors")
	}
}
