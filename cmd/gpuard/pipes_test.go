package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeFIFO makes a named pipe.
func makeFIFO(t *testing.T, path string) string {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mustReturn runs a command, and fails where it does not end by itself.
func mustReturn(t *testing.T, cmd *exec.Cmd) runResult {
	t.Helper()
	got := runAndKill(t, cmd, 90*time.Second)
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		t.Errorf("%q does not end: %s%s", cmd.Args[1:], got.out, got.err)
	}
	return got
}

// TestPipeWithoutEnd: a named pipe that no program has open at its other end is an error wherever a file is named or
// looked for, and never waited for without an end.
func TestPipeWithoutEnd(t *testing.T) {
	t.Parallel()
	const unread, unwritten, plain = "a named pipe that no program reads", "a named pipe that no program writes to", "a named pipe, and must be a plain file"
	for name, c := range map[string]struct {
		pipe string // where it is, below the test's folder
		args []string
		env  []string
		code int
		text string
	}{
		"machine":         {"m", []string{"status", "--machine", "m"}, nil, 2, unwritten},
		"GPUARD_MACHINE":  {"m", []string{"run", "true"}, []string{"GPUARD_MACHINE=m"}, 125, unwritten},
		"file":            {"f", []string{"up", "--machine", "demo", "--file", "f"}, nil, 2, unwritten},
		"found":           {"gpuard.yaml", []string{"up", "--machine", "demo"}, nil, 2, plain},
		"env_file":        {"variables", []string{"up", "--machine", "demo", "--file", "with.yaml"}, nil, 2, unwritten},
		"csv":             {"c", []string{"sweep", "--machine", "demo", "--csv", "c", "--", "true"}, nil, 125, unwritten},
		"commands":        {"c", []string{"sweep", "--machine", "demo", "--commands", "c"}, nil, 125, unwritten},
		"sweep's own":     {"old/sweep.json", []string{"sweep", "--resume", "old"}, nil, 125, unwritten},
		"log":             {"l", []string{"run", "--machine", "demo", "--log", "l", "--", "true"}, nil, 125, unread},
		"trace":           {"t", []string{"run", "--machine", "demo", "--", "true"}, []string{"GPUARD_TRACE=HERE/t"}, 125, "is a pipe that no program reads"},
		"user's config":   {"config/gpuard/config.yaml", []string{"run", "--machine", "demo", "--", "true"}, []string{"XDG_CONFIG_HOME=HERE/config"}, 125, plain},
		"environment.yml": {"e", []string{"setup", "conda", "--environment-yml", "e", "--cpu"}, nil, 2, plain},
		"lint":            {"x.sh", []string{"lint", "x.sh"}, nil, 2, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := quietDir(t)
			if err := os.MkdirAll(filepath.Dir(filepath.Join(here, c.pipe)), 0o700); err != nil {
				t.Fatal(err)
			}
			makeFIFO(t, filepath.Join(here, c.pipe))
			if err := os.WriteFile(filepath.Join(here, "with.yaml"), []byte("services: {a: {cpu: true, command: 'true', env_file: variables}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range c.env {
				c.env[i] = strings.ReplaceAll(c.env[i], "HERE", here)
			}
			cmd := gpuardCommand(t, stateFolder(t), append([]string{"HOME=" + here}, c.env...), c.args...)
			cmd.Dir = here
			if got := mustReturn(t, cmd); got.code != c.code || !strings.Contains(got.out+got.err, c.text) {
				t.Errorf("exit %d, %s%s; want %d and %q", got.code, got.out, got.err, c.code, c.text)
			}
		})
	}
}

// TestPipeOfAShell: the output of a program can be given in place of a file, and the log can go to one.
func TestPipeOfAShell(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"machine":  `gpuard status --record --machine demo:2xL4 | gpuard run -q --machine /dev/stdin -- echo GOOD`,
		"slowly":   `(sleep 1; gpuard status --record --machine demo:2xL4) | gpuard run -q --machine /dev/stdin -- echo GOOD`,
		"named":    `mkfifo m; (gpuard status --record --machine demo:2xL4 > m) & gpuard run -q --machine m -- echo GOOD; wait`,
		"file":     `echo 'services: {a: {cpu: true, workdir: /, command: echo GOOD}}' | gpuard up --machine demo --file /dev/stdin`,
		"csv":      `printf 'a\nGOOD\n' | gpuard sweep --machine demo --cpu --csv /dev/stdin -- echo '{{.a}}' && cat gpuard-sweep-1/runs/*/log`,
		"log":      `gpuard run -q --machine demo --log /dev/stdout -- sh -c 'echo GOOD >&2' | cat`,
		"null":     `gpuard run -q --machine demo --log /dev/null -- echo GOOD`,
		"log file": `mkfifo l; cat l > read & until gpuard run -q --machine demo --log l -- sh -c 'echo to the log; sleep 0.2; echo GOOD' > /dev/null; do :; done; wait; cat read`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := quietDir(t)
			cmd := gpuardCommand(t, stateFolder(t), []string{"HOME=" + here})
			self := cmd.Path
			cmd.Path, cmd.Args, cmd.Dir = "/bin/sh", []string{"sh", "-c", `gpuard() { "$GPUARD" "$@"; }; ` + script}, here
			link := filepath.Join(here, "gpuard")
			if err := os.Symlink(self, link); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(cmd.Env, "GPUARD="+link)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // what hangs
			if got := mustReturn(t, cmd); !strings.Contains(got.out, "GOOD") {
				t.Errorf("exit %d, %s%s", got.code, got.out, got.err)
			}
		})
	}
}

// TestTraceInAFullPipe: a trace that cannot be written for the moment delays neither the claim that it is of nor those
// of others, and one that can has every decision.
func TestTraceInAFullPipe(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:2xL4")
	path := makeFIFO(t, filepath.Join(t.TempDir(), "trace"))
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	full := make([]byte, 4096)
	for err == nil {
		_, err = unix.Write(int(pipe.Fd()), full)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	traced := withEnv(r.jobCommand("sleep", "60"), "GPUARD_TRACE="+path)
	var errs strings.Builder
	traced.Stderr = &errs
	if err := traced.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = traced.Process.Kill(), traced.Wait() }()
	waitUntil(t, "the traced job has its lease", func() bool { return r.countLeases() == 1 })
	began := time.Now()
	if got := mustReturn(t, r.jobCommand("true")); got.code != 0 {
		t.Errorf("another's claim: exit %d, %s", got.code, got.err)
	}
	t.Logf("another's claim took %s", time.Since(began))
	waitUntil(t, "the traced job runs", func() bool {
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", traced.Process.Pid))
		return strings.HasPrefix(string(words), "sleep\x00")
	})
	for err = nil; err == nil; {
		_, err = unix.Read(int(pipe.Fd()), full)
	}
	waitUntil(t, "the lease of the other job is over", func() bool { return r.countLeases() == 1 })
	lines := bufio.NewReader(pipe)
	if got := mustReturn(t, withEnv(r.jobCommand("true"), "GPUARD_TRACE="+path)); got.code != 0 || got.err != "" {
		t.Errorf("with a reader: exit %d, %s", got.code, got.err)
	}
	line, err := lines.ReadBytes('\n')
	var d struct{ Given []string }
	if err != nil || json.Unmarshal(line, &d) != nil || len(d.Given) != 1 {
		t.Errorf("the trace has %q, %v", line, err)
	}
}
