package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/host/files"
	"gpuard/internal/text/unit"
)

// unitFolders is where a manager searches for its units; $SYSTEMD_UNIT_PATH names others, and the usual ones follow if
// it ends in a colon (systemd.unit(5), "Unit file load path").
type unitFolders struct {
	// The first one counts.
	all []string
	// The folder of the administrator, or of the user.
	own string
}

// foundUnit is a unit with its drop-ins.
type foundUnit struct {
	path string // "" there is none
	// The text of the unit and of everything that is dropped in, but for ours.
	text string
	// A drop-in that is read after ours and says what is started; "" none.
	later string
}

func (s *Setup) unitFolders(user bool) (unitFolders, error) {
	usual, err := s.usualUnitFolders(user)
	value, set := s.Host.Env.Lookup("SYSTEMD_UNIT_PATH")
	if !set || err != nil {
		return usual, err
	}

	named := slices.DeleteFunc(filepath.SplitList(value), func(dir string) bool { return !filepath.IsAbs(dir) })
	if strings.HasSuffix(value, ":") {
		named = append(named, usual.all...)
	}

	return unitFolders{named, usual.own}, nil
}

func (s *Setup) usualUnitFolders(user bool) (unitFolders, error) {
	below := func(paths ...string) []string {
		for i, p := range paths {
			paths[i] = filepath.Join("/", s.Host.Root, p)
		}
		return paths
	}

	if !user {
		etc := below("/etc/systemd/system")[0]
		return unitFolders{append(append(below("/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early"), etc),
			below("/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached", "/run/systemd/generator", "/usr/local/lib/systemd/system",
				"/lib/systemd/system", "/usr/lib/systemd/system", "/run/systemd/generator.late")...), etc}, nil
	}

	own, err := s.homePath("XDG_CONFIG_HOME", ".config", "systemd", "user")
	if err != nil {
		return unitFolders{}, err
	}

	// HOME is set.
	data, _ := s.homePath("XDG_DATA_HOME", ".local/share", "systemd", "user")
	all := []string{own + ".control"}
	runtime, _ := s.Host.Env.Lookup("XDG_RUNTIME_DIR")
	beneath := func(names ...string) {
		for _, name := range names {
			if filepath.IsAbs(runtime) {
				all = append(all, filepath.Join(runtime, "systemd", name))
			}
		}
	}

	beneath("user.control", "transient", "generator.early")
	all = append(all, own)
	all = append(all, s.variableFolders("XDG_CONFIG_DIRS", []string{"/etc/xdg"}, "systemd", "user")...)
	all = append(all, below("/etc/systemd/user")...)
	beneath("user")
	all = append(all, below("/run/systemd/user")...)
	beneath("generator")
	all = append(all, data)
	all = append(all, s.variableFolders("XDG_DATA_DIRS", []string{"/usr/local/share", "/usr/share"}, "systemd", "user")...)
	all = append(all, below("/usr/local/lib/systemd/user", "/usr/local/share/systemd/user", "/usr/lib/systemd/user", "/usr/share/systemd/user", "/lib/systemd/user")...)
	beneath("generator.late")
	var once []string
	for _, dir := range all {
		if !slices.Contains(once, dir) {
			once = append(once, dir)
		}
	}

	return unitFolders{once, own}, nil
}

// variableFolders are folders below those that a variable lists, or below the usual ones of the machine.
func (s *Setup) variableFolders(variable string, usual []string, below ...string) (dirs []string) {
	value, _ := s.Host.Env.Lookup(variable)
	for _, dir := range filepath.SplitList(value) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, filepath.Join(append([]string{dir}, below...)...))
		}
	}
	if len(dirs) == 0 {
		for _, dir := range usual {
			dirs = append(dirs, filepath.Join(append([]string{"/", s.Host.Root, dir}, below...)...))
		}
	}

	return dirs
}

// templateOf is the unit that an instance is one of; "" for others.
func templateOf(name string) string {
	before, after, ok := strings.Cut(name, "@")
	if !ok || strings.HasPrefix(after, ".") {
		return ""
	}
	return before + "@" + filepath.Ext(after)
}

// findUnit reads a unit and what is dropped into it.
func (u unitFolders) findUnit(name string) (f foundUnit, err error) {
	for _, n := range []string{name, templateOf(name)} {
		for _, dir := range u.all {
			if n != "" && f.path == "" {
				path := filepath.Join(dir, n)
				if _, err := os.Lstat(path); err == nil {
					f.path = path
				}
			}
		}
	}

	if f.path == "" {
		return f, nil
	}

	actual, err := filepath.EvalSymlinks(f.path)
	switch base := filepath.Base(actual); {
	case err != nil:
		return f, fmt.Errorf("cannot read the unit %s: %w", name, err)
	case actual == os.DevNull:
		return f, &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: it is masked; systemctl unmask %[1]s", name)}
	case base != name && base != templateOf(name) && strings.HasSuffix(base, ".service"):
		return f, &exit.Usage{Text: fmt.Sprintf("cannot give %s a GPU: that is another name of %s; write gpuard setup systemd %[2]s", name, base)}
	}

	texts, later, err := u.readDropIns(name)
	if err != nil {
		return f, err
	}

	text, err := files.ReadFile(actual)
	if err != nil {
		return f, fmt.Errorf("cannot read the unit %s: %w", f.path, err)
	}

	f.text, f.later = strings.Join(append([]string{string(text.Content)}, texts...), "\n\n[]\n"), later

	return f, nil
}

// readDropIns reads what is dropped into a unit, but for our own, in the order in which it counts. Of files with the
// same name the first one counts, wherever they lie.
func (u unitFolders) readDropIns(name string) (texts []string, later string, err error) {
	paths := map[string]string{}
	for _, folder := range u.dropInFolders(name) {
		names, err := files.ListNames(folder, ".conf")
		if err != nil {
			return nil, "", fmt.Errorf("cannot read %s: %w", folder, err)
		}

		for _, file := range names {
			if path := filepath.Join(folder, file); paths[file] == "" {
				paths[file] = path
			}
		}
	}

	order := make([]string, 0, len(paths))
	for file, path := range paths {
		if actual, err := filepath.EvalSymlinks(path); file != dropInName && (err != nil || actual != os.DevNull) {
			order = append(order, file)
		}
	}

	slices.Sort(order)

	for _, file := range order {
		text, err := files.ReadFile(paths[file])
		if err != nil {
			return nil, "", fmt.Errorf("cannot read %s: %w", paths[file], err)
		}

		starts := slices.ContainsFunc(unit.Entries(text.Content), func(e unit.Entry) bool { return e.Section == "Service" && e.Key == "ExecStart" })
		if starts && file > dropInName {
			later = paths[file]
		}

		texts = append(texts, string(text.Content))
	}

	return texts, later, nil
}

// dropInFolders are those that hold drop-ins for a unit, the first one counts: those of its own name, of its aliases,
// and of all services (systemd: src/shared/dropin.c, unit_file_find_dropin_paths).
func (u unitFolders) dropInFolders(name string) (folders []string) {
	for _, n := range append([]string{name}, u.unitAliases(name)...) {
		for _, dir := range u.all {
			for _, into := range dropInNames(n) {
				folders = append(folders, filepath.Join(dir, into+".d"))
			}
		}
	}
	for _, dir := range u.all {
		folders = append(folders, filepath.Join(dir, "service.d"))
	}
	return folders
}

// unitAliases are other names of a unit: the links to it.
func (u unitFolders) unitAliases(name string) (aliases []string) {
	general := templateOf(name)
	for _, dir := range u.all {
		names, _ := files.ListNames(dir, ".service")
		for _, link := range names {
			path := filepath.Join(dir, link)
			if _, err := os.Readlink(path); err != nil || link == name || link == general {
				continue
			}
			actual, err := filepath.EvalSymlinks(path)
			switch base := filepath.Base(actual); {
			case err != nil:
			case base == name:
				aliases = append(aliases, link)
			case base == general && strings.Contains(link, "@."):
				aliases = append(aliases, strings.TrimSuffix(link, ".service")+name[strings.IndexByte(name, '@')+1:])
			}
		}
	}
	slices.Sort(aliases)

	return slices.Compact(aliases)
}

// dropInNames are the names whose folders have drop-ins for a unit: its own, its template's, and those of every prefix
// of its name up to a dash, in systemd's order.
func dropInNames(name string) []string {
	names := []string{name}
	general := templateOf(name)
	if general != "" {
		names = append(names, general)
	}

	base, which, ofTemplate := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
	var plain, others []string
	for i := len(base) - 2; i > 0; i-- {
		if base[i] != '-' {
			continue
		}
		plain = append(plain, base[:i+1]+".service")
		if general != "" {
			others = append(others, base[:i+1]+"@"+which+".service")
		}
		if ofTemplate {
			others = append(others, base[:i+1]+"@.service")
		}
	}

	return slices.Concat(names, plain, others)
}

// UnitNames are the services of a manager, for completion.
func (s *Setup) UnitNames(user bool) (names []string) {
	where, err := s.unitFolders(user)
	if err != nil {
		return nil
	}

	for _, dir := range where.all {
		more, _ := files.ListNames(dir, ".service")
		names = append(names, more...)
	}

	slices.Sort(names)

	return slices.Compact(names)
}
