package pyenv

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/core/site"
)

//go:embed ask.py
var script string

// Libraries are those that Ask knows, by the name they are imported with.
func Libraries() []string { return []string{"torch", "tensorflow", "jax", "onnxruntime", "cupy"} }

// Ask imports a library in a process of its own and asks it for devices. The process has the caller's variables, and beside
// them those that keep it from writing files and from taking all memory of a device; it is killed, with its children, when
// ctx ends.
func (w Where) Ask(ctx context.Context, interpreter, library string) site.Probe {
	p := site.Probe{Library: library}
	var out, errs tail
	command := exec.CommandContext(ctx, w.at(interpreter), "-B", "-c", script, library)
	command.Dir = "/" // a file torch.py in the caller's folder is not the library
	command.Env = append(command.Env, w.Env...)
	command.Env = append(command.Env, "PYTHONDONTWRITEBYTECODE=1", "CUDA_CACHE_DISABLE=1", "CUPY_CACHE_IN_MEMORY=1",
		"XLA_PYTHON_CLIENT_PREALLOCATE=false", "TF_FORCE_GPU_ALLOW_GROWTH=true")
	command.Stdout, command.Stderr = &out, &errs
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	var err error // when it has ended
	ended := make(chan struct{})
	go func() {
		err = command.Run()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select { // a process that waits in the driver does not even die, and is left behind
		case <-ended:
		case <-time.After(2 * command.WaitDelay):
		}
		p.Problem = "no answer in time"
		return p
	}
	if ctx.Err() != nil {
		p.Problem = "no answer in time"
		return p
	}
	answer, ok := answer(out.text)
	switch {
	case err != nil && !ok:
		p.Problem = problem(err, errs.text)
	case !ok:
		p.Problem = "it ended without an answer"
	default:
		p.Devices, p.Text = answer.Devices, strings.TrimSpace(answer.Version+" "+strings.Join(answer.Names, ", "))
		if line := lastLine(errs.text); p.Devices == 0 && line != "" {
			p.Text += "; " + line
		}
	}
	return p
}

type reply struct {
	Version string   `json:"version"`
	Devices int      `json:"devices"`
	Names   []string `json:"names"`
}

// answer is the last line that is one.
func answer(out []byte) (r reply, ok bool) {
	for line := range bytes.Lines(out) {
		var one reply
		if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &one) == nil && one.Version != "" {
			r, ok = one, true
		}
	}
	return r, ok
}

// problem is why there is no answer: what Python said last, or how it ended.
func problem(err error, errs []byte) string {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return err.Error()
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("it crashed (%s)", status.Signal())
	}
	if line := lastLine(errs); line != "" {
		return line
	}
	return "it failed without a word (" + ended.Error() + ")"
}

// lastLine is the last line with something in it, cut to what a sentence can hold.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "?")), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if r := []rune(line); len(r) > 300 {
		line = string(r[:300]) + "…"
	}
	return line
}

// tail keeps the end of what a process writes.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 64 << 10
	t.text = append(t.text, p...)
	if over := len(t.text) - keep; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}
