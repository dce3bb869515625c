package setup

import (
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
	"gpuard/internal/text/unit"
)

// Systemd gives a service its devices: a unit that is there gets a drop-in that starts its commands by gpuard run, and
// without one a whole unit is written. gpuard becomes the command, which so is the main process of the unit: what it
// notifies, its sockets and its watchdog are as they were.
type Systemd struct {
	Setup   *Setup
	Unit    string   // "vllm", "vllm.service", "vllm@.service"
	User    bool     // of the user's manager, not of the system's
	Flags   []string // of gpuard run
	NoWait  bool     // they say that it does not wait for a device
	Command []string // of a unit that is not there
	Folder  string   // that the command of such a unit works in
}

// dropIn sorts after override.conf, which systemctl edit writes.
const dropIn = "zz-gpuard.conf"

// name is the unit's with its ending.
func (s Systemd) name() (string, error) {
	name := s.Unit
	base, kind, dotted := cutLast(name, ".")
	switch {
	case dotted && kind == "container":
		return "", &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: the lease of gpuard run does not reach into a container; pass the device with AddDevice= in that file", name)}
	case dotted && (kind == "socket" || kind == "timer" || kind == "path" || kind == "target"):
		return "", &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: it starts no program itself; write the service that it starts, such as %s.service", name, base)}
	case !dotted || kind != "service":
		name += ".service"
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"
	if bare := strings.TrimSuffix(name, ".service"); bare == "" || bare[0] == '@' || strings.Trim(bare, allowed) != "" || len(name) > 255 {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot find the unit %q: that is no name of a unit; write it as systemctl shows it, such as vllm.service", s.Unit)}
	}
	return name, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Key is what the setup is remembered by.
func (s Systemd) Key() (string, error) {
	name, err := s.name()
	if s.User {
		name = "--user " + name
	}
	return "systemd " + name, err
}

// Wish is the drop-in, or the unit.
func (s Systemd) Wish() (Wish, error) {
	name, err := s.name()
	if err != nil {
		return Wish{}, err
	}
	program, err := Program()
	if err != nil {
		return Wish{}, err
	}
	if strings.ContainsAny(program, "$\"'\\") || prose.Clean(program) != program {
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot name %q in a unit: systemd takes no such name for a program; install gpuard elsewhere", program)}
	}
	where, err := s.Setup.unitFolders(s.User)
	if err != nil {
		return Wish{}, err
	}
	found, err := where.find(name)
	if err != nil {
		return Wish{}, err
	}
	own := filepath.Join(where.own, name)
	switch {
	case len(s.Command) > 0 && found.path != "" && found.path != own:
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot write the unit %s: it is there already, %s; leave the command out, and what that starts gets the GPU", name, found.path)}
	case len(s.Command) > 0:
		return s.whole(name, own, program)
	case found.path == "":
		return Wish{}, s.missing(name)
	}
	return s.dropInFor(name, found, filepath.Join(where.own, name+".d", dropIn), program)
}

func (s Systemd) missing(name string) error {
	kind, other := "of the system", ""
	if s.User {
		kind = "of yours"
	}
	if where, err := s.Setup.unitFolders(!s.User); err == nil {
		if found, err := where.find(name); err == nil && found.path != "" {
			other = fmt.Sprintf(", but %s is a unit of the system: sudo gpuard setup systemd %s", found.path, name)
			if !s.User {
				other = fmt.Sprintf(", but %s is one of a user's manager: write --user", found.path)
			}
		}
	}
	if other == "" {
		other = fmt.Sprintf("; to have it written, say what it starts: gpuard setup systemd %s -- COMMAND", strings.TrimSuffix(name, ".service"))
	}
	return &exit.Usage{Text: fmt.Sprintf("cannot find the unit %s: there is none %s%s", name, kind, other)}
}

// run is the beginning of a command line, up to where the command follows.
func (s Systemd) run(program string, literal bool) string {
	line := ""
	for _, word := range append(append([]string{program, "run"}, s.Flags...), "--") {
		line += unit.Word(word, literal) + " "
	}
	return line
}

// whole is a unit of our own.
func (s Systemd) whole(name, path, program string) (Wish, error) {
	command := append([]string{}, s.Command...)
	file, err := launch.Find(command[0])
	if err != nil {
		return Wish{}, &exit.Usage{Text: err.Error()}
	}
	if command[0], err = filepath.Abs(file); err != nil {
		return Wish{}, fmt.Errorf("cannot find the current folder: %w", err)
	}
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = unit.Word(word, false)
	}
	if strings.Contains(s.Folder, "\\") || strings.TrimSpace(s.Folder) != s.Folder || prose.Clean(s.Folder) != s.Folder {
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot name the folder %q in a unit: call it from another one", s.Folder)}
	}
	target, pause := "multi-user.target", ""
	if s.User {
		target = "default.target"
	}
	if s.NoWait {
		pause = "RestartSec=30\n"
	}
	about := strings.ReplaceAll(printable(filepath.Base(command[0])), "%", "%%")
	text := fmt.Sprintf(`# Written by gpuard setup systemd, which changes it and takes it away (--remove).
[Unit]
Description=%s, on devices that gpuard leases

[Service]
Type=exec
WorkingDirectory=%s
ExecStart=%s%s
Restart=on-failure
%s
[Install]
WantedBy=%s
`, about, strings.ReplaceAll(s.Folder, "%", "%%"), s.run(program, false), strings.Join(words, " "), pause, target)
	w := s.wish(name, path, text)
	w.Try = append([]string{w.Try[0], s.systemctl("enable", "--now", name)}, w.Try[2:]...)
	if !s.User {
		w.Notes = append(w.Notes, "it runs as root; a line User=NAME in [Service] of "+path+".d/user.conf makes it run as another user")
	}
	return w, nil
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\\' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// dropInFor is a drop-in for an existing unit.
func (s Systemd) dropInFor(name string, found found, path, program string) (Wish, error) {
	u := service{name: name, program: program, root: filepath.Join("/", s.Setup.Host.Root), user: s.User, entries: unit.Entries([]byte(found.text))}
	run, tmp := filepath.Join("/", s.Setup.Host.Root, "run"), filepath.Join("/", s.Setup.Host.Root, "var", "tmp")
	leases, _ := store.Locate(run, tmp)
	u.shared = !strings.HasPrefix(leases, tmp)
	commands, err := u.commands()
	if err != nil {
		return Wish{}, err
	}
	if found.later != "" {
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: %s is read after %s and sets ExecStart= again; rename it, such as 50-%s", name, found.later, dropIn, filepath.Base(found.later))}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by gpuard setup systemd, which changes it and takes it away (--remove).\n[Service]\nExecStart=\n")
	for _, line := range commands {
		b.WriteString("ExecStart=")
		for i, c := range line {
			if i > 0 {
				b.WriteString(" ; ")
			}
			b.WriteString(c.Prefix + s.run(program, strings.Contains(c.Prefix, ":")) + c.Line)
		}
		b.WriteString("\n")
	}
	if !s.NoWait && u.tells() {
		b.WriteString("# While it waits in line it has not started, and that may take long.\nTimeoutStartSec=infinity\n")
	}
	if u.readOnly() {
		b.WriteString("# Where the leases are, in a system that the service can only read.\nReadWritePaths=-/run/gpuard -/run/lock\n")
	}
	if u.last("IgnoreSIGPIPE") != "" && !u.on("IgnoreSIGPIPE") {
		b.WriteString("# By this, gpuard knows that systemd ignores SIGPIPE, which it does not here.\nUnsetEnvironment=SYSTEMD_EXEC_PID\n")
	}
	w := s.wish(name, path, b.String())
	w.Notes = append(w.Notes, u.notes(s.NoWait)...)
	return w, nil
}

// After are the commands by which systemd learns that a setup was taken away.
func (s Systemd) After(r Report) (try []string) {
	name, _ := s.name()
	for _, f := range r.Files {
		switch {
		case f.Action != edit.Delete:
		case filepath.Base(f.Path) == name:
			return []string{s.systemctl("disable", "--now", name), s.systemctl("daemon-reload")}
		default:
			return []string{s.systemctl("daemon-reload"), s.systemctl("restart", running(name))}
		}
	}
	return nil
}

// running are the units that run by that name: of a template its instances.
func running(name string) string { return strings.Replace(name, "@.", "@*.", 1) }

// wish is what both have in common.
func (s Systemd) wish(name, path, text string) Wish {
	key, _ := s.Key()
	w := Wish{Key: key, Changes: []edit.Change{{Path: path, Content: text}}}
	which := running(name)
	w.Try = []string{s.systemctl("daemon-reload"), s.systemctl("restart", which), s.systemctl("status", which), "gpuard status"}
	if s.User {
		w.Notes = append(w.Notes, "it ends when you log out, unless your manager continues: loginctl enable-linger")
	}
	return w
}

func (s Systemd) systemctl(words ...string) string {
	if s.User {
		words = append([]string{"--user"}, words...)
	}
	return "systemctl " + shellquote.Words(shellquote.Sh, words...)
}
