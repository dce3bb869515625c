package display

import (
	"fmt"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestServes: servers and compositors serve a display, and what the session of the one before the screen draws with.
// What only draws does not.
func TestServes(t *testing.T) {
	const root, gdm, alice, bob = 0, 120, 1000, 1001
	on, off := new(true), new(false)
	process := func(uid uint32, kind gpu.Kind, command string) gpu.Process {
		return gpu.Process{PID: 1, UID: &uid, Kind: kind, Command: command}
	}
	xorg := process(root, gpu.GraphicsProcess, "/usr/lib/xorg/Xorg vt2 -displayfd 3")
	shell := process(alice, gpu.BothKinds, "/usr/bin/gnome-shell")
	greeter := process(gdm, gpu.GraphicsProcess, "/usr/bin/gnome-shell")
	nobodys := gpu.Process{Kind: gpu.GraphicsProcess}
	for i, c := range []struct {
		active      *bool
		beside      []gpu.Process
		p           gpu.Process
		serves, may bool
	}{
		{nil, nil, xorg, true, true},
		{off, nil, xorg, true, true},
		{nil, nil, shell, true, true},
		{nil, nil, process(bob, "", "[Xorg]"), true, true},
		{on, nil, process(bob, gpu.ComputeProcess, "Xorg"), false, false},
		// Renderers without a screen.
		{nil, nil, process(bob, gpu.GraphicsProcess, "python render.py"), false, true},
		{off, nil, process(bob, gpu.GraphicsProcess, "python render.py"), false, false},
		{off, []gpu.Process{xorg, greeter}, process(bob, gpu.GraphicsProcess, "python render.py"), false, false},
		{on, []gpu.Process{xorg, shell}, process(bob, gpu.GraphicsProcess, "python render.py"), false, true},
		{off, nil, process(bob, gpu.BothKinds, "chrome --headless"), false, false},
		// What the session draws with.
		{on, []gpu.Process{xorg, shell}, process(alice, gpu.GraphicsProcess, "alacritty"), true, true},
		{off, []gpu.Process{xorg, shell}, process(alice, gpu.GraphicsProcess, "alacritty"), true, true}, // a remote desktop
		{on, []gpu.Process{xorg}, process(alice, gpu.GraphicsProcess, "alacritty"), true, true},
		{nil, []gpu.Process{xorg}, process(alice, gpu.GraphicsProcess, "alacritty"), true, true},
		{nil, []gpu.Process{xorg, shell}, process(alice, gpu.BothKinds, "/opt/google/chrome/chrome --type=gpu-process"), true, true},
		{on, []gpu.Process{xorg, shell}, process(bob, gpu.BothKinds, "chrome"), false, true},
		{on, []gpu.Process{xorg, shell}, process(alice, gpu.BothKinds, "blender"), false, true},
		{off, []gpu.Process{xorg, shell}, process(alice, gpu.BothKinds, "python train.py"), false, false},
		{on, []gpu.Process{xorg, shell}, process(alice, gpu.ComputeProcess, "firefox"), false, false},
		// Whose it is cannot be seen, as from a container.
		{on, nil, nobodys, true, true},
		{nil, nil, nobodys, false, true},
		{off, nil, nobodys, false, false},
	} {
		screen := ScreenOf(gpu.Device{DisplayActive: c.active}, append(c.beside, c.p))
		if screen.Serves(c.p) != c.serves || screen.MayServe(c.p) != c.may {
			t.Errorf("%d %s: serves %t, may %t", i, fmt.Sprint(c.p.Kind, " ", c.p.Command), screen.Serves(c.p), screen.MayServe(c.p))
		}
	}
}
