package setup

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/judge"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
	"gpuard/internal/host/launch"
	"gpuard/internal/text/desktop"
)

// Desktop is a second entry for a program of the desktop, which starts it with a lease.
type Desktop struct {
	Setup *Setup
	// Id of an entry, or a path.
	App string
	// Tells several entries of one program apart; "" the only one.
	Name  string
	Flags []string // of gpuard run
	Spec  job.Spec // what they ask for
	// Arguments that the program gets too.
	More []string
}

// entryID is the entry's own, without its ending.
func (d Desktop) entryID() string {
	return strings.TrimSuffix(filepath.Base(d.App), ".desktop")
}

// Key is what the setup is remembered by.
func (d Desktop) Key() (string, error) {
	if prose.Clean(d.Name) != d.Name {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot call an entry %q: a name in a menu is one line of printable text", d.Name)}
	}
	if d.entryID() == "." || d.entryID() == "/" || d.entryID() == "" || prose.Clean(d.entryID()) != d.entryID() {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot set up the program %q: write the name of its desktop entry, such as org.blender.Blender", d.App)}
	}
	if d.Name != "" {
		return fmt.Sprintf("desktop --name=%s %s", shellquote.Sh(d.Name), shellquote.Sh(d.entryID())), nil
	}

	return "desktop " + shellquote.Sh(d.entryID()), nil
}

// Wish is the entry.
func (d Desktop) Wish() (ChangePlan, error) {
	key, err := d.Key()
	if err != nil {
		return ChangePlan{}, err
	}

	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}
	if strings.Contains(program, "=") {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot name %s in a desktop entry: a program may have no = in its path there; install gpuard elsewhere", program)}
	}

	source, content, err := d.findOriginal()
	if err != nil {
		return ChangePlan{}, err
	}

	if source == "" {
		// The first word is the program.
		d.More = d.More[1:]
	}

	run := slices.Concat([]string{program, "run", "--alert"}, d.Flags, []string{"--"})
	for _, word := range slices.Concat(run, d.More) {
		if !utf8.ValidString(word) {
			return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot write %q in a desktop entry: it is not UTF-8", word)}
		}
	}

	entry, err := d.copyEntry(cmp.Or(source, d.App), content, run)
	if err != nil {
		return ChangePlan{}, err
	}

	doubts, err := d.judge(source, content)
	if err != nil {
		return ChangePlan{}, err
	}

	path, err := d.Setup.homePath("XDG_DATA_HOME", ".local/share", "applications", d.entryFile())
	if err != nil {
		return ChangePlan{}, err
	}

	w := ChangePlan{
		Key:     key,
		Changes: []edit.Change{{Path: path, Content: markEntry(entry.text)}},
		Try:     []string{"gio launch " + shellquote.Sh(path), "gpuard status"},
	}

	if source != "" {
		w.Notes = append(w.Notes, "it is a copy of "+source+": call this again when that has changed")
	}

	for _, list := range entry.lists {
		w.Notes = append(w.Notes, "the copy does not set "+list+" as the original does: the lease chooses the GPU")
	}

	w.Notes = append(w.Notes, doubts...)
	if entry.noTypes {
		w.Notes = append(w.Notes, "files are opened by the original as before: the copy names no file types")
	}

	return w, nil
}

// markEntry adds the mark of gpuard. A #! line stays the first.
func markEntry(entry string) string {
	const mark = "# Written by gpuard setup desktop, which changes it and takes it away (--remove).\n"
	if first, rest, more := strings.Cut(entry, "\n"); more && strings.HasPrefix(first, "#!") {
		return first + "\n" + mark + rest
	}
	return mark + entry
}

// entryFile is the name of the entry that is written.
func (d Desktop) entryFile() string {
	name := d.entryID() + "-gpuard"
	if d.Name != "" {
		name += "-" + strings.Join(strings.FieldsFunc(strings.Map(func(r rune) rune {
			switch {
			case r >= 'A' && r <= 'Z':
				return r - 'A' + 'a'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r > 0x7f, r == '_', r == '.':
				return r
			}
			return '-'
		}, d.Name), func(r rune) bool { return r == '-' }), "-")
	}
	return name + ".desktop"
}

// folders are where entries lie; the first one counts.
func (s *Setup) entryFolders() ([]string, error) {
	own, err := s.homePath("XDG_DATA_HOME", ".local/share", "applications")
	return append([]string{own}, s.variableFolders("XDG_DATA_DIRS", []string{"/usr/local/share", "/usr/share"}, "applications")...), err
}

// findOriginal is the entry that is copied, with its path; for a program that has none one is made, and the path is "".
func (d Desktop) findOriginal() (path string, content []byte, err error) {
	path, err = d.findEntry()
	if err != nil {
		return "", nil, err
	}

	if path != "" {
		text, err := files.ReadFile(path)
		if err != nil {
			return "", nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		return path, text.Content, nil
	}

	if near := d.similarIDs(); len(near) > 0 {
		return "", nil, &exit.Usage{Text: fmt.Sprintf("cannot find a desktop entry %s: is it %s? A program that has none needs a name that is in no other", d.entryID(), strings.Join(near, " or "))}
	}

	if len(d.More) == 0 {
		const remedy = "gpuard setup desktop takes the name of a file in /usr/share/applications, or its path"
		return "", nil, &exit.Usage{Text: fmt.Sprintf("cannot find a desktop entry %s: %s; for a program that has none: gpuard setup desktop %s -- PROGRAM", d.entryID(), remedy, shellquote.Sh(d.entryID()))}
	}

	program, err := launch.FindCommand(d.More[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}

	if err != nil {
		return "", nil, fmt.Errorf("cannot set up %s: no program of the menu has that name, so the first word behind -- is taken for the program: %w", d.entryID(), err)
	}

	return "", []byte("[Desktop Entry]\nType=Application\nName=" + desktop.EscapeText(d.entryID()) + "\nExec=" + desktop.QuoteWord(program) + "\nTerminal=false\n"), nil
}

// findEntry finds the entry by its path, or by its ID, in which a dash may mean a folder
// (https://specifications.freedesktop.org/desktop-entry-spec/latest/file-naming.html). "": there is none of that ID.
func (d Desktop) findEntry() (string, error) {
	if strings.Contains(d.App, "/") {
		path, err := filepath.Abs(d.App)
		if err != nil {
			return "", fmt.Errorf("cannot find the current folder: %w", err)
		}
		if !strings.HasSuffix(path, ".desktop") {
			return "", &exit.Usage{Text: fmt.Sprintf("cannot set up %s: the name of a desktop entry ends in .desktop", path)}
		}
		if !files.Exists(path) {
			return "", &exit.Usage{Text: fmt.Sprintf("cannot find the desktop entry %s: there is no such file", path)}
		}

		return path, nil
	}

	folders, err := d.Setup.entryFolders()
	if err != nil {
		return "", err
	}

	for _, dir := range folders {
		for n := 0; n <= strings.Count(d.entryID(), "-"); n++ {
			if path := filepath.Join(dir, strings.Replace(d.entryID(), "-", "/", n)+".desktop"); files.Exists(path) {
				return path, nil
			}
		}
	}

	return "", nil
}

// similarIDs are ids that have the wanted one in them.
func (d Desktop) similarIDs() (ids []string) {
	for _, id := range d.Setup.EntryIDs() {
		if strings.Contains(strings.ToLower(id), strings.ToLower(d.entryID())) && len(ids) < 3 {
			ids = append(ids, id)
		}
	}
	return ids
}

// EntryIDs are the ids of the programs that could be set up, for completion.
func (s *Setup) EntryIDs() (ids []string) {
	folders, err := s.entryFolders()
	if err != nil {
		return nil
	}

	for _, dir := range folders {
		names, _ := files.ListNames(dir, ".desktop")
		for _, name := range names {
			if id := strings.TrimSuffix(name, ".desktop"); !strings.HasSuffix(id, "-gpuard") && !strings.Contains(id, "-gpuard-") {
				ids = append(ids, id)
			}
		}
	}

	slices.Sort(ids)

	return slices.Compact(ids)
}

// nameSuffix is what the name of the copy says in brackets: which one it is, and what it gets.
func (d Desktop) nameSuffix() string {
	gets := "GPU"
	for _, flag := range d.Flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		switch name {
		case "device":
			gets = "GPU " + value
		case "gpus":
			if value != "1" {
				gets = value + " GPUs"
			}
		case "mig":
			gets = value
		case "share":
			gets = value + " of a GPU"
		case "cpu":
			gets = "no GPU"
		case "ask":
			gets = "which GPU?"
		}
	}
	if d.Name == "" {
		return gets
	}

	return d.Name + ", " + gets
}

// entryCopy is an entry that is written.
type entryCopy struct {
	text string
	// It names no file types, as the original does.
	noTypes bool
	// The lists of devices that the original sets.
	lists []string
}

// copyEntry is the copy.
func (d Desktop) copyEntry(path string, src []byte, run []string) (c entryCopy, err error) {
	if err := d.checkEntry(path, src); err != nil {
		return c, err
	}

	suffix := desktop.EscapeText(" (" + d.nameSuffix() + ")")
	out, err := desktop.Rewrite(src, func(group, key, value string) (string, bool) {
		name, _, _ := strings.Cut(key, "[")
		main := group == desktop.MainGroup
		switch {
		case key == "Exec" && (main || strings.HasPrefix(group, desktop.ActionPrefix)):
			value, gone := desktop.WithoutLists(value)
			for _, list := range gone {
				if !slices.Contains(c.lists, list) {
					c.lists = append(c.lists, list)
				}
			}
			if main {
				return desktop.PrefixExec(value, run, d.More), true
			}

			return desktop.PrefixExec(value, run, nil), true
		case (name == "Name" || name == "X-GNOME-FullName") && main:
			// GNOME shows the latter.
			return strings.TrimRight(value, " \t") + suffix, true
		case key == "DBusActivatable" && main:
			// With it Exec is not looked at.
			return "false", true
		case key == "MimeType" && main:
			// A second program for the same files would be a surprise.
			c.noTypes = true
			return "", false
		case key == "NoDisplay" && main:
			return "false", true
		}

		return value, true
	})

	if err != nil {
		return c, d.setUpError(path, err.Error())
	}

	c.text = string(out)

	return c, nil
}

// mainCommand is the command line of an entry, but for those of its actions.
func mainCommand(path string, src []byte) (words []string, err error) {
	f, err := desktop.ReadSteps(path, src)
	for _, step := range f.Steps {
		if step.Do == lint.Command && step.In == desktop.MainGroup {
			// Of several the last one counts, for GLib and KDE.
			words = textsOf(step.Words)
		}
	}
	return words, err
}

// judge refuses a command that surely leaves the GPUs of a lease, but for lists that are left out of the copy, and
// remarks on what may. source is the entry that is copied; "" none: the command was typed.
func (d Desktop) judge(source string, src []byte) (remarks []string, err error) {
	words, err := mainCommand(source, src)
	if err != nil {
		return nil, err
	}
	if source == "" {
		return judge.Later(d.Spec, append(words, d.More...), judge.Place{Typed: "gpuard setup desktop … " + shellquote.Sh(d.entryID())})
	}

	words = launchers.WithoutLists(words)
	remarks, err = judge.Later(d.Spec, words, judge.Place{File: source})
	if err != nil || len(d.More) == 0 {
		return remarks, err
	}

	return judge.Later(d.Spec, append(words, d.More...), judge.Place{File: "what stands behind --"})
}

func (d Desktop) setUpError(path, why string) error {
	return &exit.Usage{Text: fmt.Sprintf("cannot set up %s: %s", path, why)}
}

// checkEntry says why an entry cannot be started with a lease.
func (d Desktop) checkEntry(path string, src []byte) error {
	values := map[string]string{}
	if _, err := desktop.Rewrite(src, func(group, key, value string) (string, bool) {
		if group == desktop.MainGroup {
			values[key] = strings.TrimSpace(value)
		}
		return value, true
	}); err != nil {
		return d.setUpError(path, err.Error())
	}

	words, err := mainCommand(path, src)
	if err != nil {
		return d.setUpError(path, err.Error())
	}

	actual, err := filepath.EvalSymlinks(path)
	if err != nil {
		actual = path
	}

	in := func(part string) bool { return strings.Contains(path, part) || strings.Contains(actual, part) }
	box := "its program runs in a sandbox of %s, and the lease of gpuard run does not reach in there"
	snap := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "/snap/") })
	base := ""
	if len(words) > 0 {
		base = filepath.Base(words[0])
	}

	switch {
	case values["Hidden"] == "true":
		return d.setUpError(path, "it counts as deleted (Hidden=true)")
	case values["Type"] != "" && values["Type"] != "Application":
		return d.setUpError(path, "it starts no program (Type="+values["Type"]+")")
	case base == "flatpak" || values["X-Flatpak"] != "" || in("/flatpak/exports/"):
		return d.setUpError(path, fmt.Sprintf(box, "Flatpak"))
	case base == "snap" || values["X-SnapInstanceName"] != "" || in("/snapd/") || snap:
		return d.setUpError(path, fmt.Sprintf(box, "snap"))
	case base == "":
		return d.setUpError(path, "it names no program (Exec=)")
	case base == "gpuard":
		return d.setUpError(path, "it starts gpuard already; name the entry that this one was made of")
	}

	return nil
}
