// Package display decides which processes serve a display. They may stay on a device beside a job, and gpuard never
// suggests to end one:
//
//	screen := display.ScreenOf(device, machine.On(device.UUID))
//	if screen.Serves(p) {
//		fmt.Println("also drives a display")
//	}
//
// That a process draws does not make it one: programs that render without a screen draw, too (EGL). It must not read
// processes or devices.
package display

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
)

// Screen is what is known of the display of one device.
type Screen struct {
	// A screen shows what the device draws; nil: not known.
	active *bool
	// A server or compositor is on the device.
	served bool
	// People whose session that is; none where only root and accounts of the system have one.
	owners map[uint32]bool
}

// minPersonUID is the lowest uid of a person (SYS_UID_MAX of login.defs(5)).
const minPersonUID = 1000

// ScreenOf reads it from the processes on a device.
func ScreenOf(d gpu.Device, processes []gpu.Process) Screen {
	s := Screen{active: d.DisplayActive, owners: map[uint32]bool{}}
	for _, p := range processes {
		if !isServer(p) {
			continue
		}
		s.served = true
		if p.UID != nil && *p.UID >= minPersonUID {
			s.owners[*p.UID] = true
		}
	}
	return s
}

// IsLit reports whether the device drives a display: a screen shows what it draws or, where the driver does not say, a
// server is on it. Xorg keeps some memory on every device, also on those that drive none.
func (s Screen) IsLit() bool {
	if s.active != nil {
		return *s.active
	}
	return s.served
}

// Serves reports whether a process serves the display: a server or compositor, what else the session draws with, and a
// browser of the session, which drivers list as computing, too.
func (s Screen) Serves(p gpu.Process) bool {
	switch {
	case isServer(p):
		return true
	case p.Kind == gpu.GraphicsProcess, p.Kind == gpu.BothKinds && slices.Contains(desktopPrograms(), ProgramName(p.Command)):
		return s.isOfSession(p)
	}
	return false
}

// MayServe reports whether it cannot be excluded that a process serves the display: there are more compositors than
// anybody knows. Nobody is told to end such a process.
func (s Screen) MayServe(p gpu.Process) bool {
	return s.Serves(p) || drawsGraphics(p) && (s.active == nil || *s.active)
}

// isOfSession: where no screen is on, only what the owner of a session draws belongs to it. A display manager's session
// on each device of a server is none for the renderers of others.
func (s Screen) isOfSession(p gpu.Process) bool {
	switch {
	case p.UID != nil && s.owners[*p.UID]:
		return true
	case s.active != nil && !*s.active:
		return false
	case s.active == nil && !s.served:
		return false
	}
	return len(s.owners) == 0 || p.UID == nil
}

func isServer(p gpu.Process) bool {
	return (drawsGraphics(p) || p.Kind == "") && slices.Contains(displayServers(), ProgramName(p.Command))
}

func drawsGraphics(p gpu.Process) bool {
	return p.Kind == gpu.GraphicsProcess || p.Kind == gpu.BothKinds
}

// ProgramName is the name of a program without its folder, from its command line.
func ProgramName(command string) string {
	first, _, _ := strings.Cut(command, " ")
	return path.Base(strings.Trim(first, "[]"))
}

// displayServers are display servers, compositors and greeters: what draws the screen of a whole session.
func displayServers() []string {
	return []string{"X", "Xorg", "Xorg.bin", "Xorg.wrap", "Xwayland", "Xephyr", "Xnest", "Xtigervnc", "Xvnc", "awesome", "budgie-wm", "cage", "cinnamon", "compiz", "compton",
		"cosmic-comp", "cosmic-greeter", "deepin-kwin_wayland", "deepin-kwin_x11", "dwl", "enlightenment", "gala", "gamescope", "gdm-wayland-session", "gdm-x-session",
		"gnome-session-binary", "gnome-shell", "gtkgreet", "Hyprland", "hyprland", "hyprlock", "kwin", "kwin_wayland", "kwin_x11", "ksmserver", "labwc", "lightdm",
		"lightdm-gtk-greeter", "lomiri", "marco", "metacity", "mir", "mirserver", "muffin", "mutter", "niri", "phoc", "picom", "plasmashell", "qtile", "regreet", "river",
		"sddm", "sddm-greeter", "sddm-greeter-qt6", "slick-greeter", "sway", "swaylock", "unity-system-compositor", "wayfire", "weston", "xfwm4"}
}

// desktopPrograms are those of a desktop that also compute on its GPU, such as to decode video.
func desktopPrograms() []string {
	return []string{"brave", "brave-browser", "chrome", "chromium", "chromium-browser", "code", "discord", "Discord", "electron", "epiphany", "epiphany-browser", "firefox",
		"firefox-bin", "firefox-esr", "kodi", "librewolf", "microsoft-edge", "mpv", "msedge", "obs", "opera", "slack", "steam", "steamwebhelper", "teams", "thunderbird",
		"totem", "vivaldi", "vivaldi-bin", "vlc", "WebKitWebProcess", "zoom"}
}
