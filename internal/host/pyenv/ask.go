package pyenv

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
)

//go:embed ask.py
var probeScript string

// KnownLibraries lists the libraries that Ask knows, by the names under which Python imports them.
func KnownLibraries() []string { return []string{"torch", "tensorflow", "jax", "onnxruntime", "cupy"} }

// Ask imports a library in a child process, and returns the devices that the library finds. The child has the caller's
// variables, and others that keep it from writing files and from taking all memory of a device. When ctx ends, Ask
// kills the child and its process group.
func (w SearchScope) Ask(ctx context.Context, interpreter, library string) hostinfo.Probe {
	p := hostinfo.Probe{Library: library}
	var out, errs tailBuffer
	command := exec.CommandContext(ctx, w.realPath(interpreter), "-B", "-c", probeScript, library)

	// A file torch.py in the caller's folder is not the library.
	command.Dir = "/"
	command.Env = append(command.Env, w.Env...)
	command.Env = append(command.Env, "PYTHONDONTWRITEBYTECODE=1", "CUDA_CACHE_DISABLE=1", "CUPY_CACHE_IN_MEMORY=1",
		"XLA_PYTHON_CLIENT_PREALLOCATE=false", "TF_FORCE_GPU_ALLOW_GROWTH=true")

	command.Stdout, command.Stderr = &out, &errs
	err := program.RunGroup(ctx, command, 2*time.Second)
	if ctx.Err() != nil {
		p.Problem = "no answer in time"
		return p
	}

	answer, ok := parseReply(out.text)
	switch {
	case err != nil && !ok:
		p.Problem = failureText(err, errs.text)
	case !ok:
		p.Problem = "it ended without an answer"
	default:
		p.Devices, p.Text = answer.Devices, strings.TrimSpace(answer.Version+" "+strings.Join(answer.Names, ", "))
		if line := prose.LastLine(string(errs.text)); p.Devices == 0 && line != "" {
			p.Text += "; " + line
		}
	}

	return p
}

type frameworkReply struct {
	Version string   `json:"version"`
	Devices int      `json:"devices"`
	Names   []string `json:"names"`
}

// parseReply returns the last line of out that is a reply.
func parseReply(out []byte) (r frameworkReply, ok bool) {
	for line := range bytes.Lines(out) {
		var one frameworkReply
		if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &one) == nil && one.Version != "" {
			r, ok = one, true
		}
	}
	return r, ok
}

// failureText says why there is no answer: the last line that Python printed, or how it ended.
func failureText(err error, errs []byte) string {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return err.Error()
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("it crashed (%s)", status.Signal())
	}
	if line := prose.LastLine(string(errs)); line != "" {
		return line
	}

	return "it failed without a message (" + ended.Error() + ")"
}

// tailBuffer keeps the end of a process's output.
type tailBuffer struct{ text []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	const keep = 64 << 10
	t.text = append(t.text, p...)
	if over := len(t.text) - keep; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}

	return len(p), nil
}
