package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
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
