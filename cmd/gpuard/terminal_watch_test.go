package main

import (
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/test/fakegpu"
)

// isCharacterMode reports whether the terminal passes each key on immediately, without an echo.
func (s *terminal) isCharacterMode() (yes bool) {
	s.t.Helper()
	controlFile(s.t, s.master, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		yes = err == nil && mode.Lflag&(unix.ICANON|unix.ECHO) == 0 && mode.Lflag&unix.ISIG != 0
		return err
	})
	return yes
}

// terminalMode is the terminal's mode, to see whether anything of it was left changed.
func (s *terminal) terminalMode() (mode unix.Termios) {
	s.t.Helper()
	controlFile(s.t, s.master, func(fd int) error {
		m, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			mode = *m
		}
		return err
	})
	return mode
}

// TestWatch: the screen has a clock and says how to leave; q leaves with success, Ctrl-C ends it as it ends every
// program, and the terminal is as it was, whatever ended it.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ key, code string }{
		"q": {"q", "0"}, "Ctrl-C": {"\x03", "130"}, "Ctrl-D": {"\x04", "0"}, "Ctrl-backslash": {"\x1c", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=demo", "TERM=xterm"})
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap : INT; read go; gpuard --watch; echo "code $?"; read go`}
			s := startOnTerminal(t, cmd)
			before := s.terminalMode()
			s.typeKeys("\n")
			s.waitForScreen(`4 GPUs: 4 free`, `\n[^\n]*\d\d:\d\d:\d\d  q leaves`)
			if !s.isCharacterMode() {
				t.Error("the terminal does not hand over keys one by one")
			}
			s.typeKeys("x" + c.key)
			s.waitForScreen("code " + c.code + "\n")
			if after := s.terminalMode(); after != before {
				t.Errorf("the terminal was left changed:\n%+v\n%+v", before, after)
			}
		})
	}
}

// TestWatchCrashed: a crash of the driver's library in between leaves no single keys behind.
func TestWatchCrashed(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := r.hastyCommand()
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `read begin; gpuard status --watch=0.1s; echo "code $?"; read go`}
	s := startOnTerminal(t, cmd)
	before := s.terminalMode()
	s.typeKeys("\n")
	s.waitForScreen("q leaves")
	r.Crash("nvmlDeviceGetMemoryInfo_v2", fakegpu.AnyGPU)
	s.waitForScreen("read through nvidia-smi")
	waitUntil(t, "keys count again", s.isCharacterMode)
	s.typeKeys("q")
	s.waitForScreen("code 0\n")
	before.Lflag |= unix.ECHO // the tests' terminal is without it, a person's is not
	if after := s.terminalMode(); after != before {
		t.Errorf("the terminal was left changed:\n%+v\n%+v", before, after)
	}
}

// TestWatchSuspended: after Ctrl-Z the shell has the terminal as ever, and after fg the keys count again.
func TestWatchSuspended(t *testing.T) {
	t.Parallel()
	cmd := gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=demo", "TERM=xterm", "PS1=" + shellPrompt})
	cmd.Path, cmd.Args = "/bin/bash", jobControlShells()["bash"]
	s := startOnTerminal(t, cmd)
	s.waitForScreen(shellPrompt + "$")
	s.typeKeys("gpuard --watch\n")
	s.waitForScreen("q leaves")
	s.typeKeys("\x1a")
	s.waitForScreen(shellPrompt + "$")
	s.typeKeys("fg\n")
	s.waitForScreen("q leaves")
	waitUntil(t, "keys count again", s.isCharacterMode)
	s.typeKeys("q")
	s.waitForScreen(shellPrompt + "$")
	if text := s.typeLine("echo code $?"); text != "code 0\n" {
		t.Errorf("after q: %q", text)
	}
}

// TestWatchInBackground: it shows, and is not stopped by the terminal, which belongs to another process group.
func TestWatchInBackground(t *testing.T) {
	t.Parallel()
	cmd := gpuardCommand(t, stateFolder(t), []string{"GPUARD_MACHINE=demo", "TERM=xterm"})
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `set -m; gpuard --watch & read go; kill %1; wait; echo over`}
	s := startOnTerminal(t, cmd)
	s.waitForScreen("Ctrl-C leaves")
	if s.isCharacterMode() {
		t.Error("a job in the background has changed the terminal")
	}
	s.typeKeys("\n")
	s.waitForScreen("over")
}
