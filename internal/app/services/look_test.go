package services

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/app"
	"gpuard/internal/core/service"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/project"
)

// TestKeeperThatLeaves: a keeper is dead before its lock is free. What it wrote last counts if that was an end; else the lock is
// that of another keeper, which has not written yet.
func TestKeeperThatLeaves(t *testing.T) {
	a := &app.App{Proc: proc.New("/proc")}
	boot, err := a.Proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	folder, err := project.Make(filepath.Join(t.TempDir(), "projects"), "lab-0")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := folder.Keep("node")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Release()
	for _, c := range []struct {
		boot        string
		wrote, seen service.State
	}{
		{boot, service.Done, service.Done},
		{boot, service.Failed, service.Failed},
		{boot, service.Running, ""},
		{"another", service.Done, ""},
	} {
		r := service.Record{State: c.wrote, Boot: c.boot, Namespace: a.Proc.Namespace(), Keeper: service.Process{PID: dead.Process.Pid, Start: 1}, Since: time.Now()}
		if err := folder.SetRecord("node", r); err != nil {
			t.Fatal(err)
		}
		if got := newLook(a, folder).one("node"); !got.Kept || got.State != c.seen {
			t.Errorf("%s of boot %s is seen as %q, want %q", c.wrote, c.boot, got.State, c.seen)
		}
	}
}
