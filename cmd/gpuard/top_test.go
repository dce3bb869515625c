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
}
