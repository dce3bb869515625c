package services

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/service"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/projectdir"
)

// TestKeeperThatLeaves: a keeper is dead before its lock is free. An end of what is wanted that it wrote counts; else
// the lock is that of another keeper, which has not written yet.
func TestKeeperThatLeaves(t *testing.T) {
	host := &machine.Host{Proc: proc.New("/proc")}
	boot, err := host.Proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	folder, err := projectdir.MakeFolder(filepath.Join(t.TempDir(), "projects"), "lab-0")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := folder.LockKeeper("node")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Release()
	for _, c := range []struct {
		hash        string
		wrote, seen service.State
	}{
		{"new", service.Done, service.Done},
		{"new", service.Failed, service.Failed},
		{"new", service.Running, ""},
		{"old", service.Done, ""},
	} {
		r := service.Record{Hash: c.hash, State: c.wrote, Boot: boot, Namespace: host.Proc.PIDNamespace(), Keeper: service.Process{PID: dead.Process.Pid, Start: 1}, Since: time.Now()}
		if err := folder.SetRecord("node", r); err != nil {
			t.Fatal(err)
		}
		if got := newStateReader(host, folder).readInstance("node", "new"); !got.Kept || got.State != c.seen {
			t.Errorf("%s of the %s start is seen as %q, want %q", c.wrote, c.hash, got.State, c.seen)
		}
	}
}
