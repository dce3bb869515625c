package sys

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalThatEnds: a process that ends of the first signal, and is collected before the next one is sent, was alive.
func TestSignalThatEnds(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		_ = cmd.Wait()
	}()
	signals := []unix.Signal{unix.SIGKILL}
	for len(signals) < 200_000 { // so that it is gone before the last one
		signals = append(signals, unix.SIGCONT)
	}
	if err := SendSignals(cmd.Process.Pid, func() bool { return true }, signals...); err != nil {
		t.Error(err)
	}
	<-collected
	if err := SendSignals(cmd.Process.Pid, func() bool { return cmd.ProcessState == nil }, unix.SIGKILL, unix.SIGCONT); err == nil {
		t.Error("a process that has ended was signalled")
	}
}
