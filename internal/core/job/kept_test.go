package job

import "testing"

// TestKillText: only processes on the devices of a lease whose command has ended are to be ended: a shell in tmux is none.
func TestKillText(t *testing.T) {
	held := []Blocker{{PID: 7, Command: "EngineCore"}, {PID: 8, Command: "EngineCore"}, {PID: 9, Command: "tmux"}}
	onDevice := func(pid int) bool { return pid < 9 }
	for want, l := range map[string]Lease{"kill 7 8": {Ended: true, HeldBy: held}, "": {HeldBy: held}} {
		if got := l.KillText(onDevice); got != want {
			t.Errorf("%+v: %q, want %q", l, got, want)
		}
	}
	if l := (Lease{Ended: true, HeldBy: held[2:]}); l.KillText(onDevice) != "" {
		t.Error(l.KillText(onDevice))
	}
}
