package nvsmi

import (
	"context"
	"errors"
	"gpuard/internal/host/program"
	"io/fs"
	"os/exec"
	"time"

	"gpuard/internal/core/gpu"
)

// The most output that is read, in bytes. limit is about 100 times the output for 16 devices with 1,000 processes;
// lists have one short line for each device or slice.
const (
	maxReportSize = 64 << 20
	maxListSize   = 1 << 20
)

// smiOutput is the output of one run of nvidia-smi. Its exit status says no more than the output.
type smiOutput struct {
	out, errs []byte
	// If it did not run to its end.
	failure *gpu.Unavailable
}

// runNvidiaSMI starts nvidia-smi without a shell, reads at most most bytes, and kills its process group when ctx ends.
// It returns then even if the kernel cannot end the process, because the driver hangs.
func runNvidiaSMI(ctx context.Context, most int, path string, args ...string) smiOutput {
	out, errs := &program.Bounded{Most: most}, &program.Bounded{Most: 1 << 20}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = out, errs

	// Usually enough to reap it.
	err := program.RunGroup(ctx, cmd, 100*time.Millisecond)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return smiOutput{failure: noAnswerError(ctx)}
	case out.Full || errs.Full:
		// Checked before err: the closed pipe has ended the program.
		return smiOutput{failure: driverError("nvidia-smi printed more than %v", gpu.Bytes(most))}
	case errors.Is(err, fs.ErrPermission):
		return smiOutput{failure: &gpu.Unavailable{
			Cause:  gpu.NoPermission,
			Text:   "cannot read the GPUs: " + err.Error(),
			Remedy: "ls -l " + path + " shows who may run it",
		}}
	case err != nil && !errors.As(err, &exit):
		return smiOutput{failure: driverError("%v", err)}
	}

	return smiOutput{out: out.Text.Bytes(), errs: errs.Text.Bytes()}
}

func noAnswerError(ctx context.Context) *gpu.Unavailable {
	why := "nvidia-smi did not answer in time"
	if errors.Is(ctx.Err(), context.Canceled) {
		why = "interrupted while nvidia-smi ran"
	}
	return &gpu.Unavailable{
		Cause:  gpu.NoAnswer,
		Text:   "cannot read the GPUs: " + why,
		Remedy: "a GPU or the driver may hang: look for NVRM and Xid lines in dmesg; without persistence mode the driver needs 1 to 3 s per GPU to start (sudo nvidia-smi -pm 1)",
	}
}
