package sweep

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/runner"
	"gpuard/internal/host/proc"
)

// TestSweepOfAnotherHost: runs of a sweep may go on where they were started, so that no other host resumes it. What
// another scheduler starts may go on anywhere.
func TestSweepOfAnotherHost(t *testing.T) {
	dir := t.TempDir()
	on := func(id string, env ...string) *Sweep {
		root := t.TempDir()
		err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte(strings.Repeat(id, 32)), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return &Sweep{Folder: &runner.Folder{Dir: dir, Host: &machine.Host{Root: root, Proc: proc.New("/proc"), Env: env}}}
	}
	const slurm = "SLURM_JOB_ID=7"
	for _, s := range []*Sweep{on("a", slurm), on("b", slurm), on("a"), on("a"), on("a", slurm)} {
		if err := s.takeHost(); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(dir, hostFile)
	for _, s := range []*Sweep{on("b"), on("b", slurm)} {
		if err := s.takeHost(); err == nil || !strings.Contains(err.Error(), "resume it there: gpuard sweep --resume "+dir) || !strings.Contains(err.Error(), "rm "+path) {
			t.Error(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(on("b").takeHost(), on("b").takeHost()); err != nil {
		t.Error(err)
	}
	if err := on("a").takeHost(); err == nil {
		t.Error("both hosts have it")
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, boot, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(path, []byte("renamed-0123456789ab\n"+boot), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := on("b").takeHost(); err != nil && strings.TrimSpace(boot) != "" {
		t.Errorf("the same machine under another name: %v", err)
	}
	if err := os.WriteFile(path, []byte("renamed-0123456789ab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := on("b").takeHost(); err == nil {
		t.Error("another host's, as an earlier gpuard wrote it, is taken")
	}
}
