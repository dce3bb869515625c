package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRankKeys: keys of the terminal reach each rank once, Ctrl-Z stops all of them and fg continues them.
func TestRankKeys(t *testing.T) {
	t.Parallel()
	shell := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Env = append(gpuardCommand(t, stateFolder(t), nil).Env, "PS1="+shellPrompt)
	s := startOnTerminal(t, shell)
	s.waitForScreen(shellPrompt + "$")
	three := func(text string) string { return "(?s)(" + regexp.QuoteMeta(text) + ".*){3}" }
	s.typeKeys("gpuard run -q --cpu --nproc 3 --ranks -- listen INT TERM USR1\n")
	shown := s.waitForScreen(`(?s)(on [0-9]+\n.*){3}`)
	leader := s.waitForForeground(s.cmd.Process.Pid)
	if strings.Contains(shown, shellPrompt) {
		t.Fatalf("the run is over: %q", shown)
	}
	for range 3 {
		s.typeKeys("\x03")
		s.waitForScreen(three("got INT\n"))
	}
	s.typeKeys("\x1a")
	checkContains(t, s.waitForScreen(shellPrompt+"$"), "Stopped")
	if err := unix.Kill(leader, unix.SIGUSR1); err != nil { // waits until the leader runs again
		t.Fatal(err)
	}
	checkContains(t, s.typeLine("jobs"), "Stopped")
	s.typeKeys("fg\n")
	s.waitForScreen(three("got USR1\n"))
	s.waitForForeground(s.cmd.Process.Pid)
	if err := unix.Kill(leader, unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	shown = s.waitForScreen(shellPrompt + "$")
	checkEqual(t, "ranks that got each once", len(regexp.MustCompile(`totals map\[INT:3 (TERM:1 )?USR1:1 USR2:1\]`).FindAllString(shown, -1)), 3)
	checkContains(t, s.typeLine("echo code $?"), "code 7")
}
