package mps_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/host/mps"
	"gpuard/test/fakegpu"
)

// installed puts the fake program first in PATH.
func installed(t *testing.T) *fakegpu.Driver {
	t.Helper()
	d := fakegpu.New(t, fakegpu.A100(0))
	for _, pair := range d.Env() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	return d
}

func TestControl(t *testing.T) {
	d := installed(t)
	ctx, uid, folder := t.Context(), os.Geteuid(), t.TempDir()
	c, err := mps.FindControl(ctx, "", folder, uid)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(folder, mps.FolderName(uid)); c.Pipe != want {
		t.Fatalf("pipe directory %s, want %s", c.Pipe, want)
	}
	if _, err := c.ListClients(ctx); err == nil || !strings.Contains(err.Error(), "Cannot find MPS control daemon") {
		t.Errorf("without a daemon: %v", err)
	}
	unlock, err := c.Lock()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds it running
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	t.Cleanup(func() { _ = c.QuitDaemon(context.Background()) })
	if found, err := mps.FindControl(ctx, c.Pipe, t.TempDir(), uid); err != nil || found.Pipe != c.Pipe {
		t.Errorf("a daemon of the user's own is not taken: %+v, %v", found, err)
	}

	job := exec.Command(d.Job, "--gpu", "0", "--mem", "1G")
	job.Env = append(os.Environ(), mps.PipeVariable+"="+c.Pipe)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Process.Kill() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		clients, err := c.ListClients(ctx)
		if err == nil && slices.Equal(clients, []int{job.Process.Pid}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("clients %v, %v, want %d", clients, err, job.Process.Pid)
		}
	}
	_, _ = job.Process.Kill(), job.Wait()
	if clients, err := c.ListClients(ctx); err != nil || len(clients) != 0 {
		t.Errorf("after its end: %v, %v", clients, err)
	}
	if err := c.QuitDaemon(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListClients(ctx); err == nil {
		t.Error("the daemon answers after its end")
	}
}

// TestOthersFolder: a folder of another user is refused, even if the environment names it.
func TestOthersFolder(t *testing.T) {
	installed(t)
	loose := t.TempDir()
	if err := os.Chmod(loose, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := mps.ControlAt(loose, os.Geteuid()); err == nil {
		t.Error("a folder that everybody may change is taken")
	}
	if _, err := mps.ControlAt(t.TempDir(), os.Geteuid()+1); err == nil {
		t.Error("another user's folder is taken")
	}
	c, err := mps.FindControl(t.Context(), loose, t.TempDir(), os.Geteuid())
	if err != nil || c.Pipe == loose {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestNoProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := mps.FindControl(t.Context(), "", t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "there is no nvidia-cuda-mps-control in PATH") {
		t.Error(err)
	}
}
