package main

import (
	"os"
	"path/filepath"
	"testing"

	"gpuard/internal/gate"
)

// TestLintCodes: 1 says that there are findings, 2 that something that was named could not be read, so that silence is no praise.
func TestLintCodes(t *testing.T) {
	t.Parallel()
	gate.Need(t, "python3")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"binary.py": "\x00\x01\x02", "broken.ipynb": `{"cells": [`,
		"mask.sh": "#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=0-1\npython train.py\n", "fine.py": "import torch\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"binary.py": 2, "broken.ipynb": 2, "mask.sh": 1, "fine.py": 0} {
		got := runCommand(t, gpuardCommand(t, stateFolder(t), nil, "lint", filepath.Join(dir, name)))
		checkEqual(t, name+": "+got.out+got.err, got.code, want)
	}
}
