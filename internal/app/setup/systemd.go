package setup

import (
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/judge"
	"gpuard/internal/core/container"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/job"
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
	Setup *Setup
	// "vllm", "vllm.service", "vllm@.service".
	Unit string
	// The unit is one of the user's manager, not of the system's.
	User  bool
	Flags []string // of gpuard run
	Spec  job.Spec // what they ask for
	// They say that it does not wait for a device.
	NoWait bool
	// The command of a unit that is not there.
	Command []string
	// That the command of such a unit works in.
	Folder string
}

// dropInName sorts after override.conf, which systemctl edit writes.
const dropInName = "zz-gpuard.conf"

// unitName is the unit's with its ending.
func (s Systemd) unitName() (string, error) {
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
	name, err := s.unitName()
	if s.User {
		name = "--user " + name
	}
	return "systemd " + name, err
}

// Wish is the drop-in, or the unit.
func (s Systemd) Wish() (ChangePlan, error) {
	name, err := s.unitName()
	if err != nil {
		return ChangePlan{}, err
	}

	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}
	if strings.ContainsAny(program, "$\"'\\") || prose.Clean(program) != program {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot name %q in a unit: systemd takes no such name for a program; install gpuard elsewhere", program)}
	}

	where, err := s.Setup.unitFolders(s.User)
	if err != nil {
		return ChangePlan{}, err
	}

	found, err := where.findUnit(name)
	if err != nil {
		return ChangePlan{}, err
	}

	own := filepath.Join(where.own, name)
	switch {
	case len(s.Command) > 0 && found.path != "" && found.path != own:
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot write the unit %s: it is there already, %s; leave the command out, and what that starts gets the GPU", name, found.path)}
	case len(s.Command) > 0:
		return s.wholeUnit(name, own, program)
	case found.path == "":
		return ChangePlan{}, s.missingError(name)
	}

	return s.dropInFor(name, found, filepath.Join(where.own, name+".d", dropInName), program)
}

func (s Systemd) missingError(name string) error {
	kind := "of the system"
	if s.User {
		kind = "of yours"
	}

	advice := s.otherManager(name)
	if advice == "" {
		advice = fmt.Sprintf("; to have it written, say what it starts: gpuard setup systemd %s -- COMMAND", strings.TrimSuffix(name, ".service"))
	}

	return &exit.Usage{Text: fmt.Sprintf("cannot find the unit %s: there is none %s%s", name, kind, advice)}
}

// otherManager says that the other manager has a unit of this name; "": it has none.
func (s Systemd) otherManager(name string) string {
	where, err := s.Setup.unitFolders(!s.User)
	if err != nil {
		return ""
	}

	found, err := where.findUnit(name)
	if err != nil || found.path == "" {
		return ""
	}
	if s.User {
		return fmt.Sprintf(", but %s is a unit of the system: sudo gpuard setup systemd %s", found.path, name)
	}

	return fmt.Sprintf(", but %s is one of a user's manager: write --user", found.path)
}

// runPrefix is the beginning of a command line, up to where the command follows.
func (s Systemd) runPrefix(program string, literal bool) string {
	line := ""
	for _, word := range append(append([]string{program, "run"}, s.Flags...), "--") {
		line += unit.QuoteWord(word, literal) + " "
	}
	return line
}

// wholeUnit is a unit of our own.
func (s Systemd) wholeUnit(name, path, program string) (ChangePlan, error) {
	command := append([]string{}, s.Command...)
	doubts, err := s.judge(command, "")
	if err != nil {
		return ChangePlan{}, err
	}

	file, err := launch.FindCommand(command[0])
	if err != nil {
		return ChangePlan{}, &exit.Usage{Text: err.Error()}
	}

	command[0], err = filepath.Abs(file)
	if err != nil {
		return ChangePlan{}, fmt.Errorf("cannot find the current folder: %w", err)
	}

	words := make([]string, len(command))
	for i, word := range command {
		words[i] = unit.QuoteWord(word, false)
	}

	if strings.Contains(s.Folder, "\\") || strings.TrimSpace(s.Folder) != s.Folder || prose.Clean(s.Folder) != s.Folder {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot name the folder %q in a unit: call it from another one", s.Folder)}
	}

	target, pause := "multi-user.target", ""
	if s.User {
		target = "default.target"
	}

	if s.NoWait {
		pause = "RestartSec=30\n"
	}

	about := strings.ReplaceAll(replaceUnprintable(filepath.Base(command[0])), "%", "%%")
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
`, about, strings.ReplaceAll(s.Folder, "%", "%%"), s.runPrefix(program, false), strings.Join(words, " "), pause, target)

	w := s.makeWish(name, path, text)
	w.Try = append([]string{w.Try[0], s.systemctl("enable", "--now", name)}, w.Try[2:]...)
	w.Notes = append(w.Notes, doubts...)
	if !s.User {
		w.Notes = append(w.Notes, "it runs as root; a line User=NAME in [Service] of "+path+".d/user.conf makes it run as another user")
	}

	return w, nil
}

// judge refuses a command that surely leaves the GPUs of its lease, and remarks on what may. unit is the one that it
// stands in; "" it was typed. A container that is typed is for gpuard run to start.
func (s Systemd) judge(command []string, unit string) (remarks []string, err error) {
	if container.EngineOf(command[0]) != "" {
		return nil, nil
	}
	return judge.Later(s.Spec, command, judge.Place{Typed: "gpuard setup systemd … " + shellquote.Sh(s.Unit), File: unit})
}

func replaceUnprintable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\\' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// dropInFor is a drop-in for an existing unit.
func (s Systemd) dropInFor(name string, found foundUnit, path, program string) (ChangePlan, error) {
	u := unitService{name: name, program: program, root: filepath.Join("/", s.Setup.Host.Root), user: s.User, entries: unit.Entries([]byte(found.text))}
	run, tmp := filepath.Join("/", s.Setup.Host.Root, "run"), filepath.Join("/", s.Setup.Host.Root, "var", "tmp")
	leases, _ := store.LocateFolder(run, tmp)
	u.shared = !strings.HasPrefix(leases, tmp)
	commands, err := u.startCommands()
	if err != nil {
		return ChangePlan{}, err
	}
	if found.later != "" {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: %s is read after %s and sets ExecStart= again; rename it, such as 50-%s", name, found.later, dropInName, filepath.Base(found.later))}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "# Written by gpuard setup systemd, which changes it and takes it away (--remove).\n[Service]\nExecStart=\n")

	for _, line := range commands {
		b.WriteString("ExecStart=")
		for i, c := range line {
			if i > 0 {
				b.WriteString(" ; ")
			}
			b.WriteString(c.Prefix + s.runPrefix(program, strings.Contains(c.Prefix, ":")) + c.Line)
		}
		b.WriteString("\n")
	}

	if !s.NoWait && u.notifiesStart() {
		b.WriteString("# While it waits in line it has not started, and that may take long.\nTimeoutStartSec=infinity\n")
	}

	if u.isReadOnly() {
		b.WriteString("# Where the leases are, in a system that the service can only read.\nReadWritePaths=-/run/gpuard -/run/lock\n")
	}

	if u.lastValue("IgnoreSIGPIPE") != "" && !u.isOn("IgnoreSIGPIPE") {
		b.WriteString("# By this, gpuard knows that systemd ignores SIGPIPE, which it does not here.\nUnsetEnvironment=SYSTEMD_EXEC_PID\n")
	}

	w := s.makeWish(name, path, b.String())
	for _, line := range commands {
		for _, c := range line {
			remarks, err := s.judge(wordsOf(c), name)
			if err != nil {
				return ChangePlan{}, err
			}
			w.Notes = append(w.Notes, remarks...)
		}
	}

	w.Notes = append(w.Notes, u.unitNotes(s.NoWait)...)

	return w, nil
}

// AfterRemoval are the commands by which systemd learns that a setup was taken away.
func (s Systemd) AfterRemoval(r Report) (try []string) {
	name, _ := s.unitName()
	for _, f := range r.Files {
		switch {
		case f.Action != edit.Delete:
		case filepath.Base(f.Path) == name:
			return []string{s.systemctl("disable", "--now", name), s.systemctl("daemon-reload")}
		default:
			return []string{s.systemctl("daemon-reload"), s.systemctl("restart", runningUnits(name))}
		}
	}
	return nil
}

// runningUnits are the units that run by that name: of a template its instances.
func runningUnits(name string) string { return strings.Replace(name, "@.", "@*.", 1) }

// makeWish is what both have in common.
func (s Systemd) makeWish(name, path, text string) ChangePlan {
	key, _ := s.Key()
	w := ChangePlan{Key: key, Changes: []edit.Change{{Path: path, Content: text}}}
	which := runningUnits(name)
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
	return "systemctl " + shellquote.JoinQuoted(shellquote.Sh, words...)
}
