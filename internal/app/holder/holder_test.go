package holder

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// TestStarterIsNoHolder: who started the holder has the lock of the lease too, and is not among the processes that are left.
func TestStarterIsNoHolder(t *testing.T) {
	for name, starter := range map[string]int{"supervises": os.Getpid(), "another": 1} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := store.CreateFolder(dir); err != nil {
			t.Fatal(err)
		}
		folder, err := store.Open(dir, nil, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		held, err := folder.Claim("boot", nil, func(store.View) (job.Lease, error) {
			return job.Lease{UID: uint32(os.Geteuid()), PID: os.Getpid(), Boot: "boot", Devices: []gpu.UUID{"GPU-a"}, Namespace: proc.New("/proc").PIDNamespace()}, nil //nolint:gosec // a uid
		})
		if err != nil {
			t.Fatal(err)
		}
		left := exec.Command("sleep", "60")
		left.ExtraFiles = []*os.File{held.Lock}
		if err := left.Start(); err != nil {
			t.Fatal(err)
		}
		err = endOrNoteHolders(folder, held.Lease, starter, time.Second)
		lease, found := folder.Own(held.Lease.ID)
		_, _ = left.Process.Kill(), left.Wait()
		_ = held.Lock.Close()
		var names []int
		for _, b := range lease.HeldBy {
			names = append(names, b.PID)
		}
		want := 2
		if starter == os.Getpid() {
			want = 1
		}
		if err != nil || !found || len(names) != want {
			t.Errorf("%s: %v, %t, held by %v, this is %d", name, err, found, names, os.Getpid())
		}
	}
}
