package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/files"
	"gpuard/internal/text/unit"
)

// service is what a unit says, its drop-ins included.
type service struct {
	name, program string
	root          string // of the machine's files
	user          bool
	shared        bool // the leases are where every service sees them
	entries       []unit.Entry
}

// list are the values of a key since it was last emptied.
func (u service) list(key string) (values []string) {
	for _, e := range u.entries {
		switch {
		case e.Section != "Service" || e.Key != key:
		case e.Value == "":
			values = nil
		default:
			values = append(values, e.Value)
		}
	}
	return values
}

// last is the value of a key that has one; "" none.
func (u service) last(key string) string {
	values := u.list(key)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// on reports whether a switch is on. Some know more than yes and no, such as ProtectHome=tmpfs.
func (u service) on(key string) bool {
	switch strings.ToLower(u.last(key)) {
	case "", "0", "no", "n", "false", "f", "off":
		return false
	}
	return true
}

// kind is the unit's Type=, or what systemd takes without one.
func (u service) kind() string {
	switch {
	case u.last("Type") != "":
		return u.last("Type")
	case u.last("BusName") != "":
		return "dbus"
	}
	return "simple"
}

// tells: the unit has started when the program says so, and until then a clock runs.
func (u service) tells() bool {
	return slices.Contains([]string{"notify", "notify-reload", "dbus"}, u.kind())
}

// clocks are the keys whose time runs while the service waits for a device, because it counts from the start or limits
// it.
func (u service) clocks() []string {
	keys := map[string][]string{"simple": {"WatchdogSec", "RuntimeMaxSec"}, "oneshot": {"TimeoutStartSec", "TimeoutSec"}}
	keys["exec"], keys["idle"] = keys["simple"], keys["simple"]
	return slices.DeleteFunc(keys[u.kind()], func(key string) bool { return slices.Contains([]string{"", "0", "infinity"}, u.last(key)) })
}

// readOnly: the folder of the leases cannot be written to from inside.
func (u service) readOnly() bool {
	return u.last("ProtectSystem") == "strict" || u.on("DynamicUser") || slices.ContainsFunc(strings.Fields(strings.Join(u.list("ReadOnlyPaths"), " ")), func(path string) bool {
		return slices.Contains([]string{"/", "/run", "/run/gpuard"}, filepath.Clean(strings.TrimLeft(path, "-+")))
	})
}

// commands are the commands of each ExecStart= line, or why they cannot be started by gpuard.
func (u service) commands() ([][]unit.Command, error) {
	refused := func(format string, words ...any) error {
		return &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: ", u.name) + fmt.Sprintf(format, words...)}
	}
	lines := u.list("ExecStart")
	switch {
	case len(lines) == 0:
		return nil, refused("it starts no program, it has no ExecStart=")
	case u.kind() == "forking":
		return nil, refused("Type=forking: the program leaves the process that the lease belongs to, and may close what keeps it; let it stay in the foreground, with Type=exec or Type=notify")
	case u.last("RootDirectory") != "" || u.last("RootImage") != "":
		return nil, refused("RootDirectory= or RootImage=: gpuard is not in there; start gpuard inside yourself")
	case u.away():
		return nil, refused("it cannot start %s, which is in a home folder; sudo install %[1]s /usr/local/bin/gpuard, and call that", u.program)
	}
	var all [][]unit.Command
	for _, line := range lines {
		commands, err := unit.Commands(line)
		if err != nil {
			return nil, refused("%v", err)
		}
		for _, c := range commands {
			switch name := filepath.Base(c.Program); {
			case strings.Contains(c.Prefix, "@"):
				return nil, refused("its ExecStart= begins with @, which gives the program another name; write it without, in systemctl edit %s", u.name)
			case strings.Contains(c.Prefix, "|"):
				return nil, refused("its ExecStart= begins with |, which starts a shell; write the shell yourself: /bin/sh -c '…'")
			case name == "gpuard":
				return nil, refused("it starts gpuard itself: %s; change that line, or the setup that wrote it", prose.Clean(line))
			case strings.Contains(c.Program, "$") && !strings.Contains(c.Prefix, ":"):
				return nil, refused("the path of its program has a $, which an argument may not have")
			case name == "podman" || name == "docker":
				return nil, refused("%s starts a container, and the lease of gpuard run does not reach into it", name)
			}
		}
		all = append(all, commands)
	}
	return all, nil
}

// away: gpuard is in a folder that the service cannot see or enter.
func (u service) away() bool {
	home := strings.HasPrefix(u.program, "/home/") || strings.HasPrefix(u.program, "/root/")
	return home && (u.on("ProtectHome") && u.last("ProtectHome") != "read-only" || !u.user && (u.last("User") != "" || u.on("DynamicUser")))
}

// notes are what else there is to know about the unit.
func (u service) notes(noWait bool) (notes []string) {
	add := func(when bool, format string, words ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, words...))
		}
	}
	kind := u.kind()
	add(!noWait && slices.Contains([]string{"simple", "exec", "idle"}, kind), "Type=%s: it counts as started while it still waits for a free device; with --no-wait it fails instead", kind)
	for _, key := range u.clocks() {
		add(!noWait, "%s=%s runs while it waits for a free device, too, and ends it; with --no-wait it fails instead", key, u.last(key))
	}
	for _, key := range []string{"TimeoutStartSec", "TimeoutSec"} {
		add(!noWait && u.tells() && u.last(key) != "", "%s=%s does not end its start any more, because that waits in line, too; with --no-wait it does", key, u.last(key))
	}
	restart := u.last("Restart")
	add(noWait && (restart == "always" || restart == "on-failure") && u.last("RestartSec") == "",
		"Restart=%s without RestartSec= tries five times within a second and gives up; a line RestartSec=30 in systemctl edit %s tries on", restart, u.name)
	add(kind == "oneshot" && len(u.list("ExecStart")) > 1, "each of its commands gets a lease of its own, one after the other")
	add(u.on("PrivateDevices"), "PrivateDevices= hides every GPU from it; PrivateDevices=no in systemctl edit %s shows them", u.name)
	policy := u.last("DevicePolicy")
	add((policy == "closed" || policy == "strict") && !strings.Contains(strings.Join(u.list("DeviceAllow"), " "), "nvidia"),
		"DevicePolicy=%s hides the devices that DeviceAllow= does not name; for NVIDIA: DeviceAllow=char-nvidia* rw", policy)
	add(u.on("PrivatePIDs"), "PrivatePIDs= hides it from other jobs, so gpuard refuses to lease there; write PrivatePIDs=no")
	add(u.last("ProcSubset") == "pid", "ProcSubset=pid hides the number of this boot, which every lease has, so gpuard refuses to lease there; write ProcSubset=all")
	add(u.on("PrivateUsers"), "PrivateUsers=: the owners of most other jobs have no names in there")
	protect := u.last("ProtectProc")
	add(protect == "invisible" || protect == "noaccess" || protect == "ptraceable", "ProtectProc=%s: the jobs of other users on a GPU have no owner and no command in there", protect)
	add(!u.shared && (u.on("PrivateTmp") || u.readOnly()), "this machine keeps its leases in /var/tmp, and this service has none, or a private one, so gpuard refuses to lease there: the machine needs /run/gpuard, which gpuard setup machine makes")
	mode := u.last("KillMode")
	add(mode == "process" || mode == "none", "KillMode=%s: what it leaves behind keeps its lease as long as it keeps its files open", mode)
	obeyed := func(where, name, value string) {
		add(strings.Contains(name, "_VISIBLE_DEVICES"), "%s%s=%s is obeyed: it gets no device but these; take it out if gpuard is to choose", where, name, value)
	}
	f, _ := unit.Read(u.name, []byte("[Service]\nEnvironment="+strings.Join(u.list("Environment"), "\nEnvironment=")))
	for _, step := range f.Steps {
		if step.Do == lint.Set {
			obeyed("Environment=", step.Name, step.Value.Text)
		}
	}
	for _, path := range u.files() {
		text, _ := files.Read(path) // one that cannot be read is for systemd to mind
		for line := range strings.Lines(string(text.Content)) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); !strings.ContainsAny(name, "#;") {
				obeyed("in "+path+", ", name, prose.Clean(value))
			}
		}
	}
	return notes
}

// files are the existing files of EnvironmentFile=. A path with a specifier is taken literally, and so not found.
func (u service) files() (paths []string) {
	for _, value := range u.list("EnvironmentFile") {
		found, _ := filepath.Glob(filepath.Join(u.root, strings.TrimPrefix(value, "-")))
		paths = append(paths, found...)
	}
	return paths
}
