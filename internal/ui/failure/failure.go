// Package failure gives errors of commands their exit codes.
package failure

import (
	"errors"
	"fmt"

	"gpuard/internal/app/exit"
)

// WithExitCode runs f and gives its error the exit code of commands that do not start a program, unless it has one.
func WithExitCode(f func() error) error {
	err := f()
	var own *CodedError
	if err == nil || errors.As(err, &own) {
		return err
	}

	return &CodedError{err, exit.PlainCode(err)}
}

// Usagef is an error of wrong usage, with exit code 2.
func Usagef(format string, args ...any) error { return &exit.Usage{Text: fmt.Sprintf(format, args...)} }

// AsUsage gives an error the exit code of wrong usage.
func AsUsage(err error) error { return &exit.Usage{Text: err.Error()} }

// CodedError is an error with the exit code of its command.
type CodedError struct {
	Err  error
	Code int
}

func (f *CodedError) Error() string { return f.Err.Error() }

func (f *CodedError) Unwrap() error { return f.Err }

// AsRun gives the error of a command that starts others the code that gpuard run would end with, unless it has one.
func AsRun(err error) error {
	var own *CodedError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &CodedError{err, exit.RunCode(err)}
}

// ShownError is an error whose text was shown already.
type ShownError struct{ Err error }

func (s *ShownError) Error() string { return s.Err.Error() }

func (s *ShownError) Unwrap() error { return s.Err }
