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
	shell.Env = append(program(t, stateFolder(t), nil).Env, "PS1="+prompt)
	s := onTerminal(t, shell)
	s.until(prompt + "$")
	three := func(text string) string { return "(?s)(" + regexp.QuoteMeta(text) + ".*){3}" }
	s.press("gpuard run -q --cpu --nproc 3 --ranks -- listen INT TERM USR1\n")
	shown := s.until(`(?s)(on [0-9]+\n.*){3}`)
	leader := s.foreground(s.cmd.Process.Pid)
	if strings.Contains(shown, prompt) {
		t.Fatalf("the run is over: %q", shown)
	}
	for range 3 {
		s.press("\x03")
		s.until(three("got INT\n"))
	}
	s.press("\x1a")
	contains(t, s.until(prompt+"$"), "Stopped")
	if err := unix.Kill(leader, unix.SIGUSR1); err != nil { // waits until the leader runs again
		t.Fatal(err)
	}
	contains(t, s.line("jobs"), "Stopped")
	s.press("fg\n")
	s.until(three("got USR1\n"))
	s.foreground(s.cmd.Process.Pid)
	if err := unix.Kill(leader, unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	shown = s.until(prompt + "$")
	same(t, "ranks that got each once", len(regexp.MustCompile(`totals map\[INT:3 (TERM:1 )?USR1:1 USR2:1\]`).FindAllString(shown, -1)), 3)
	contains(t, s.line("echo code $?"), "code 7")
}
