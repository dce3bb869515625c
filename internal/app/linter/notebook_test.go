package linter

import (
	"testing"

	"gpuard/internal/core/lint"
	"gpuard/internal/gate"
)

// TestNotebook: lines are shown and silenced as they are in their cell, magics too; notebooks are not fixed.
func TestNotebook(t *testing.T) {
	gate.Need(t, "python3")
	text := `{"cells": [
 {"cell_type": "code", "source": ["import os\n", "%env CUDA_VISIBLE_DEVICES=0-3\n"]},
 {"cell_type": "code", "source": ["# gpuard:ignore mask-range\n", "%env CUDA_VISIBLE_DEVICES=0-3\n"]},
 {"cell_type": "code", "source": ["!CUDA_VISIBLE_DEVICES=0-1 python x.py  # gpuard:ignore mask-range\n"]}
], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}`
	root := lay(t, map[string]string{"demo.ipynb": text})
	r := look(t, true, root)
	if len(r.Findings) != 1 || r.Silenced != 2 || texts(t, root)["demo.ipynb"] != text {
		t.Fatalf("%+v", r)
	}
	f := r.Findings[0]
	if f.Kind != lint.Notebook || f.Cell != 1 || f.Line != 2 || f.Now != "%env CUDA_VISIBLE_DEVICES=0-3" || f.Fixable || f.Fixed {
		t.Errorf("%+v", f)
	}
}
