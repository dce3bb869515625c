// Package interpreter finds the installed Pythons, checks what they can import, and runs gpuard's own scripts, which
// import nothing of the user's and write no bytecode: they run without site packages and start-up files. It also asks a
// bash whether it can read a script.
//
//	pythons, err := interpreter.FindPythons(os.Getenv)
//	answer, err := interpreter.RunScript(ctx, pythons[0], script, request)
package interpreter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"gpuard/internal/core/prose"
)

// ErrNone is the error of FindPythons on a machine without Python.
var ErrNone = errors.New("cannot read Python files: no python3 was found in VIRTUAL_ENV, CONDA_PREFIX or PATH; install one, or name it with --python PATH")

// FindPythons returns the Pythons of the environment: those of VIRTUAL_ENV and CONDA_PREFIX, then python3 and python on
// PATH. lookup returns the value of a variable. Find starts none of them; if one is too old, Run returns an error. The
// error is ErrNone if there is none.
func FindPythons(lookup func(name string) string) ([]string, error) {
	var found []string
	add := func(folder, name string) {
		path := filepath.Join(folder, name)
		if filepath.IsAbs(folder) && !slices.Contains(found, path) && isExecutable(path) {
			found = append(found, path)
		}
	}

	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		add(filepath.Join(lookup(variable), "bin"), "python")
	}

	for _, name := range []string{"python3", "python"} {
		for _, folder := range filepath.SplitList(lookup("PATH")) {
			add(folder, name)
		}
	}

	if len(found) == 0 {
		return nil, ErrNone
	}

	return found, nil
}

// HasModule reports whether a Python can import a module, without importing it. Unlike Run, it searches where the
// user's programs do: in site packages and PYTHONPATH, and with start-up files.
func HasModule(ctx context.Context, python, module string) bool {
	cmd := exec.CommandContext(ctx, python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)", module)
	cmd.WaitDelay = time.Second
	return cmd.Run() == nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// maxAnswerSize is the size of the largest answer of a script, in bytes.
const maxAnswerSize = 256 << 20

// RunScript runs a script with the request on standard input and returns its standard output. Python runs without the
// user's folder and settings (-I -S -B: docs.python.org, "Command line and environment"), and is ended with ctx. An
// error names the interpreter and the last line that it printed: a Python before 3.6 fails at the options, or at the
// script's first lines.
func RunScript(ctx context.Context, python, script string, request []byte) ([]byte, error) {
	out, errs := &program.Bounded{Most: maxAnswerSize}, &program.Bounded{Most: 1 << 20}
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-W", "ignore", "-c", script)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, errs
	err := program.RunGroup(ctx, cmd, time.Second)
	switch {
	case err == nil:
		return out.Text.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("cannot read Python files with %s: %w", python, ctx.Err())
	case out.Full:
		return nil, fmt.Errorf("cannot read Python files with %s: it printed more than %d MiB", python, maxAnswerSize>>20)
	}

	return nil, fmt.Errorf("cannot read Python files with %s: %w%s", python, err, prose.LastLineAfter(errs.Text.String()))
}

// FindBash returns the bash of PATH; "" if there is none. lookup returns the value of a variable.
func FindBash(lookup func(name string) string) string {
	for _, folder := range filepath.SplitList(lookup("PATH")) {
		path := filepath.Join(folder, "bash")
		if filepath.IsAbs(folder) && isExecutable(path) {
			return path
		}
	}
	return ""
}

// AcceptsScript reports whether a bash can read a script (bash -n): it runs nothing of it, and reads no start-up file.
func AcceptsScript(ctx context.Context, bash string, script []byte) bool {
	cmd := exec.CommandContext(ctx, bash, "--norc", "--noprofile", "-n")
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C.UTF-8"}
	cmd.Stdin = bytes.NewReader(script)
	cmd.WaitDelay = time.Second

	return cmd.Run() == nil
}
