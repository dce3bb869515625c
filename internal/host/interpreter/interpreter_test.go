package interpreter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
)

func writeProgram(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	venv := writeProgram(t, filepath.Join(dir, "venv/bin/python"), "", 0o755)
	conda := writeProgram(t, filepath.Join(dir, "conda/bin/python"), "", 0o755)
	three := writeProgram(t, filepath.Join(dir, "b/python3"), "", 0o755)
	plain := writeProgram(t, filepath.Join(dir, "a/python"), "", 0o755)
	writeProgram(t, filepath.Join(dir, "a/python3"), "", 0o644) // not executable
	path := filepath.Join(dir, "a") + ":relative:" + filepath.Join(dir, "b")
	for _, c := range []struct {
		name string
		env  map[string]string
		want []string
	}{
		{"the active environment first", map[string]string{"VIRTUAL_ENV": dir + "/venv", "CONDA_PREFIX": dir + "/conda", "PATH": path}, []string{venv, conda, three, plain}},
		{"conda", map[string]string{"CONDA_PREFIX": dir + "/conda"}, []string{conda}},
		{"an environment that is gone", map[string]string{"VIRTUAL_ENV": dir + "/gone", "PATH": path}, []string{three, plain}},
		{"nothing", map[string]string{"PATH": dir}, nil},
		{"no PATH", nil, nil},
	} {
		got, err := FindPythons(func(name string) string { return c.env[name] })
		if !slices.Equal(got, c.want) || errors.Is(err, ErrNone) != (c.want == nil) {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	echo := writeProgram(t, filepath.Join(dir, "echo"), "#!/bin/sh\necho \"$1 $2 $3 $PWD\"; cat\n", 0o755)
	if got, err := RunScript(t.Context(), echo, "x", []byte("asked")); err != nil || string(got) != "-I -S -B /\nasked" {
		t.Errorf("%q %v", got, err)
	}
	old := writeProgram(t, filepath.Join(dir, "old"), "#!/bin/sh\necho Unknown option: -I >&2\necho usage: python >&2\nexit 2\n", 0o755)
	if _, err := RunScript(t.Context(), old, "x", nil); err == nil || !strings.Contains(err.Error(), old+": exit status 2: usage: python") {
		t.Errorf("a Python that is too old: %v", err)
	}
	if _, err := RunScript(t.Context(), filepath.Join(dir, "gone"), "x", nil); err == nil || !strings.HasPrefix(err.Error(), "cannot read Python files with "+dir) {
		t.Errorf("no Python: %v", err)
	}
	hangs := writeProgram(t, filepath.Join(dir, "hangs"), "#!/bin/sh\nsleep 60 & sleep 60\n", 0o755)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := RunScript(ctx, hangs, "x", nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 10*time.Second {
		t.Errorf("a Python that hangs: %v after %v", err, time.Since(begun))
	}
}

// A module in the working directory or in PYTHONPATH is not imported.
func TestNothingOfTheUser(t *testing.T) {
	gate.Need(t, "python3")
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "json.py"), "raise SystemExit('imported')\n", 0o644)
	t.Setenv("PYTHONPATH", dir)
	t.Chdir(dir)
	paths, err := FindPythons(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	got, err := RunScript(t.Context(), paths[0], "import json, sys; print('site' in sys.modules, sys.stdin.read())", []byte("asked"))
	if err != nil || string(got) != "False asked\n" {
		t.Errorf("%q %v", got, err)
	}
}

// TestAcceptsScript: bash is asked whether it reads a script, and runs nothing: neither the script nor a start-up file.
func TestAcceptsScript(t *testing.T) {
	bash := FindBash(os.Getenv)
	if bash == "" {
		t.Fatal("no bash, which the tests of shells need")
	}
	mark := filepath.Join(t.TempDir(), "ran")
	t.Setenv("BASH_ENV", mark+".rc")
	if err := os.WriteFile(mark+".rc", []byte("touch "+mark+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]bool{
		"touch " + mark + "\n":        true,
		"A=( --freq [0]*3+[1]*58 )\n": true,
		"if true; then\n":             false,
	} {
		if got := AcceptsScript(t.Context(), bash, []byte(script)); got != want {
			t.Errorf("%q: %v", script, got)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("something was run")
	}
}
