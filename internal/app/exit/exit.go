// Package exit has gpuard's exit codes, which code each error gives, and what to do about it.
package exit

import (
	"errors"
	"fmt"
	"syscall"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/launch"
)

// Usage is an error in how gpuard was called or in what it was given to read.
type Usage struct{ Text string }

// Error is the text.
func (u *Usage) Error() string { return u.Text }

// Usagef makes a Usage.
func Usagef(format string, args ...any) error { return &Usage{fmt.Sprintf(format, args...)} }

// TimedOut is the exit code of a run that its limit ended.
const TimedOut = 124

// Code is one of gpuard's own exit codes.
type Code struct {
	Code    int
	Meaning string
}

// Codes lists the codes of run and everything else that starts a command; a command's own code is passed on.
func Codes() []Code {
	return []Code{
		{120, "no device now: every device that could serve the job is in use, and waiting for one was not wanted; the reasons are printed"},
		{121, "the time of --wait ran out before a device was free; the reasons are printed"},
		{122, "never: this machine, or a policy, can never satisfy the request"},
		{TimedOut, "the command was ended by --timeout"},
		{125, "gpuard itself failed, was used wrongly, or can read no GPU: no driver, no permission, no answer; or --ask was cancelled"},
		{126, "the command was found and cannot be executed"},
		{127, "the command was not found"},
	}
}

// VerifyCodes lists the codes of verify; they say what was found and not how the command ended.
func VerifyCodes() []Code {
	return []Code{
		{0, "proven: every process of the job that is on a GPU is where it should be"},
		{1, "wrong device, outside the lease, or not on any GPU (CPU fallback)"},
		{2, "used wrongly: no such process or lease, or no command"},
		{123, "not proven: too early to say, or not measurable"},
		{125, "gpuard itself failed"},
		{126, "the command was found and cannot be executed"},
		{127, "the command was not found"},
	}
}

// VerdictCode is the exit code of a verdict.
func VerdictCode(v proof.Verdict) int {
	switch {
	case v == proof.Proven:
		return 0
	case v.Bad():
		return 1
	}
	return 123
}

// VerifyCode is the exit code of an error of verify.
func VerifyCode(err error) int {
	var usage *Usage
	if errors.As(err, &usage) {
		return 2
	}
	return RunCode(err)
}

// RunCode is the exit code of an error of run.
func RunCode(err error) int {
	var refusal *job.Refusal
	var late *job.Late
	var missing *launch.NotFoundError
	var denied *launch.NotExecutableError
	var walled *isolation.ProgramError
	switch {
	case errors.As(err, &late):
		return 121
	case errors.As(err, &refusal) && refusal.Never:
		return 122
	case errors.As(err, &refusal):
		return 120
	case errors.As(err, &missing):
		return 127
	case errors.As(err, &denied), errors.As(err, &walled):
		return 126
	}

	return 125
}

// PlainCode is the exit code of an error of every other command: 2 for usage, else 1.
func PlainCode(err error) int {
	var usage *Usage
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// Remedy is what to do about err, "" when the text says it already.
func Remedy(err error) string {
	var refusal *job.Refusal
	var unavailable *gpu.Unavailable
	switch {
	case errors.As(err, &refusal):
		return refusal.Remedy
	case errors.As(err, &unavailable):
		return unavailable.Remedy + "; gpuard doctor says more"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room there and try again: nothing was leased"
	case errors.Is(err, syscall.EFBIG):
		return "your limit on the size of files (ulimit -f) is too low: ulimit -f unlimited, and try again: nothing was leased"
	}

	return ""
}
