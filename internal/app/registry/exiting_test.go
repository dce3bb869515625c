package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// TestUnattendedExiting: an exiting holder has no command line any more, but still the lock. It does not count as a process that
// keeps the lease; a living process does.
func TestUnattendedExiting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := store.CreateFolder(dir); err != nil {
		t.Fatal(err)
	}
	folder, err := store.Open(dir, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	const pid = 1<<22 + 7 // more than any process has
	for name, c := range map[string]struct {
		flags      int // of the kernel: PF_EXITING is 4
		late, gone bool
		kept       bool
	}{"lives": {late: true, kept: true}, "exits": {flags: 4}, "exits, late": {flags: 4, late: true, gone: true}, "hangs while it exits": {flags: 4, late: true, kept: true}} {
		root := t.TempDir()
		host := &machine.Host{Proc: proc.New(root)}
		l := job.Lease{ID: "k3f9", UID: uint32(os.Geteuid()), PID: pid - 1, Start: 50, Devices: []gpu.UUID{"GPU-1"}, Namespace: host.Proc.PIDNamespace()} //nolint:gosec // a uid
		lock := filepath.Join(dir, "leases", fmt.Sprint(l.UID), l.ID+"-"+job.DeviceHash("GPU-1")+".lock")
		own := filepath.Join(root, fmt.Sprint(pid))
		for path, text := range map[string]string{
			lock:                            "",
			filepath.Join(own, "cmdline"):   "",
			filepath.Join(own, "stat"):      fmt.Sprintf("%d (gpuard) R 1 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 60 %s\n", pid, c.flags, strings.Repeat("0 ", 30)),
			filepath.Join(own, "status"):    "Uid:\t0\t0\t0\t0\n",
			filepath.Join(own, "fdinfo/20"): "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:42 0 EOF\n",
		} {
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if err == nil {
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(own, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(lock, filepath.Join(own, "fd/20")); err != nil {
			t.Fatal(err)
		}
		if c.gone {
			go func() {
				time.Sleep(50 * time.Millisecond)
				_ = os.RemoveAll(own)
			}()
		}
		if got := FindUnattended(host, folder, l, c.late); got.Ended != c.kept || len(got.HeldBy) > 0 != c.kept {
			t.Errorf("one that %s: %+v", name, got)
		}
	}
}
