package main

import (
	"testing"

	"gpuard/internal/core/status"
)

// TestTop: the screen shows a lease within two seconds, and a key takes a GPU out of use after a question.
func TestTop(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(1)...)
	cmd := r.view("top")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	s := onTerminal(t, cmd)
	s.until("1 of 1 free")
	lease := begin(t, r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60"))
	s.until(lease)
	s.press("d")
	s.until("out of use")
	s.press("y")
	s.until("gets no new")
	eventually(t, "it is drained", func() bool {
		got, _ := r.status()
		return got.Devices[0].Use == status.Draining
	})
	s.press("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("after q: %v", err)
	}
	got := run(t, r.view("top"))
	same(t, "without a terminal", got.code, 2)
	contains(t, got.err, "this is no terminal")
	got = run(t, r.view("top", "--theme", "pink"))
	same(t, "of no theme", got.code, 2)
	contains(t, got.err, `cannot use --theme "pink": it is one of auto, dark, light, mono`)
}

// TestTopEndsOwnJob: x ends the chosen job after a question, one of gpuard run and one of the queue, whose log o shows; its processes are
// there as a tree.
func TestTopEndsOwnJob(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(1)...)
	begin(t, r.cmd("run", "-q", "--", "sh", "-c", "echo begun; sleep 61; :"))
	cmd := r.view("top", "--theme", "mono")
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	s := onTerminal(t, cmd)
	s.until("0 of 1 free")
	s.press("t")
	s.until("sleep 61")
	s.press("t")
	s.press("o")
	s.until("was started by gpuard run")
	s.press("x")
	s.until("end sh of")
	s.press("y")
	s.until("asked sh to end")
	uses := func(want status.Use) {
		t.Helper()
		eventually(t, string(want), func() bool {
			got, _ := r.status()
			return got.Devices[0].Use == want
		})
	}
	uses(status.Free)
	run(t, r.cmd("submit", "--", "sh", "-c", "echo the first line; exec sleep 62"))
	uses(status.Leased)
	s.until("sleep 62") // in the line about the chosen row
	s.press("o")
	s.until("the first line")
	s.press("q")
	s.press("x")
	s.until("running")
	s.press("y")
	s.until("to end")
	uses(status.Free)
	s.press("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("after q: %v", err)
	}
}
