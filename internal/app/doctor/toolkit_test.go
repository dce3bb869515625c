package doctor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/gate"
	"gpuard/test/executable"
)

// TestToolkitAsked: an nvcc whose folder has no file with a version is asked. One that hangs, fails or belongs to
// another person leaves the version unknown.
func TestToolkitAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, file, want string
		foreign            bool
	}{
		"asked":     {script: "echo nvcc: NVIDIA '(R)' Cuda compiler driver; echo 'Cuda compilation tools, release 12.4, V12.4.131'", want: "12.4"},
		"in a file": {script: "echo release 11.8", file: `{"cuda": {"version": "12.6.1"}}`, want: "12.6"},
		"hangs":     {script: "exec sleep 60"},
		"fails":     {script: "echo release 12.4; exit 1"},
		"no number": {script: "echo release"},
		"foreign":   {script: "echo release 12.4", foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			bin := filepath.Join(root, "usr/local/cuda-x/bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(bin, "nvcc")
			executable.Write(t, program, []byte("#!/bin/sh\n"+c.script+"\n"))
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(root, "usr/local/cuda-x/version.json"), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.foreign {
				gate.Need(t, "root")
				if err := os.Chown(program, 4242, 4242); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			found := siteToolkits(t.Context(), &machine.Host{Root: root})
			if len(found.Found) != 1 || found.Found[0].Version != c.want {
				t.Errorf("%+v, want version %q", found, c.want)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
