package main

import (
	"testing"

	"gpuard/internal/core/status"
)

// TestTop: the screen shows a lease within two seconds, and a key takes a GPU out of use after a question.
func TestTop(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := r.viewCommand("top")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	s := startOnTerminal(t, cmd)
	s.waitForScreen("1 of 1 free")
	lease := startToFirstLine(t, r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	s.waitForScreen(lease)
	s.typeKeys("d")
	s.waitForScreen("out of use")
	s.typeKeys("y")
	s.waitForScreen("gets no new")
	waitUntil(t, "it is drained", func() bool {
		got, _ := r.readStatus()
		return got.Devices[0].Use == status.Draining
	})
	s.typeKeys("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("after q: %v", err)
	}
	got := runCommand(t, r.viewCommand("top"))
	checkEqual(t, "without a terminal", got.code, 2)
	checkContains(t, got.err, "this is no terminal")
	got = runCommand(t, r.viewCommand("top", "--theme", "pink"))
	checkEqual(t, "of no theme", got.code, 2)
	checkContains(t, got.err, `cannot use --theme "pink": it is one of auto, dark, light, mono`)
}

// TestTopEndsOwnJob: x ends the chosen job after a question, one of gpuard run and one of the queue, whose log o shows; its processes are
// there as a tree.
func TestTopEndsOwnJob(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	startToFirstLine(t, r.cmd("run", "-q", "--", "sh", "-c", "echo begun; sleep 61; :"))
	cmd := r.viewCommand("top", "--theme", "mono")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	s := startOnTerminal(t, cmd)
	s.waitForScreen("0 of 1 free")
	s.typeKeys("t")
	s.waitForScreen("sleep 61")
	s.typeKeys("t")
	s.typeKeys("o")
	s.waitForScreen("was started by gpuard run")
	s.typeKeys("x")
	s.waitForScreen("end sh of")
	s.typeKeys("y")
	s.waitForScreen("asked sh to end")
	uses := func(want status.Use) {
		t.Helper()
		waitUntil(t, string(want), func() bool {
			got, _ := r.readStatus()
			return got.Devices[0].Use == want
		})
	}
	uses(status.Free)
	runCommand(t, r.cmd("submit", "--", "sh", "-c", "echo the first line; exec sleep 62"))
	uses(status.Leased)
	s.waitForScreen("sleep 62") // in the line about the chosen row
	s.typeKeys("o")
	s.waitForScreen("the first line")
	s.typeKeys("q")
	s.typeKeys("x")
	s.waitForScreen("running")
	s.typeKeys("y")
	s.waitForScreen("to end")
	uses(status.Free)
	s.typeKeys("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("after q: %v", err)
	}
}
