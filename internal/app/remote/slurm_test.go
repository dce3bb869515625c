package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/test/executable"
)

// TestForgotten: a job that squeue does not know any more is what the accounting says; without one it is unknown, and
// nothing is said of it where the commands ask another cluster.
func TestForgotten(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	program := func(name, script string) { executable.Write(t, filepath.Join(dir, name), []byte("#!/bin/sh\n"+script)) }
	program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
	program("scontrol", "echo 'ClusterName = one'; echo 'MinJobAge = 300 sec'\n")
	program("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1\n")
	s, err := Open(&machine.Host{Env: os.Environ(), Root: ""}, "slurm")
	if err != nil {
		t.Fatal(err)
	}
	asked := []AskedJob{{Away: batchlog.Away{Engine: "slurm", ID: "12_3", Place: "one"}, Submitted: time.Now()}}
	told, err := s.Look(t.Context(), asked)
	if err != nil || told[0].State != batchlog.Unknown || !strings.Contains(told[0].Why, "it forgets one 300 sec after its end") {
		t.Errorf("without accounting: %+v, %v", told, err)
	}
	asked[0].Place = "two"
	if told, err := s.Look(t.Context(), asked); err == nil || !strings.Contains(err.Error(), "ask the cluster one now") {
		t.Errorf("another cluster: %+v, %v", told, err)
	}
	asked[0].Place = "one"
	program("sacct", "echo '12_3|FAILED|3:0|2026-11-24T23:18:33|2026-11-24T23:18:47|n1'\n")
	told, err = s.Look(t.Context(), asked)
	if err != nil || told[0].State != batchlog.Broken || told[0].Exit != 3 || told[0].Node != "n1" || told[0].Ended.Sub(*told[0].Began) != 14*time.Second {
		t.Errorf("with accounting: %+v, %v", told, err)
	}
	program("squeue", "echo 'squeue: error: Unable to contact slurm controller (connect failure)' >&2; exit 1\n")
	if told, err := s.Look(t.Context(), asked); err == nil {
		t.Errorf("no controller: %+v", told)
	}
	asked[0].ID, asked[0].Submitted = "", time.Now().Add(-time.Hour)
	program("squeue", "exit 0\n")
	if told, err = s.Look(t.Context(), asked); err != nil || told[0].State != batchlog.Unknown {
		t.Errorf("never handed in: %+v, %v", told, err)
	}
}
