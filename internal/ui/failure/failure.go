// Package failure gives errors of commands their exit codes.
package failure

import (
	"errors"
	"fmt"

	"gpuard/internal/app/exit"
)

// Report runs f and gives its error the exit code of commands that do not start a program, unless it has one.
func Report(f func() error) error {
	err := f()
	var own *Coded
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &Coded{err, exit.Plain(err)}
}

// Usagef is an error of wrong usage, with exit code 2.
func Usagef(format string, args ...any) error { return &exit.Usage{Text: fmt.Sprintf(format, args...)} }

// AsUsage gives an error the exit code of wrong usage.
func AsUsage(err error) error { return &exit.Usage{Text: err.Error()} }

// Coded is an error with the exit code of its command.
type Coded struct {
	Err  error
	Code int
}

func (f *Coded) Error() string { return f.Err.Error() }

func (f *Coded) Unwrap() error { return f.Err }

// AsRun gives the error of a command that starts others the code that gpuard run would end with, unless it has one.
func AsRun(err error) error {
	var own *Coded
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &Coded{err, exit.Run(err)}
}

// Shown is an error whose text was shown already.
type Shown struct{ Err error }

func (s *Shown) Error() string { return s.Err.Error() }

func (s *Shown) Unwrap() error { return s.Err }
