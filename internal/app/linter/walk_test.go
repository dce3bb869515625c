package linter

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// bad is a script with one finding.
const bad = "export CUDA_VISIBLE_DEVICES=0-3\npython train.py\n"

// lay writes files into a folder of its own.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// look checks paths, which must succeed.
func look(t *testing.T, fix bool, paths ...string) Report {
	t.Helper()
	r, err := RunLint(t.Context(), Options{Paths: paths, Fix: fix, Env: visible.Env(os.Environ())})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// found lists "path code" of all findings, below root.
func found(root string, r Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, strings.TrimPrefix(strings.TrimPrefix(f.Path, root), "/")+" "+f.Code)
	}
	return all
}

func TestWalk(t *testing.T) {
	root := lay(t, map[string]string{
		"run.sh":                           bad,
		"jobs/deep/run.sh":                 bad,
		".hidden/run.sh":                   bad,
		"start":                            "#!/bin/bash\n" + bad,
		"start.job":                        "#!/bin/bash\n" + bad,
		"job.txt":                          "# a job\n#SBATCH --gres=gpu:1\n" + bad,
		"README.md":                        "```sh\n" + bad + "```\n",
		"notes.txt":                        bad,
		"data":                             bad,
		".git/hooks/run.sh":                bad,
		"node_modules/a/run.sh":            bad,
		"third_party/a/run.sh":             bad,
		"venv/pyvenv.cfg":                  "home = /usr\n",
		"venv/bin/activate.sh":             bad,
		"conda/conda-meta/history":         "",
		"conda/run.sh":                     bad,
		"lib/python3/site-packages/run.sh": bad,
		"binary.sh":                        "#!/bin/sh\n\x00" + bad,
		"large.sh":                         "#!/bin/sh\n" + strings.Repeat("# \n", maxFileSize/3+1) + bad,
	})
	for name, target := range map[string]string{"loop": ".", "link.sh": "run.sh", "gone.sh": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{".hidden/run.sh mask-range", "job.txt mask-range", "jobs/deep/run.sh mask-range", "run.sh mask-range", "start mask-range", "start.job mask-range"}
	r := look(t, false, root)
	if got := found(root, r); !slices.Equal(got, want) {
		t.Errorf("found\n%q, want\n%q", got, want)
	}
	if len(r.Problems) != 0 || len(r.Skipped) != 2 {
		t.Errorf("problems %v, skipped %v; the binary and the large one are skipped", r.Problems, r.Skipped)
	}
	t.Run("docs", func(t *testing.T) {
		r, err := RunLint(t.Context(), Options{Paths: []string{root + "/README.md"}, Docs: true})
		if got := found(root, r); err != nil || !slices.Equal(got, []string{"README.md mask-range"}) {
			t.Errorf("found %q, %v", got, err)
		}
	})
	t.Run("several times", func(t *testing.T) {
		if got := found(root, look(t, false, root+"/run.sh", root+"/jobs/../run.sh", root+"/jobs", root+"/jobs/deep")); len(got) != 2 {
			t.Errorf("found %q, want each once", got)
		}
	})
	t.Run("named", func(t *testing.T) { // what is named is looked at, wherever it lies
		got := found(root, look(t, false, root+"/link.sh", root+"/node_modules", root+"/.git", root+"/venv/bin/activate.sh", root+"/lib/python3/site-packages"))
		if len(got) != 5 {
			t.Errorf("found %q, want 5", got)
		}
	})
	t.Run("through a link", func(t *testing.T) {
		if got := found(root+"/loop", look(t, false, root+"/loop")); !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
	})
	t.Run("not a format that gpuard reads", func(t *testing.T) {
		r := look(t, false, root+"/notes.txt")
		if len(r.Findings) != 0 || len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0].Why, "not a format") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("named and not read", func(t *testing.T) {
		broken := filepath.Join(root, "broken.ipynb")
		if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		paths := []string{broken, root + "/binary.sh", root + "/large.sh"}
		r, err := RunLint(t.Context(), Options{Paths: paths})
		if err != nil || len(r.Skipped) != 0 || len(r.Problems) != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		for _, one := range r.Problems {
			if !slices.Contains(paths, one.Path) || !strings.HasPrefix(one.Why, "cannot read it: ") {
				t.Errorf("%+v", one)
			}
		}
	})
	t.Run("missing", func(t *testing.T) {
		_, err := RunLint(t.Context(), Options{Paths: []string{root, root + "/nothing"}})
		var usage *exit.Usage
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("%v, want a usage error", err)
		}
	})
}

func TestStandardInput(t *testing.T) {
	for _, c := range []struct {
		name, text string
		as         lint.Kind
		fix        bool
		want       int // findings
		fails      string
	}{
		{"named", bad, lint.Shell, false, 1, ""},
		{"guessed", "#!/bin/sh\n" + bad, "", false, 1, ""},
		{"not to be guessed", bad, "", false, 0, "--as"},
		{"nothing to write to", bad, lint.Shell, true, 0, "--fix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := RunLint(t.Context(), Options{Paths: []string{"-"}, Input: strings.NewReader(c.text), As: c.as, Fix: c.fix})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want an error with %q", err, c.fails)
				}
				return
			}
			if err != nil || len(r.Findings) != c.want {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestNoPython: what needs Python is a problem, what does not is looked at all the same.
func TestNoPython(t *testing.T) {
	root := lay(t, map[string]string{"run.sh": bad, "train.py": "import torch\ntorch.cuda.init()\n", "plain.py": "print(1)\n"})
	r, err := RunLint(t.Context(), Options{Paths: []string{root}, Env: visible.Env{"PATH=" + root}})
	if err != nil {
		t.Fatal(err)
	}
	if got := found(root, r); !slices.Equal(got, []string{"run.sh mask-range"}) {
		t.Errorf("found %q", got)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Why, "no python3 was found") || r.Files != 2 {
		t.Errorf("problems %v, %d files; plain.py needs no Python", r.Problems, r.Files)
	}
}

// TestPythonByRelativePath: --python venv/bin/python is meant from here, although Python is started elsewhere.
func TestPythonByRelativePath(t *testing.T) {
	gate.Need(t, "python3")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	root := lay(t, map[string]string{"train.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0-1'\n", "bin/python": "#!/bin/sh\nexec " + python + " \"$@\"\n"})
	if err := os.Chmod(filepath.Join(root, "bin/python"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	r, err := RunLint(t.Context(), Options{Paths: []string{"train.py"}, Python: "bin/python"})
	if err != nil || len(r.Findings) != 1 || len(r.Problems) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestUnreadable: a file that may not be read is a problem, and does not hide the others.
func TestUnreadable(t *testing.T) {
	root := lay(t, map[string]string{"a.sh": bad, "b.sh": bad})
	if err := os.Chmod(filepath.Join(root, "a.sh"), 0); err != nil {
		t.Fatal(err)
	}
	r := look(t, false, root)
	if os.Geteuid() == 0 {
		return // may read everything
	}
	if got := found(root, r); !slices.Equal(got, []string{"b.sh mask-range"}) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Why, "permission denied") {
		t.Errorf("found %q, problems %v", got, r.Problems)
	}
}

func TestFix(t *testing.T) {
	gate.Need(t, "python3")
	root := lay(t, map[string]string{
		"run.sh":     "#!/bin/sh\n" + bad,
		"clean.sh":   "#!/bin/sh\necho hello\n",
		"silent.sh":  "export CUDA_VISIBLE_DEVICES=0-3 # gpuard:ignore mask-range\npython train.py\n",
		"windows.sh": "export CUDA_VISIBLE_DEVICES=0-3\r\npython train.py\r\n",
		"latin.sh":   "# caf\xe9\n" + bad,
		"locked.sh":  bad,
		"Dockerfile": "FROM a\nENV CUDA_VISIBLE_DEVICES=0-3\nCMD [\"python\", \"train.py\"]\n", // mending the error leaves a remark
		"train.py":   "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0 1'\nimport torch\n",
	})
	if err := os.Chmod(filepath.Join(root, "run.sh"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "locked.sh"), 0o444); err != nil {
		t.Fatal(err)
	}
	before := texts(t, root)
	r := look(t, true, root)
	want := map[string]string{"run.sh": "#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\npython train.py\n", "train.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\nimport torch\n",
		"Dockerfile": "FROM a\nENV CUDA_VISIBLE_DEVICES=0,1,2,3\nCMD [\"python\", \"train.py\"]\n"}
	for name, text := range texts(t, root) {
		expected := before[name]
		if w, changes := want[name]; changes {
			expected = w
		}
		if name == "windows.sh" {
			continue // either is right, as long as it is read again
		}
		if text != expected {
			t.Errorf("%s holds %q, want %q", name, text, expected)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "run.sh")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Why, "read-only") {
		t.Errorf("problems %v", r.Problems)
	}
	for _, f := range r.Findings {
		name := filepath.Base(f.Path)
		if _, changed := want[name]; changed != f.Fixed && name != "windows.sh" && f.Severity.Bad() {
			t.Errorf("%s: %s: fixed %v", name, f.Code, f.Fixed)
		}
		if f.Fixable != f.Fixed && name != "locked.sh" {
			t.Errorf("%s: %s is still offered", name, f.Code)
		}
	}
	after := texts(t, root)
	if again := look(t, true, root); !maps.Equal(after, texts(t, root)) {
		t.Errorf("the second time changed something: %+v", again.Findings)
	}
}

// TestFixThroughLinks: a link is not replaced by a file, and a file with two names not torn from the other one.
func TestFixThroughLinks(t *testing.T) {
	root := lay(t, map[string]string{"run.sh": bad, "outside/real.sh": bad})
	link, twin := filepath.Join(root, "link.sh"), filepath.Join(root, "twin.sh")
	if err := os.Symlink("outside/real.sh", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "run.sh"), twin); err != nil {
		t.Fatal(err)
	}
	r := look(t, true, link, filepath.Join(root, "run.sh"))
	if len(r.Problems) != 2 {
		t.Errorf("problems %v, want two", r.Problems)
	}
	for name, text := range texts(t, root) {
		if text != bad {
			t.Errorf("%s was changed to %q", name, text)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
}

func texts(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range corpus(t, root) {
		all[e.Name] = e.Text
	}
	return all
}

// TestNoNewMistakes: a text that the reader does not take, or in which something else is found, is not written.
func TestNoNewMistakes(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		kind                lint.Kind
		better              bool
	}{
		{"gone", bad, "export CUDA_VISIBLE_DEVICES=0,1\npython train.py\n", lint.Shell, true},
		{"still there", bad, "export CUDA_VISIBLE_DEVICES=0-2\npython train.py\n", lint.Shell, false},
		{"another one", bad, "CUDA_VISIBLE_DEVICES=0,0 python train.py\n", lint.Shell, false},
		{"no shell any more", bad, "export CUDA_VISIBLE_DEVICES=(\n", lint.Shell, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Env: visible.Env(os.Environ())}
			read := o.parseAll(t.Context(), []sourceFile{{path: "a.sh", kind: c.kind, text: []byte(c.before)}, {path: "a.sh", kind: c.kind, text: []byte(c.after)}})
			found, _ := read[0].applyRules()
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			a := &fixAttempt{read: &read[0], chosen: []bool{true}}
			if a.isBetter(found, &read[1]) != c.better {
				t.Errorf("better is %v", !c.better)
			}
			a.judgeText(&read[1], true)
			if bytes.Equal(a.read.text, []byte(c.after)) != c.better || (len(a.fixed) == 1) != c.better {
				t.Errorf("the text is %q, fixed %d", a.read.text, len(a.fixed))
			}
		})
	}
}
