package job

import (
	"testing"

	"gpuard/internal/core/gpu"
)

// TestKillText: only what is proven to hold the lease, and uses its devices, is to be ended: not a shell in tmux, not another
// user's process that has the number now, not one on another device, and none of another PID namespace, whose start is
// not known here.
func TestKillText(t *testing.T) {
	alice, bob := uint32(1000), uint32(1001)
	l := Lease{UID: alice, Ended: true, Devices: []gpu.UUID{"GPU-1"}, HeldBy: []Blocker{{PID: 7, Start: 70}, {PID: 8, Start: 80}, {PID: 9, Start: 90}, {PID: 10}}}
	engine := gpu.Process{PID: 7, Start: 70, UID: &alice, GPU: "GPU-1"}
	changed := func(change func(*gpu.Process)) gpu.Process {
		p := engine
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		p    gpu.Process
		want string
	}{
		"the engine":                {engine, "kill 7"},
		"the number of another one": {changed(func(p *gpu.Process) { p.Start = 71 }), ""},
		"of another user":           {changed(func(p *gpu.Process) { p.UID = &bob }), ""},
		"of an unknown user":        {changed(func(p *gpu.Process) { p.UID = nil }), ""},
		"on another device":         {changed(func(p *gpu.Process) { p.GPU = "GPU-2" }), ""},
		"start not known":           {changed(func(p *gpu.Process) { p.PID, p.Start = 10, 0 }), ""},
	} {
		m := gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-1"}, {UUID: "GPU-2"}}, Processes: []gpu.Process{c.p}}
		if got := l.KillText(m); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
