package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestCaptures: what others have recorded of real cards with nvidia-smi -q -x, whatever the card and the driver, can be shown,
// explained, diagnosed and decided about. What such a file taught is a case of its own elsewhere.
func TestCaptures(t *testing.T) {
	t.Parallel()
	gate.Need(t, "no nvidia libraries")
	dir, state := gate.CapturesFolder(t), stateFolder(t)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".xml") {
			return err
		}
		t.Run(strings.TrimPrefix(path, dir+"/"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bin := t.TempDir()
			writeFile(t, filepath.Join(bin, "nvidia-smi"), "#!/bin/sh\ncase \"$*\" in *-x*) exec cat '"+path+"' ;; esac\n", 0o755)
			ask := func(args ...string) runResult {
				cmd := gpuardCommand(t, state, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, args...)
				got := runCommand(t, cmd)
				t.Log(args, "\n", got.out, got.err)
				return got
			}
			s, _ := runStatus(t, gpuardCommand(t, state, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "status", "--json"))
			checkEqual(t, "devices", len(s.Devices), strings.Count(string(text), "<gpu id="))
			for _, args := range [][]string{{"status"}, {"explain", "CUDA_VISIBLE_DEVICES=0"}, {"doctor"}, {"run", "--dry-run", "--no-wait", "--", "true"}, {"run", "--dry-run", "--no-wait", "--mem", "1G", "--", "true"}} {
				if got := ask(args...); strings.Contains(got.err, "panic") || got.code > 122 || got.code == 2 {
					t.Errorf("%q ends with %d", args, got.code)
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
