package python_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/lint"
	"gpuard/internal/gate"
	"gpuard/internal/text/python"
)

// ask has one Python read files, as host/interpreter does.
func ask(t testing.TB, path string, files []python.Source) []python.Reading {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, "-I", "-S", "-B", "-W", "ignore", "-c", python.Script())
	cmd.Stdin = bytes.NewReader(python.EncodeRequest(files))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, errs.String())
	}
	read, err := python.DecodeAnswer(files, answer)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func script(text string) python.Source {
	return python.Source{Path: "a.py", Kind: lint.Python, Cells: []lint.Cell{{Text: []byte(text)}}}
}

// said writes a step in one line: what it does, to what, and how.
func said(s lint.Step) string {
	value := func(v lint.Value) string {
		switch {
		case v.Known:
			return fmt.Sprintf("%q", v.Text)
		case v.From != "":
			return "<" + v.From + ">"
		}
		return "?"
	}
	words := []string{fmt.Sprint(s.At.Line), string(s.Do), s.Name}
	switch s.Do {
	case lint.Set, lint.Override, lint.Script:
		words = append(words, value(s.Value))
	case lint.Call:
		for _, a := range s.Args {
			word := a.Name + "=" + value(a.Value)
			if a.Ref != "" {
				word += "@" + a.Ref
			}
			words = append(words, strings.TrimPrefix(word, "="))
		}
	}
	for _, w := range s.Words {
		words = append(words, value(w))
	}
	for _, w := range s.With {
		words = append(words, "with", w.Name, value(w.Value))
	}
	if s.In != "" && s.Do != lint.Define {
		words = append(words, "in", s.In)
	}
	if s.Maybe {
		words = append(words, "maybe")
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// TestSteps: what each spelling says, by the default Python.
func TestSteps(t *testing.T) {
	gate.Need(t, "python3")
	cases := spellings()
	var files []python.Source
	for _, c := range cases {
		files = append(files, script(c.text))
	}
	for i, read := range ask(t, "python3", files) {
		var got []string
		for _, s := range read.File.Steps {
			if s.Do != lint.Read { // TestReads
				got = append(got, said(s))
			}
		}
		if text := strings.Join(got, "\n"); text != strings.TrimSpace(cases[i].want) || len(read.Problems) > 0 {
			t.Errorf("%s\n got:\n%s\nwant:\n%s\n%v", cases[i].text, text, strings.TrimSpace(cases[i].want), read.Problems)
		}
	}
}

// TestReads: which variables a program reads for more than to print them.
func TestReads(t *testing.T) {
	gate.Need(t, "python3")
	for text, want := range map[string]string{
		"import os\nx = os.environ.get('A')":                    "A",
		"import os\nx = os.getenv('A', '0')":                    "A",
		"from os import environ\nif environ['A'] == '1': f()":   "A",
		"import os\nf(g(os.environ['A']))":                      "A",
		"import os\nprint(os.environ['A'], os.getenv('B'))":     "",
		"import os\nprint('x')\nx = os.environ['A']":            "A",
		"import os\nos.environ['A'] = '1'\ndel os.environ['A']": "",
		"import os\nx = os.environ[name]":                       "",
	} {
		var got []string
		for _, s := range ask(t, "python3", []python.Source{script(text)})[0].File.Steps {
			if s.Do == lint.Read {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
	}
}

// TestVersions: every Python that is here reads the same out of the same file; those before 3.8 do not say where a step
// ends.
func TestVersions(t *testing.T) {
	gate.Need(t, "python3")
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin/python3"))
	found = append(found, "/usr/bin/python3")
	var all strings.Builder
	for _, c := range spellings() {
		if !strings.ContainsAny(c.text, "/:=") || !c.new {
			fmt.Fprintf(&all, "%s\n", c.text)
		}
	}
	var want, by string
	for _, path := range found {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		var got strings.Builder
		read := ask(t, path, []python.Source{script(all.String())})[0]
		for _, s := range read.File.Steps {
			fmt.Fprintln(&got, said(s))
		}
		for _, p := range read.Problems {
			t.Errorf("%s: line %d: %s", path, p.Line, p.Why)
		}
		if want == "" {
			want, by = got.String(), path
		}
		if got.String() != want {
			t.Errorf("%s says\n%s\nand %s says\n%s", path, got.String(), by, want)
		}
	}
}

// TestPlaces: a value is at its reported place, also after a byte order mark, letters of several bytes and \r
// .
func TestPlaces(t *testing.T) {
	gate.Need(t, "python3")
	for _, text := range []string{
		"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0-3'\n",
		"\xef\xbb\xbfimport os; os.environ['CUDA_VISIBLE_DEVICES'] = '0-3'\n",
		"import os\r\n# é\r\nx = 'ü'; os.environ['CUDA_VISIBLE_DEVICES'] = '0-3'\r\n",
		"import os\rif 1:\r  os.environ['CUDA_VISIBLE_DEVICES'] = '0-3'\r",
		"import os\n\x0cos.environ.update(CUDA_VISIBLE_DEVICES='0-3')\n",
	} {
		read := ask(t, "python3", []python.Source{script(text)})[0]
		if len(read.File.Steps) != 1 || read.File.Steps[0].Value.Raw != "'0-3'" || read.File.Steps[0].Value.Text != "0-3" {
			t.Errorf("%q: %+v %v", text, read.File.Steps, read.Problems)
			continue
		}
		at := read.File.Steps[0].Value.At
		if line := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })[at.Line-1]; line[at.Column-1:at.EndColumn-1] != "'0-3'" {
			t.Errorf("%q: %+v", text, at)
		}
	}
}

// TestOdd: what is no Python of today is a problem of its own file, and no other file suffers.
func TestOdd(t *testing.T) {
	gate.Need(t, "python3")
	good := "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"
	odd := []string{
		"print 'Python 2'\n", "def f(:\n", "x = '\x00'\n", "\xff\xfe\x00", "# -*- coding: nonsense -*-\nx = 1\n", "  x = 1\n y = 2\n",
		strings.Repeat("(", 5000), "x = " + strings.Repeat("-", 100_000) + "1\n", strings.Repeat("if x:\n", 200), "\tif 1:\n        x\n\ty\n",
	}
	var files []python.Source
	for _, text := range odd {
		files = append(files, script(text), script(good))
	}
	for i, read := range ask(t, "python3", files) {
		switch {
		case i%2 == 1 && (len(read.Problems) > 0 || len(read.File.Steps) != 1):
			t.Errorf("a file behind %.40q: %v %v", odd[i/2], read.Problems, read.File.Steps)
		case i%2 == 0 && (len(read.Problems) != 1 || read.Problems[0].Why == "" || read.Problems[0].Line < 1):
			t.Errorf("%.40q: %v", odd[i/2], read.Problems)
		}
	}
	latin := ask(t, "python3", []python.Source{script("# -*- coding: latin-1 -*-\nimport os # \xe9\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n")})[0]
	if len(latin.Problems) > 0 || len(latin.File.Steps) != 1 || latin.File.Steps[0].At.Line != 3 {
		t.Errorf("Latin 1: %+v", latin)
	}
	deep := ask(t, "python3", []python.Source{script(strings.Repeat("x = 1 + ", 2000) + "1\n" + good)})[0]
	if len(deep.Problems) == 0 && len(deep.File.Steps) != 1 {
		t.Errorf("a long sum: %+v", deep)
	}
}

// TestAnswers: an answer that is not of the script is an error and no panic.
func TestAnswers(t *testing.T) {
	two := []python.Source{script("a"), script("b")}
	for _, answer := range []string{"", "\n", "{}\n", "{}\n{}\n{}\n", "{}\nnull x\n", "{}\n[]\n", "{\"steps\": 1}\n{}\n", "{}\nTraceback"} {
		if _, err := python.DecodeAnswer(two, []byte(answer)); err == nil || !strings.HasPrefix(err.Error(), "cannot read the answer of Python") {
			t.Errorf("%q: %v", answer, err)
		}
	}
	if read, err := python.DecodeAnswer(nil, nil); err != nil || len(read) != 0 {
		t.Errorf("no files: %v %v", read, err)
	}
}

func TestParts(t *testing.T) {
	var files []python.Source
	for i := range 10 {
		files = append(files, script(strings.Repeat("x", 100_000*(1+i%2))))
	}
	for n := 1; n < 20; n++ {
		parts := python.DivideFiles(files, n)
		total := 0
		for _, p := range parts {
			if len(p) == 0 {
				t.Errorf("%d: an empty part", n)
			}
			total += len(p)
		}
		if len(parts) > n || total != len(files) || n == 2 && len(parts) != 2 {
			t.Errorf("%d: %d parts with %d files", n, len(parts), total)
		}
	}
	if parts := python.DivideFiles(files[:1], 8); len(parts) != 1 {
		t.Errorf("a small file is read by %d processes", len(parts))
	}
}

func TestInteresting(t *testing.T) {
	for text, want := range map[string]bool{
		"import os\nprint(1)\n": false, "": false, "os.environ['CUDA_VISIBLE_DEVICES']": true, "x.cuda()": true, "MASTER_PORT": true, "HIP_VISIBLE_DEVICES": true,
		"import json, re, sys\ndef main(): pass\n": false, "dist.init_process_group()": true, "XLA_CLIENT_MEM_FRACTION": true, "ZE_AFFINITY_MASK": true,
	} {
		if python.HasRuleWord([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// many are files with a word of interest each, of at least so many lines together.
func many(lines int) (files []python.Source, total int) {
	for i := 0; total < lines; i++ {
		var b strings.Builder
		b.WriteString("import os\nimport torch\nfrom torch import nn\n\n")
		for j := range 40 {
			fmt.Fprintf(&b, "\nclass Model%d(nn.Module):\n    \"\"\"Layer %d of %d.\"\"\"\n\n    def __init__(self, width=%d, depth=3):\n        super().__init__()\n"+
				"        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])\n        self.scale = {\"a\": 1.5, \"b\": [x ** 2 for x in range(width)]}\n\n"+
				"    def forward(self, x, mask=None):\n        for layer in self.layers:\n            if mask is not None and x.shape[0] > %d:\n                x = layer(x * mask) + self.scale[\"a\"]\n"+
				"            else:\n                x = torch.relu(layer(x))\n        return x.to(self.device, non_blocking=True)\n\n\n"+
				"def train%d(model, loader, device):\n    total = 0.0\n    for step, (x, y) in enumerate(loader):\n        x, y = x.cuda(), y.to(device)\n        loss = ((model(x) - y) ** 2).mean()\n"+
				"        loss.backward()\n        total += loss.item() if step %% 10 else 0\n    print(f\"{total:.3f} after {step} steps on {device}\")\n    return os.path.join(\"runs\", str(total))\n",
				j, j, i, j+1, i, j)
		}
		total += strings.Count(b.String(), "\n")
		files = append(files, script(b.String()))
	}
	return files, total
}

// plainly is what Python needs to parse the files and to look at each node of them once, with nothing of gpuard's.
const plainly = "import ast, sys\nfor _ in ast.walk(ast.parse(sys.stdin.read())): pass"

// TestSpeed: to read files that all have to be parsed takes at most one and a half times what Python needs to parse them
// and to walk through their trees: another machine or version of Python is faster or slower at both. The time of the
// processor counts, of the best of three tries: by the clock it depends on what else the machine does.
func TestSpeed(t *testing.T) {
	gate.Need(t, "python3")
	files, lines := many(gate.SoakCount(100_000, 20_000))
	var text bytes.Buffer
	for _, f := range files {
		text.Write(f.Cells[0].Text)
	}
	const most = 1.5
	best := math.Inf(1)
	for range 3 {
		_, plain := timed(t, plainly, text.Bytes())
		answer, took := timed(t, python.Script(), python.EncodeRequest(files))
		begun := time.Now()
		if _, err := python.DecodeAnswer(files, answer); err != nil {
			t.Fatal(err)
		}
		took += time.Since(begun)
		best = min(best, took.Seconds()/plain.Seconds())
		t.Logf("%d lines in %v, and by Python itself in %v", lines, took, plain)
		if best <= most {
			return
		}
	}
	t.Errorf("%d lines take %.2f times what Python needs, at most %.1f", lines, best, most)
}

// timed runs a program of Python's, and returns what it writes and its time of the processor.
func timed(t *testing.T, program string, stdin []byte) ([]byte, time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-S", "-B", "-c", program)
	cmd.Stdin = bytes.NewReader(stdin)
	answer, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return answer, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func BenchmarkRead(b *testing.B) {
	gate.Need(b, "python3")
	files, lines := many(100_000)
	for b.Loop() {
		ask(b, "python3", files)
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"steps": [{"do": "set", "name": "A", "at": [0, 1, 0, 1, 5], "value": {"at": [0, 1, 0, 9, 9], "text": null}}], "problems": []}`))
	f.Add([]byte(`{"steps": [{"do": "script", "at": [7, -1, -1, 0, 0], "value": {"at": [0, 1, 0, 1, 3], "text": "x"}}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		read, err := python.DecodeAnswer([]python.Source{script("a = 'x'\nb\n")}, line)
		if err == nil && len(read) != 1 {
			t.Errorf("%d files", len(read))
		}
	})
}
