package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gpuard/internal/gate"
)

// TestMain: started by itself this binary is the program.
func TestMain(m *testing.M) {
	if os.Getenv("TRY") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestTry: a shell that evaluates the answer sees four devices, a changed file is seen by the next program, and a
// folder that is there already is left alone.
func TestTry(t *testing.T) {
	gate.Need(t, "cc")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "it's new")
	const script = `eval "$(TRY=1 "$0" "$1")" && nvidia-smi --query-gpu=index --format=csv,noheader &&
echo 91 >"$FAKEGPU_DIR/gpus/2/temperature" && nvidia-smi -i 2 --query-gpu=temperature.gpu --format=csv,noheader && echo "${GPUARD_STATE#"$1"}"`
	cmd := exec.Command("sh", "-c", script, self, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "0\n1\n2\n3\n91\n/leases\n" {
		t.Errorf("the shell says %q, %v", out, err)
	}
	again := exec.Command(self, dir)
	again.Env = append(os.Environ(), "TRY=1")
	if out, err := again.Output(); err == nil || len(out) > 0 {
		t.Errorf("a folder that is there is used again: %q, %v", out, err)
	}
}
