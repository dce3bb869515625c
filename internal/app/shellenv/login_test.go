package shellenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestLoginEnds: if the file system of a configuration file hangs, as that of a dead server, a login continues after a
// moment, shows no device, and names the file.
func TestLoginEnds(t *testing.T) {
	gate.Need(t, "fuse")
	fuse, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "etc", "gpuard")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", fuse)); err != nil {
		_ = syscall.Close(fuse)
		t.Fatal(err)
	}
	defer func() { _, _ = syscall.Unmount(dir, syscall.MNT_DETACH), syscall.Close(fuse) }() // ends pending reads
	host := &machine.Host{Root: root, Patience: 50 * time.Millisecond, Env: visible.Env{}}
	vars, err := LoginVariables(t.Context(), host, policy.LoginAll)
	if err == nil || !strings.Contains(err.Error(), "cannot read "+host.MachineConfig()+" within 50ms: ") {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprint(vars); !strings.Contains(text, "{CUDA_VISIBLE_DEVICES -1 false}") {
		t.Error(text)
	}
}
