package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/core/experiment"
	"gpuard/internal/core/sim"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/failure"
)

// NewPrinter is a printer of log lines on standard output.
func (p *Program) NewPrinter() Printer {
	out := p.Out
	if w, ok := out.(*checkedWriter); ok {
		// Logs does not fail if its reader is gone.
		out = w.Writer
	}
	term := p.Term(p.Out)

	return Printer{Out: out, term: term, drawn: map[string]time.Time{}, raw: !term.TTY}
}

// Views are the commands that gpuard-view has; those that are nil are started there.
type Views struct {
	Serve    func(context.Context, observe.View, observe.ServeOptions) error
	Top      func(context.Context, observe.View) error
	Used     func(use trend.UseTable, png bool, say Say) ([]byte, error)               // of history
	Waits    func(results []sim.Result, png bool, say Say) ([]byte, error)             // of simulate
	Compared func(quantities []experiment.Quantity, png bool, say Say) ([]byte, error) // of compare
}

// Say says a text in the language of the user.
type Say = func(text string) string

// CheckChart refuses a name of a picture that does not say its kind; "" is none.
func CheckChart(file string) error {
	if kind := filepath.Ext(file); file != "" && kind != ".svg" && kind != ".png" {
		return failure.Usagef("cannot draw into %s: its name must end in .svg or .png", file)
	}
	return nil
}

// WriteChart draws a picture into a file; "" is none.
func WriteChart(file string, draw func(png bool) ([]byte, error)) error {
	if file == "" {
		return nil
	}

	picture, err := draw(filepath.Ext(file) == ".png")
	if err == nil {
		err = machine.WriteFile(file, picture, 0o666)
	}

	if err != nil {
		return fmt.Errorf("cannot write the chart: %w", err)
	}

	return nil
}

// BecomeView becomes gpuard-view, with the same arguments.
func (p *Program) BecomeView() error {
	const name = "gpuard-view"
	path, err := FindBeside(name)
	if err != nil {
		return fmt.Errorf("cannot find %s, which has the page, the full screen and pictures: it belongs beside gpuard, and is in the same package; from source: go build -o ~/.local/bin/ ./cmd/gpuard-view", name)
	}

	return fmt.Errorf("cannot start %s: %w", path, unix.Exec(path, append([]string{name}, p.Args...), os.Environ()))
}

// FindBeside is the path of a program beside this one, or else in PATH.
func FindBeside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
