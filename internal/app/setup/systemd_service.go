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

// unitService is what a unit says, its drop-ins included.
type unitService struct {
	name, program string
	// The root of the machine's files.
	root string
	user bool
	// The leases are where every service sees them.
	shared  bool
	entries []unit.Entry
}

// valuesOf are the values of a key since it was last emptied.
func (u unitService) valuesOf(key string) (values []string) {
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

// lastValue is the value of a key that has one; "" none.
func (u unitService) lastValue(key string) string {
	values := u.valuesOf(key)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// isOn reports whether a switch is on. Some know more than yes and no, such as ProtectHome=tmpfs.
func (u unitService) isOn(key string) bool {
	switch strings.ToLower(u.lastValue(key)) {
	case "", "0", "no", "n", "false", "f", "off":
		return false
	}
	return true
}

// unitType is the unit's Type=, or what systemd takes without one.
func (u unitService) unitType() string {
	switch {
	case u.lastValue("Type") != "":
		return u.lastValue("Type")
	case u.lastValue("BusName") != "":
		return "dbus"
	}
	return "simple"
}

// notifiesStart: the unit has started when the program says so, and until then a clock runs.
func (u unitService) notifiesStart() bool {
	return slices.Contains([]string{"notify", "notify-reload", "dbus"}, u.unitType())
}

// runningClocks are the keys whose time runs while the service waits for a device, because it counts from the start or
// limits it.
func (u unitService) runningClocks() []string {
	keys := map[string][]string{"simple": {"WatchdogSec", "RuntimeMaxSec"}, "oneshot": {"TimeoutStartSec", "TimeoutSec"}}
	keys["exec"], keys["idle"] = keys["simple"], keys["simple"]
	return slices.DeleteFunc(keys[u.unitType()], func(key string) bool { return slices.Contains([]string{"", "0", "infinity"}, u.lastValue(key)) })
}

// isReadOnly: the folder of the leases cannot be written to from inside.
func (u unitService) isReadOnly() bool {
	return u.lastValue("ProtectSystem") == "strict" || u.isOn("DynamicUser") || slices.ContainsFunc(strings.Fields(strings.Join(u.valuesOf("ReadOnlyPaths"), " ")), func(path string) bool {
		return slices.Contains([]string{"/", "/run", "/run/gpuard"}, filepath.Clean(strings.TrimLeft(path, "-+")))
	})
}

// startCommands are the commands of each ExecStart= line, or why they cannot be started by gpuard.
func (u unitService) startCommands() ([][]unit.Command, error) {
	refused := func(format string, words ...any) error {
		return &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: ", u.name) + fmt.Sprintf(format, words...)}
	}

	lines := u.valuesOf("ExecStart")
	switch {
	case len(lines) == 0:
		return nil, refused("it starts no program, it has no ExecStart=")
	case u.unitType() == "forking":
		return nil, refused("Type=forking: the program leaves the process that the lease belongs to, and may close what keeps it; let it stay in the foreground, with Type=exec or Type=notify")
	case u.lastValue("RootDirectory") != "" || u.lastValue("RootImage") != "":
		return nil, refused("RootDirectory= or RootImage=: gpuard is not in there; start gpuard inside yourself")
	case u.isProgramHidden():
		return nil, refused("it cannot start %s, which is in a home folder; sudo install %[1]s /usr/local/bin/gpuard, and call that", u.program)
	}

	var all [][]unit.Command
	for _, line := range lines {
		commands, err := unit.SplitCommands(line)
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

// wordsOf is the command line of a command, with $ for words of which systemd knows the value.
func wordsOf(c unit.Command) []string {
	// It was read before.
	f, _ := unit.ReadSteps("", []byte("[Service]\nExecStart="+c.Line))
	for _, step := range f.Steps {
		if step.Do == lint.Command {
			return textsOf(step.Words)
		}
	}
	return []string{c.Program}
}

// textsOf is the texts of words, with $ for those that are not known.
func textsOf(words []lint.Word) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.Text
		if !w.Known {
			texts[i] = "$"
		}
	}
	return texts
}

// isProgramHidden: gpuard is in a folder that the service cannot see or enter.
func (u unitService) isProgramHidden() bool {
	home := strings.HasPrefix(u.program, "/home/") || strings.HasPrefix(u.program, "/root/")
	return home && (u.isOn("ProtectHome") && u.lastValue("ProtectHome") != "read-only" || !u.user && (u.lastValue("User") != "" || u.isOn("DynamicUser")))
}

// unitNotes are what else there is to know about the unit.
func (u unitService) unitNotes(noWait bool) (notes []string) {
	add := func(when bool, format string, words ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, words...))
		}
	}

	kind := u.unitType()
	add(!noWait && slices.Contains([]string{"simple", "exec", "idle"}, kind), "Type=%s: it counts as started while it still waits for a free device; with --no-wait it fails instead", kind)

	for _, key := range u.runningClocks() {
		add(!noWait, "%s=%s runs while it waits for a free device, too, and ends it; with --no-wait it fails instead", key, u.lastValue(key))
	}

	for _, key := range []string{"TimeoutStartSec", "TimeoutSec"} {
		add(!noWait && u.notifiesStart() && u.lastValue(key) != "", "%s=%s does not end its start any more, because that waits in line, too; with --no-wait it does", key, u.lastValue(key))
	}

	restart := u.lastValue("Restart")
	add(noWait && (restart == "always" || restart == "on-failure") && u.lastValue("RestartSec") == "",
		"Restart=%s without RestartSec= tries five times within a second and gives up; a line RestartSec=30 in systemctl edit %s tries on", restart, u.name)

	add(kind == "oneshot" && len(u.valuesOf("ExecStart")) > 1, "each of its commands gets a lease of its own, one after the other")
	add(u.isOn("PrivateDevices"), "PrivateDevices= hides every GPU from it; PrivateDevices=no in systemctl edit %s shows them", u.name)
	policy := u.lastValue("DevicePolicy")
	add((policy == "closed" || policy == "strict") && !strings.Contains(strings.Join(u.valuesOf("DeviceAllow"), " "), "nvidia"),
		"DevicePolicy=%s hides the devices that DeviceAllow= does not name; for NVIDIA: DeviceAllow=char-nvidia* rw", policy)

	add(u.isOn("PrivatePIDs"), "PrivatePIDs= hides it from other jobs, so gpuard refuses to lease there; write PrivatePIDs=no")
	add(u.lastValue("ProcSubset") == "pid", "ProcSubset=pid hides the number of this boot, which every lease has, so gpuard refuses to lease there; write ProcSubset=all")
	add(u.isOn("PrivateUsers"), "PrivateUsers=: the owners of most other jobs have no names in there")
	protect := u.lastValue("ProtectProc")
	add(protect == "invisible" || protect == "noaccess" || protect == "ptraceable", "ProtectProc=%s: the jobs of other users on a GPU have no owner and no command in there", protect)
	add(!u.shared && (u.isOn("PrivateTmp") || u.isReadOnly()), "this machine keeps its leases in /var/tmp, and this service has none, or a private one, so gpuard refuses to lease there: the machine needs /run/gpuard, which gpuard setup machine makes")
	mode := u.lastValue("KillMode")
	add(mode == "process" || mode == "none", "KillMode=%s: what it leaves behind keeps its lease as long as it keeps its files open", mode)
	obeyed := func(where, name, value string) {
		add(strings.Contains(name, "_VISIBLE_DEVICES"), "%s%s=%s is obeyed: it gets no device but these; take it out if gpuard is to choose", where, name, value)
	}

	f, _ := unit.ReadSteps(u.name, []byte("[Service]\nEnvironment="+strings.Join(u.valuesOf("Environment"), "\nEnvironment=")))
	for _, step := range f.Steps {
		if step.Do == lint.Set {
			obeyed("Environment=", step.Name, step.Value.Text)
		}
	}

	for _, path := range u.environmentFiles() {
		// One that cannot be read is for systemd to mind.
		text, _ := files.ReadFile(path)
		for line := range strings.Lines(string(text.Content)) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); !strings.ContainsAny(name, "#;") {
				obeyed("in "+path+", ", name, prose.Clean(value))
			}
		}
	}

	return notes
}

// environmentFiles are the existing files of EnvironmentFile=. A path with a specifier is taken literally, and so not
// found.
func (u unitService) environmentFiles() (paths []string) {
	for _, value := range u.valuesOf("EnvironmentFile") {
		found, _ := filepath.Glob(filepath.Join(u.root, strings.TrimPrefix(value, "-")))
		paths = append(paths, found...)
	}
	return paths
}
