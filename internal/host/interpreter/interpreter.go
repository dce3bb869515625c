// Package interpreter finds a Python that is there, asks what it could import, and runs a script of our own in it, which
// imports nothing of the user's: no site packages, no start-up files, no bytecode written.
package interpreter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/host/sys"
)

// ErrNone is for a machine without Python.
var ErrNone = errors.New("cannot read Python files: no python3 was found in VIRTUAL_ENV, CONDA_PREFIX or PATH; install one, or name it with --python PATH")

// Find returns the Pythons of the environment, the likeliest first: of VIRTUAL_ENV, of CONDA_PREFIX, then python3 and python
// on PATH. The environment is asked through lookup. Nothing is started: one of them may be too old, which Run tells. The error
// is ErrNone when there is none.
func Find(lookup func(name string) string) ([]string, error) {
	var found []string
	add := func(folder, name string) {
		path := filepath.Join(folder, name)
		if filepath.IsAbs(folder) && !slices.Contains(found, path) && runs(path) {
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

// Has reports whether a module can be imported there, without importing it. Other than Run, this looks where the user's own
// programs would: in site packages, PYTHONPATH and start-up files.
func Has(ctx context.Context, python, module string) bool {
	cmd := exec.CommandContext(ctx, python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)", module)
	cmd.WaitDelay = time.Second
	return cmd.Run() == nil
}

func runs(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// most is how much a script may answer.
const most = 256 << 20

// Run gives the script its request on standard input and returns its standard output. Python runs apart from the user's
// folder and settings (-I -S -B: docs.python.org, "Command line and environment"), and is ended with ctx. An error names the
// interpreter and what it said last: a Python before 3.6 does not get further than its options, or the script's first lines.
func Run(ctx context.Context, python, script string, request []byte) ([]byte, error) {
	out, errs := &sys.Bounded{Most: most}, &sys.Bounded{Most: 1 << 20}
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-W", "ignore", "-c", script)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return out.Text.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("cannot read Python files with %s: %w", python, ctx.Err())
	case out.Full:
		return nil, fmt.Errorf("cannot read Python files with %s: it printed more than %d MiB", python, most>>20)
	}
	return nil, fmt.Errorf("cannot read Python files with %s: %w%s", python, err, last(errs.Text.String()))
}

// last is the last line that has words, as Python ends a traceback with the reason.
func last(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if text := strings.TrimSpace(lines[len(lines)-1]); text != "" {
		return ": " + text
	}
	return ""
}
