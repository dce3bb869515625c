package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// TestUnprotected: the command in the remedy makes the folder that all users use from then on, even while the other one
// has leases.
func TestUnprotected(t *testing.T) {
	h := written(t, hosts.InventMachine(t, "demo:1xL4"), map[string]string{"self/ns/x": ""})
	h.PrivateState = true
	best := filepath.Join(h.Run, "gpuard")
	note := h.OwnerNote("/run/lock/gpuard", 4242)
	for _, part := range []string{"the user 4242 owns the lease folder /run/lock/gpuard", `sudo "$(command -v gpuard)" setup machine`} {
		if !strings.Contains(note, part) {
			t.Errorf("%q is not in %q", part, note)
		}
	}
	if note := h.OwnerNote("/run/lock/gpuard", 0); note != "" {
		t.Errorf("of root's folder: %s", note)
	}
	before, err := h.Folder(gpu.Machine{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // read only
	remedy := *h
	remedy.Env = []string{"GPUARD_STATE=" + best}
	for _, app := range []*Host{&remedy, h} {
		f, err := app.Folder(gpu.Machine{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if f.Path != best || before.Path == best || !strings.Contains(strings.Join(f.Others, " "), before.Path) {
			t.Errorf("leases go to %s beside %v, and went to %s", f.Path, f.Others, before.Path)
		}
		_ = f.Close()
	}
}

// TestFolderBehindALink: where another user has put a link into the path of the state of an invented machine, nothing
// is made at its target.
func TestFolderBehindALink(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own, home := t.TempDir(), t.TempDir()
	link := filepath.Join(own, "machines")
	if err := errors.Join(os.Symlink(home, link), os.Lchown(link, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	m := hosts.InventMachine(t, "demo:1xL4")
	h := written(t, m, nil)
	h.Machine, h.Env = "demo:1xL4", []string{"GPUARD_STATE=" + own}
	if _, err := h.Folder(m, true); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link of uid 4003") {
		t.Errorf("%v", err)
	}
	if names, err := os.ReadDir(home); err != nil || len(names) != 0 {
		t.Errorf("there is %v now, %v", names, err)
	}
}

// written is a host with the devices of m and the processes of files, which are below /proc.
func written(t *testing.T, m gpu.Machine, files map[string]string) *Host {
	t.Helper()
	return &Host{
		Readers: Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return m, nil }},
		Proc:    proc.New(hosts.WriteRoot(t, files)), Run: t.TempDir(), Tmp: t.TempDir(), Messages: Messages{Say: func(string) {}},
	}
}

// TestFolderAtOnce: several that complete a folder of GPUARD_STATE at the same time all get it, whether it is empty or something of a user is
// in it already.
func TestFolderAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 100 {
		dir := t.TempDir()
		if i%2 == 0 {
			if err := os.Mkdir(filepath.Join(dir, "user-0"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				h := &Host{Proc: proc.New("/proc"), Env: []string{"GPUARD_STATE=" + dir}, Run: "/run", Tmp: "/tmp"}
				f, err := h.Folder(gpu.Machine{}, true)
				if err != nil {
					t.Error(i, err)
					return
				}
				_ = f.Close()
			})
		}
		if all.Wait(); t.Failed() {
			return
		}
	}
}
