package leases

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/leftover"
	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// TestLookOfAnother: what another user wrote about sleeping processes is not believed, as when root asks in that user's
// home; and a named pipe there does not stop anything.
func TestLookOfAnother(t *testing.T) {
	host := &machine.Host{Proc: proc.New("/proc"), Env: []string{"XDG_STATE_HOME=" + t.TempDir()}}
	path := filepath.Join(host.HomePath("seen"), seenFile)
	self, err := host.Proc.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	boot, err := host.Proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	m := gpu.Machine{Processes: []gpu.Process{{PID: os.Getpid(), Start: self.Start, GPU: "GPU-1"}}}
	data, err := json.Marshal(sightingsFile{boot, []leftover.Sighting{{PID: os.Getpid(), Start: self.Start, First: 1, Look: 1, Busy: 1}}})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	sleeps := func() bool {
		t.Helper()
		seen, err := recordSightings(host, m)
		if err != nil || len(seen) != 1 {
			t.Fatal(seen, err)
		}
		return seen[0].First == 1
	}
	if !sleeps() {
		t.Error("one's own file is not read")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() { done <- sleeps() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a named pipe is waited for")
	}
	gate.Need(t, "root")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	if sleeps() {
		t.Error("another user's file is believed")
	}
}
