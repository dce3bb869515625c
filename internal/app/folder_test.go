package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// TestMissingDriverComesFirst: where no device can be read, an unusable lease folder is not what has to be mended.
func TestMissingDriverComesFirst(t *testing.T) {
	a := written(t, gpu.Machine{}, map[string]string{"sys/kernel/random/boot_id": "00000000-0000-0000-0000-000000000000\n"})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	a.Env, a.PrivateState = []string{"GPUARD_STATE=" + file}, true
	spec := job.Spec{GPUs: 1}
	if _, err := a.claim(t.Context(), spec, subject{}); err == nil || !strings.Contains(err.Error(), "cannot use the state folder") {
		t.Errorf("with a driver: %v", err)
	}
	missing := &gpu.Unavailable{Cause: gpu.LibraryMissing, Text: "cannot find the driver"}
	a.Read = answering(gpu.Machine{}, missing)
	if _, err := a.claim(t.Context(), spec, subject{}); !errors.Is(err, missing) {
		t.Errorf("without one: %v", err)
	}
}

// TestUnprotected: the remedy makes the folder that everybody then uses, also while there are leases in the other one.
func TestUnprotected(t *testing.T) {
	a := written(t, invented(t, "demo:1xL4"), map[string]string{"self/ns/x": ""})
	a.PrivateState = true
	best := filepath.Join(a.Run, "gpuard")
	note := a.unprotected("/run/lock/gpuard", 4242)
	for _, part := range []string{"the user 4242 owns the lease folder /run/lock/gpuard", `sudo "$(command -v gpuard)" setup machine`} {
		if !strings.Contains(note, part) {
			t.Errorf("%q is not in %q", part, note)
		}
	}
	if note := a.unprotected("/run/lock/gpuard", 0); note != "" {
		t.Errorf("of root's folder: %s", note)
	}
	before, err := a.folder(gpu.Machine{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close() //nolint:errcheck // read only
	remedy := *a
	remedy.Env = []string{"GPUARD_STATE=" + best}
	for _, app := range []*App{&remedy, a} {
		f, err := app.folder(gpu.Machine{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if f.Path != best || before.Path == best || !strings.Contains(strings.Join(f.Others, " "), before.Path) {
			t.Errorf("leases go to %s beside %v, and went to %s", f.Path, f.Others, before.Path)
		}
		_ = f.Close()
	}
}

// TestFolderBehindALink: where another user has put a link on the way to the state of an invented machine, nothing is made behind it.
func TestFolderBehindALink(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own, home := t.TempDir(), t.TempDir()
	link := filepath.Join(own, "machines")
	if err := errors.Join(os.Symlink(home, link), os.Lchown(link, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	m := invented(t, "demo:1xL4")
	a := written(t, m, nil)
	a.Machine, a.Env = "demo:1xL4", []string{"GPUARD_STATE=" + own}
	if _, err := a.folder(m, true); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link of uid 4003") {
		t.Errorf("%v", err)
	}
	if names, err := os.ReadDir(home); err != nil || len(names) != 0 {
		t.Errorf("there is %v now, %v", names, err)
	}
}

// TestProjectsInAFolderOfAnotherUser: who owns the folder above could put another project in the place of the caller's, and its
// commands would be started.
func TestProjectsInAFolderOfAnotherUser(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own := filepath.Join(t.TempDir(), "state")
	a := &App{Env: []string{"GPUARD_STATE=" + own}}
	if _, err := a.Projects(false); err != nil {
		t.Errorf("where there is none yet: %v", err)
	}
	if _, err := a.Projects(true); err != nil {
		t.Errorf("in a folder of one's own: %v", err)
	}
	if err := os.Chown(own, mallory, mallory); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{false, true} {
		if _, err := a.Projects(create); err == nil || !strings.HasPrefix(err.Error(), "cannot keep projects in GPUARD_STATE="+own+": "+own+" belongs to uid 4003") {
			t.Errorf("%v", err)
		}
	}
}
