package lint_test

import (
	"testing"

	"gpuard/internal/core/lint"
)

// TestDeviceNotMended: whether the number or the list is wrong a person has to decide.
func TestDeviceNotMended(t *testing.T) {
	for _, c := range []struct{ call, raw string }{{".cuda", "1"}, {".to", `"cuda:1"`}, {".to", "1"}} {
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
				if len(f.Edits) > 0 {
					t.Errorf("%s(%s) is mended: %v", c.call, c.raw, f.Edits)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s(%s): %d findings, want 1", c.call, c.raw, found)
		}
	}
}
