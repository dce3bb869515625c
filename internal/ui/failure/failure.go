// Package failure gives errors of commands their exit codes.
package failure

import (
	"errors"
	"fmt"

	"gpuard/internal/app/exit"
)

// WithExitCode gives an error that has no exit code the one that code makes of it.
func WithExitCode(err error, code func(error) int) error {
	var own *CodedError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &CodedError{err, code(err)}
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

func (c *CodedError) Error() string { return c.Err.Error() }

func (c *CodedError) Unwrap() error { return c.Err }

// ShownError is an error whose text was shown already.
type ShownError struct{ Err error }

func (s *ShownError) Error() string { return s.Err.Error() }

func (s *ShownError) Unwrap() error { return s.Err }
