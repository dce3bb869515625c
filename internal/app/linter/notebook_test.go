package linter

import (
	"slices"
	"strings"
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

// TestNotebookOutputs: a notebook is measured without what its cells have put out.
func TestNotebookOutputs(t *testing.T) {
	gate.Need(t, "python3")
	cells := func(first, output string) string {
		return `{"cells": [{"cell_type": "markdown", "source": "` + first + `"},
 {"cell_type": "code", "source": "%env CUDA_VISIBLE_DEVICES=0-3", "outputs": ["` + output + `"]}
], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}`
	}
	long := strings.Repeat("x", 2*maxFileSize)
	root := lay(t, map[string]string{"outputs.ipynb": cells(long, long), "code.ipynb": strings.Replace(cells("", ""), "%env", "# "+long+"\\n%env", 1)})
	r := look(t, false, root)
	if got := found(root, r); !slices.Equal(got, []string{"outputs.ipynb mask-range"}) || r.Findings[0].Cell != 2 || len(r.Skipped) != 1 {
		t.Errorf("%q, %+v", got, r.Skipped)
	}
}
