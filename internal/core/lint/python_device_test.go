package lint_test

import (
	"testing"

	"gpuard/internal/core/lint"
)

// TestDeviceEdits: a number is mended where it can only be a device's; .to(1) may be the method of something else.
func TestDeviceEdits(t *testing.T) {
	for _, c := range []struct {
		call, raw string
		edits     int
	}{{".cuda", "1", 1}, {".to", `"cuda:1"`, 1}, {".to", "1", 0}} {
		text := c.raw
		if c.raw != "1" {
			text = "cuda:1"
		}
		file := lint.File{Path: "a.py", Kind: lint.Python, Steps: []lint.Step{
			{Do: lint.Set, Name: "CUDA_VISIBLE_DEVICES", At: lint.Place{Line: 1}, Value: lint.Value{Raw: `"0"`, Text: "0", Known: true}},
			{Do: lint.Import, Name: "torch", At: lint.Place{Line: 2}},
			{Do: lint.Call, Name: c.call, At: lint.Place{Line: 3}, Args: []lint.Arg{{Value: lint.Value{Raw: c.raw, Text: text, Known: true, At: lint.Place{Line: 3, Column: 5}}}}},
		}}
		found := 0
		for _, f := range lint.ApplyRules(file, true) {
			if f.Code == "device-beyond-mask" {
				found++
				if len(f.Edits) != c.edits {
					t.Errorf("%s(%s): %d edits, want %d", c.call, c.raw, len(f.Edits), c.edits)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s(%s): %d findings, want 1", c.call, c.raw, found)
		}
	}
}
