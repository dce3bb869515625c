package linter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/core/visible"
)

// mostMemory is what lint may take however many files there are, in bytes.
const mostMemory = 150 << 20

// TestMemory: texts and their trees live no longer than their batch. These files hold 24 MB, and all their trees at once
// take several hundred.
func TestMemory(t *testing.T) {
	const variable = "GPUARD_TEST_LINT_ROOT"
	if root := os.Getenv(variable); root != "" {
		debug.SetGCPercent(100) // as in the program
		r := look(t, false, root)
		if r.Files != 1200 || len(r.Findings) != 1200 {
			t.Errorf("%d files, %d findings", r.Files, len(r.Findings))
		}
		return
	}

	root := t.TempDir()
	text := "export CUDA_VISIBLE_DEVICES=0-3\n" + strings.Repeat("python train.py --rate 0.1 \"$@\" | tee -a \"$log\"\n", 400)
	for i := range 1200 {
		err := os.WriteFile(filepath.Join(root, fmt.Sprintf("part%d.sh", i)), []byte(text), 0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemory$")
	child.Env = append(os.Environ(), variable+"="+root)
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	used := child.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%d MB", used>>20)
	if used > mostMemory && !raceEnabled {
		t.Errorf("%d MB, at most %d", used>>20, mostMemory>>20)
	}
}

// TestProgress: after each batch the files and findings so far are told.
func TestProgress(t *testing.T) {
	root := t.TempDir()
	for i := range maxBatchFiles + 1 {
		err := os.WriteFile(filepath.Join(root, fmt.Sprintf("a%04d.sh", i)), []byte("export CUDA_VISIBLE_DEVICES=0-1\n"), 0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	o := Options{Paths: []string{root}, Env: visible.Env(os.Environ())}
	o.Progress = func(files, findings int) { told = append(told, fmt.Sprint(files, " ", findings)) }
	_, err := Run(t.Context(), o)
	if want := "1000 1000, 1001 1001"; err != nil || strings.Join(told, ", ") != want {
		t.Errorf("%q, %v, not %q", told, err, want)
	}
}
