package linter

import (
	"maps"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestInstead: a corrected line is the whole line, as it should be written.
func TestInstead(t *testing.T) {
	for name, c := range map[string]struct{ file, text, code, want string }{
		"sudo":             {"a.sh", "CUDA_VISIBLE_DEVICES=1 sudo python t.py > log 2>&1 &\n", "sudo-drops-variable", "sudo CUDA_VISIBLE_DEVICES=1 python t.py > log 2>&1 &"},
		"sudo, two":        {"a.sh", "CUDA_VISIBLE_DEVICES=1 A=2 sudo python t.py | tee log\n", "sudo-drops-variable", "A=2 sudo CUDA_VISIBLE_DEVICES=1 python t.py | tee log"},
		"sudo, exported":   {"a.sh", "export CUDA_VISIBLE_DEVICES=1\ncd x && sudo python t.py >log # why\n", "sudo-drops-variable", "cd x && sudo --preserve-env=CUDA_VISIBLE_DEVICES python t.py >log # why"},
		"docker":           {"a.sh", "if x; then docker run --gpus device=0,1 i >l 2>&1 & fi\n", "gpus-list-unquoted", `if x; then docker run --gpus '"device=0,1"' i >l 2>&1 & fi`},
		"docker, goes on":  {"a.sh", "docker run \\\n  --gpus 0 \\\n  i python t.py\n", "gpus-zero", "  --gpus device=0 \\"},
		"chain, idle":      {"a.sh", "CUDA_VISIBLE_DEVICES=1 cd p && nohup python t.py > log 2>&1 &\n", "prefix-on-first-command", "cd p && CUDA_VISIBLE_DEVICES=1 nohup python t.py > log 2>&1 &"},
		"chain, both":      {"a.sh", "CUDA_VISIBLE_DEVICES=1 python train.py >a && B=1 python eval.py >b\n", "prefix-on-first-command", "CUDA_VISIBLE_DEVICES=1 python train.py >a && CUDA_VISIBLE_DEVICES=1 B=1 python eval.py >b"},
		"foreign":          {"a.sh", "CUDA_VISIBLE_DEVICES = 1 python t.py > log 2>&1 &\n", "foreign-assignment", "CUDA_VISIBLE_DEVICES=1 python t.py > log 2>&1 &"},
		"foreign, alone":   {"a.sh", "  setenv CUDA_VISIBLE_DEVICES 1 && python t.py\n", "foreign-assignment", "  export CUDA_VISIBLE_DEVICES=1 && python t.py"},
		"export":           {"a.sh", "CUDA_VISIBLE_DEVICES=1; python t.py\n", "variable-not-exported", "export CUDA_VISIBLE_DEVICES=1; python t.py"},
		"export, computed": {"a.sh", "CUDA_VISIBLE_DEVICES=$(pick) || exit\npython t.py\n", "variable-not-exported", "export CUDA_VISIBLE_DEVICES && CUDA_VISIBLE_DEVICES=$(pick) || exit"},
		"export, two":      {"a.sh", "A=1 CUDA_VISIBLE_DEVICES=1\npython t.py\n", "variable-not-exported", ""},
		"image, quoted":    {"Dockerfile", "FROM a\nRUN export \"CUDA_VISIBLE_DEVICES=1\"\n", "export-lost-with-step", `ENV CUDA_VISIBLE_DEVICES="1"`},
		"nvidia":           {"a.sh", "NVIDIA_VISIBLE_DEVICES=1 python t.py > log\n", "nvidia-variable-outside-container", "CUDA_VISIBLE_DEVICES=1 python t.py > log"},
		"nvidia, quoted":   {"a.sh", "export \"NVIDIA_VISIBLE_DEVICES=1\"\npython t.py > log\n", "nvidia-variable-outside-container", "export CUDA_VISIBLE_DEVICES=1"},
		"unit":             {"a.service", "[Service]\nExecStart=-/usr/bin/docker run --gpus device=0,1 i\n", "gpus-list-unquoted", `ExecStart=-/usr/bin/docker run --gpus '"device=0,1"' i`},
		"unit, sudo":       {"a.service", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1\nExecStart=/bin/sh -c 'CUDA_VISIBLE_DEVICES=1 sudo python t.py > log'\n", "sudo-drops-variable", "ExecStart=/bin/sh -c 'sudo CUDA_VISIBLE_DEVICES=1 python t.py > log'"},
		"workflow":         {".github/workflows/a.yml", "on: push\njobs:\n  a:\n    steps:\n      - run: docker run --gpus device=0,1 i > log # why\n", "gpus-list-unquoted", `      - run: docker run --gpus '"device=0,1"' i > log # why`},
		"workflow, quoted": {".github/workflows/a.yml", "on: push\njobs:\n  a:\n    steps:\n      - run: \"docker run --gpus device=0,1 i\"\n", "gpus-list-unquoted", `docker run --gpus '"device=0,1"' i`},
		"workflow, block":  {".github/workflows/a.yml", "on: push\njobs:\n  a:\n    steps:\n      - run: |\n          CUDA_VISIBLE_DEVICES=1 cd p && python t.py >l\n", "prefix-on-first-command", "          cd p && CUDA_VISIBLE_DEVICES=1 python t.py >l"},
		"workflow, export": {".github/workflows/a.yml", "on: push\njobs:\n  a:\n    steps:\n      - run: export CUDA_VISIBLE_DEVICES=1\n      - run: python t.py\n", "export-lost-with-step", `      - run: echo "CUDA_VISIBLE_DEVICES=1" >> "$GITHUB_ENV"`},
		"run":              {"Dockerfile", "FROM a\nRUN CUDA_VISIBLE_DEVICES=1 cd p && python t.py > log\n", "prefix-on-first-command", "RUN cd p && CUDA_VISIBLE_DEVICES=1 python t.py > log"},
	} {
		t.Run(name, func(t *testing.T) {
			read := Options{}.parseAll(t.Context(), []sourceFile{{path: c.file, kind: kindByName(c.file), text: []byte(c.text)}})
			var r Report
			r.addFile(&read[0])
			for _, f := range r.Findings {
				if f.Code == c.code {
					if f.Instead != c.want {
						t.Errorf("\n got %q\nwant %q", f.Instead, c.want)
					}
					return
				}
			}
			t.Errorf("no %s: %+v", c.code, r)
		})
	}
}

// TestWindows: line ends of Windows stay; shell scripts with them, and files with a byte order mark, are not mended.
func TestWindows(t *testing.T) {
	unit := "[Service]\r\nEnvironment=CUDA_VISIBLE_DEVICES=0-1\r\nExecStart=/a/python t.py\r\n"
	given := map[string]string{"a.service": unit, "b.service": "\ufeff" + unit, "a.sh": "export CUDA_VISIBLE_DEVICES=0-1\r\npython t.py\r\n"}
	root := lay(t, given)
	r := look(t, true, root)
	given["a.service"] = strings.Replace(unit, "0-1", "0,1", 1)
	if got := texts(t, root); len(r.Findings) != 3 || !maps.Equal(got, given) {
		t.Errorf("%q\n%+v", got, r)
	}
}

// TestInsteadInNotebook: the same holds in cells.
func TestInsteadInNotebook(t *testing.T) {
	gate.Need(t, "python3")
	text := `{"cells": [{"cell_type": "code", "source": ["import os\n", "  !CUDA_VISIBLE_DEVICES=1 cd p && python t.py > log\n"]},
 {"cell_type": "code", "source": ["%%bash\n", "setenv CUDA_VISIBLE_DEVICES 1\n", "python t.py"]}
], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}`
	r := look(t, false, lay(t, map[string]string{"demo.ipynb": text}))
	if len(r.Findings) != 2 || r.Findings[0].Instead != "  !cd p && CUDA_VISIBLE_DEVICES=1 python t.py > log" || r.Findings[1].Instead != "export CUDA_VISIBLE_DEVICES=1" {
		t.Errorf("%+v", r)
	}
}
