package notebook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/lint"
)

// book4 is a notebook with these cells of code.
func book4(t testing.TB, language string, cells ...string) []byte {
	t.Helper()
	type any4 = map[string]any
	var list []any4
	for _, c := range cells {
		list = append(list, any4{"cell_type": "code", "source": strings.SplitAfter(c, "\n")})
	}
	b, err := json.Marshal(any4{"cells": list, "nbformat": 4, "metadata": any4{"language_info": any4{"name": language}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func said(c lint.Cell) string {
	out := []string{string(c.Text)}
	for _, s := range c.Steps {
		text := s.Value.Text
		if s.Do == lint.Command {
			text = s.Words[0].Text
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d:%d-%d %s %s %q %v", s.At.Line, s.At.Column, s.At.EndColumn, s.Do, s.Name, text, s.Value.Known)))
	}
	return strings.Join(out, "|")
}

// TestMagic: what is no Python is blanked out, and what it does is said with its place.
func TestMagic(t *testing.T) {
	for text, want := range map[string]string{
		"x = 1\ny = x % 2":                             "x = 1\ny = x % 2",
		"%env CUDA_VISIBLE_DEVICES=0,1\nx":             "pass\nx|1:1-30 set CUDA_VISIBLE_DEVICES \"0,1\" true",
		"%set_env CUDA_VISIBLE_DEVICES \"0\"":          "pass|1:1-34 set CUDA_VISIBLE_DEVICES \"\\\"0\\\"\" true",
		"  %env A = $gpu":                              "  pass|1:3-16 set A \"$gpu\" false",
		"%env A":                                       "pass",
		"%env":                                         "pass",
		"%matplotlib inline\nimport torch":             "pass\nimport torch",
		"!nvidia-smi -L\nx":                            "pass\nx|1:2-15 script  \"nvidia-smi -L\" true",
		"if x:\n    !pip install a":                    "if x:\n    pass|2:6-19 script  \"pip install a\" true",
		"out = !ls -l":                                 "pass|1:8-13 script  \"ls -l\" true",
		"out = %sql select 1":                          "pass",
		"!CUDA_VISIBLE_DEVICES={gpu} python a.py":      "pass|1:2-40 command  \"CUDA_VISIBLE_DEVICES={gpu} python a.py\" false",
		"!python a.py \\\n  --x 1\ny":                  "pass\n\ny|1:2-15 command  \"python a.py \\\\\" false",
		"%%bash\nexport A=1\nb":                        "|2:1-2 script  \"export A=1\\nb\" true",
		"%%script bash\na":                             "|2:1-2 script  \"a\" true",
		"%%bash":                                       "|2:1-1 script  \"\" true",
		"%%time\nimport torch":                         "\nimport torch",
		"%%writefile a.py\nimport torch":               "",
		"%%html\n<b>":                                  "",
		"torch?\nx.y?\n?torch":                         "pass\npass\npass",
		"s = '''\n%env A=1\n!ls\n'''\n%env B=2":        "s = '''\n%env A=1\n!ls\n'''\npass|5:1-9 set B \"2\" true",
		"s = (a\n  % b)\nt = a \\\n  % b":              "s = (a\n  % b)\nt = a \\\n  % b",
		"f(\"(\", '#', \"\"\"[\"\"\") # (\n%env A=1":   "f(\"(\", '#', \"\"\"[\"\"\") # (\npass|2:1-9 set A \"1\" true",
		"x = 'a\\\n%env A=1'\n%env B=2":                "x = 'a\\\n%env A=1'\npass|3:1-9 set B \"2\" true",
		"x = a if b != c else d\nassert a != 1, \"!\"": "x = a if b != c else d\nassert a != 1, \"!\"",
	} {
		cells, err := ReadCells(book4(t, "python", text))
		if err != nil || len(cells) != 1 || said(cells[0]) != want {
			t.Errorf("%q:\n got %q %v\nwant %q", text, said(cells[0]), err, want)
		}
	}
}

// TestRead: versions of the format, other languages, and what is no notebook.
func TestRead(t *testing.T) {
	three := `{"nbformat": 3, "metadata": {}, "worksheets": [{"cells": [{"cell_type": "markdown", "source": "x"}, {"cell_type": "code", "language": "python", "input": ["import os\n", "x"]}]}]}`
	cells, err := ReadCells([]byte(three))
	if err != nil || len(cells) != 1 || cells[0].Number != 2 || string(cells[0].Text) != "import os\nx" {
		t.Errorf("format 3: %+v %v", cells, err)
	}
	if cells, err := ReadCells(book4(t, "R", "library(torch)")); err != nil || len(cells) != 0 {
		t.Errorf("another language: %+v %v", cells, err)
	}
	if cells, err := ReadCells([]byte(`{"cells": []}`)); err != nil || len(cells) != 0 {
		t.Errorf("an empty one: %+v %v", cells, err)
	}
	for _, src := range []string{"", "null", "[]", "{}", "1", `{"cells": 1}`, `{"cells": [1]}`, `{"cells": [{"cell_type": "code", "source": 1}]}`} {
		if cells, err := ReadCells([]byte(src)); err == nil || !strings.HasPrefix(err.Error(), "cannot read the notebook: ") {
			t.Errorf("%q: %+v %v", src, cells, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("%env A=1\n!ls\nx = '''\n%time\n'''", "")
	f.Add("%%bash\na", `{"cells": [{"cell_type": "code", "source": ["a", "b"]}]}`)
	f.Fuzz(func(t *testing.T, text, whole string) {
		_, _ = ReadCells([]byte(whole))
		cells, err := ReadCells(book4(t, "python", text))
		if err != nil || len(cells) != 1 {
			t.Fatal(len(cells), err)
		}
		rows := strings.Count(text, "\n") + 1
		if n := strings.Count(string(cells[0].Text), "\n") + 1; n != rows && len(cells[0].Text) > 0 {
			t.Errorf("%q has %d lines and becomes %d: places in it are wrong", text, rows, n)
		}
		for _, s := range cells[0].Steps {
			if s.At.Line < 1 || s.At.Column < 1 || s.At.EndLine < s.At.Line || s.At.EndLine == s.At.Line && s.At.EndColumn < s.At.Column {
				t.Errorf("%q: %+v", text, s.At)
			}
		}
	})
}
