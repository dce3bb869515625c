package linter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

// mostMemory is what lint may take however many files there are, in KiB.
const mostMemory = 150 << 10

// TestMemory: the text and the steps of a file live no longer than they are looked at. All those of these files at once take
// several hundred megabytes.
func TestMemory(t *testing.T) {
	const variable, files = "GPUARD_TEST_LINT_ROOT", 200
	if root := os.Getenv(variable); root != "" {
		debug.SetGCPercent(100) // as in the program
		r := look(t, false, root)
		if r.Files != files || len(r.Findings) != files {
			t.Errorf("%d files, %d findings", r.Files, len(r.Findings))
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		fmt.Println("peak:", strings.Fields(peak)[0])
		return
	}

	root := t.TempDir()
	text := "export CUDA_VISIBLE_DEVICES=0-3\n" + strings.Repeat("python train.py --rate 0.1 \"$@\" | tee -a \"$log\"\n", 400)
	for i := range files {
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
	// not from wait: that counts what this process had when it started the child
	_, peak, _ := strings.Cut(string(out), "peak: ")
	used := 0
	_, err = fmt.Sscan(peak, &used)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%d MB", used>>10)
	if used > mostMemory && !raceEnabled {
		t.Errorf("%d MB, at most %d", used>>10, mostMemory>>10)
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
	_, err := RunLint(t.Context(), o)
	if want := "1000 1000, 1001 1001"; err != nil || strings.Join(told, ", ") != want {
		t.Errorf("%q, %v, not %q", told, err, want)
	}
}
