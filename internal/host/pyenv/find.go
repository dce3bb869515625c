package pyenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Find lists environments: first those that run now (VIRTUAL_ENV, CONDA_PREFIX, python3 and python of PATH), then those of
// the folder the caller is in (.venv, venv, pixi's), of conda's own list (~/.conda/environments.txt), of pyenv, and the system's.
// At most 24, none twice.
func (w Where) Find() []Place {
	var found []Place
	add := func(p Place, ok bool) {
		if !ok {
			return
		}
		if len(found) < most && !slices.ContainsFunc(found, func(o Place) bool { return o.Prefix == p.Prefix }) {
			found = append(found, p)
		}
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := w.value(name); filepath.IsAbs(prefix) {
			p, ok := w.environment(filepath.Clean(prefix))
			if !ok {
				p, ok = Place{Prefix: filepath.Clean(prefix), Kind: "venv", Problem: name + " names this folder, and there is no Python in it"}, true
			}
			p.Active = true
			add(p, ok)
		}
	}
	for _, name := range []string{"python3", "python"} {
		p, ok := w.onPath(name)
		p.Active = true
		add(p, ok)
	}
	for _, name := range w.local() {
		add(w.environment(filepath.Join(w.Folder, name)))
	}
	for _, prefix := range slices.Concat(w.condas(), w.condaRoots()) {
		add(w.environment(prefix))
	}
	for _, name := range w.pyenvs() {
		add(w.environment(filepath.Join(w.pyenvRoot(), "versions", name)))
	}
	for _, prefix := range []string{"/usr/local", "/usr"} {
		add(w.environment(prefix))
	}
	return found
}

// local are the names that tools give to the environment of a project: venv and uv, and pixi.
func (w Where) local() []string { return []string{".venv", "venv", ".pixi/envs/default"} }

// environment looks at a folder that may be one. Its interpreter need not work.
func (w Where) environment(prefix string) (Place, bool) {
	p := Place{Prefix: prefix, Kind: "system"}
	switch {
	case w.folder(filepath.Join(prefix, "conda-meta")):
		p.Kind = "conda"
	case w.exists(filepath.Join(prefix, "pyvenv.cfg")):
		p.Kind = "venv"
	case filepath.Dir(prefix) == filepath.Join(w.pyenvRoot(), "versions"):
		p.Kind = "pyenv"
	}
	for _, name := range []string{"python3", "python"} {
		path := filepath.Join(prefix, "bin", name)
		if w.program(path) {
			p.Interpreter, p.Version = path, versionOf(w.resolve(path))
			return p, true
		}
		_, err := os.Readlink(w.at(path))
		if target := w.resolve(path); p.Kind == "venv" && err == nil {
			p.Problem = "its " + path + " leads to " + target + ", which is " + w.absence(target)
		}
	}
	return p, p.Kind == "conda" || p.Problem != ""
}

// absence says why a path is no program.
func (w Where) absence(path string) string {
	switch _, err := w.stat(path); {
	case err == nil:
		return "no program"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	case errors.Is(err, syscall.ELOOP):
		return "a circle of links"
	default:
		return "out of reach (" + reason(err) + ")"
	}
}

// versionOf is the version in an interpreter's name: "3.11" of "/usr/bin/python3.11".
func versionOf(path string) string {
	v := strings.TrimPrefix(filepath.Base(path), "python")
	if v == "" || strings.Trim(v, "0123456789.") != "" || !strings.Contains(v, ".") {
		return ""
	}
	return v
}

// interpreter is the environment that a python belongs to, as Python itself finds it: a pyvenv.cfg beside it or above it,
// else two folders above what its links lead to.
func (w Where) interpreter(path string) (Place, bool) {
	if filepath.Dir(path) == filepath.Join(w.pyenvRoot(), "shims") {
		return w.shim(filepath.Base(path))
	}
	folder := filepath.Dir(path)
	for _, prefix := range []string{folder, filepath.Dir(folder)} {
		if w.exists(filepath.Join(prefix, "pyvenv.cfg")) {
			return Place{Prefix: prefix, Interpreter: path, Kind: "venv", Version: versionOf(w.resolve(path))}, true
		}
	}
	target := w.resolve(path)
	if !strings.HasPrefix(filepath.Base(target), "python") && !strings.HasPrefix(filepath.Base(target), "pypy") {
		return Place{}, false // a shim of some other tool: it says nothing of where its Python lies
	}
	p, _ := w.environment(filepath.Dir(filepath.Dir(target)))
	p.Interpreter, p.Version, p.Problem = path, versionOf(target), ""
	return p, true
}

// onPath is the first python of PATH, under one of its names.
func (w Where) onPath(name string) (Place, bool) {
	for _, folder := range filepath.SplitList(w.value("PATH")) {
		path := filepath.Join(folder, name)
		if !filepath.IsAbs(folder) || !w.program(path) {
			continue
		}
		if p, ok := w.interpreter(path); ok {
			return p, true
		}
	}
	return Place{}, false
}

func (w Where) pyenvRoot() string {
	if root := w.value("PYENV_ROOT"); filepath.IsAbs(root) {
		return filepath.Clean(root)
	}
	return filepath.Join(w.value("HOME"), ".pyenv")
}

// pyenvs are the names of pyenv's versions, newest first as far as sorting goes.
func (w Where) pyenvs() []string {
	names, _ := w.names(filepath.Join(w.pyenvRoot(), "versions"))
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// shim is the environment that pyenv's shim of a name would run: PYENV_VERSION, else the .python-version of this folder or
// of one above it, else pyenv's own; the first of several that is there. Source: pyenv/pyenv README, "Choosing the Python
// version"; libexec/pyenv-version-name.
func (w Where) shim(name string) (Place, bool) {
	text := strings.ReplaceAll(w.value("PYENV_VERSION"), ":", "\n")
	for folder := w.Folder; text == "" && folder != ""; folder = filepath.Dir(folder) {
		text = string(w.read(filepath.Join(folder, ".python-version")))
		if folder == filepath.Dir(folder) {
			break
		}
	}
	if text == "" {
		text = string(w.read(filepath.Join(w.pyenvRoot(), "version")))
	}
	for _, version := range strings.Fields(text) {
		version = w.fullVersion(strings.TrimPrefix(version, "python-"))
		p, ok := w.environment(filepath.Join(w.pyenvRoot(), "versions", version))
		if ok && version != "" && filepath.Base(version) == version {
			if own := filepath.Join(p.Prefix, "bin", name); w.program(own) {
				p.Interpreter = own
			}
			return p, true
		}
	}
	return Place{}, false
}

// fullVersion completes a beginning such as "3.11" to the newest version that pyenv has of it.
func (w Where) fullVersion(version string) string {
	names := w.pyenvs()
	if slices.Contains(names, version) {
		return version
	}
	if i := slices.IndexFunc(names, func(n string) bool { return version != "" && strings.HasPrefix(n, version+".") }); i >= 0 {
		return names[i]
	}
	return version
}

// condas are the folders that conda keeps in its list of environments. Source: conda/conda conda/core/envs_manager.py.
func (w Where) condas() []string {
	var prefixes []string
	for line := range strings.Lines(string(w.read(filepath.Join(w.value("HOME"), ".conda/environments.txt")))) {
		if prefix := strings.TrimSpace(line); filepath.IsAbs(prefix) {
			prefixes = append(prefixes, filepath.Clean(prefix))
		}
	}
	return prefixes
}
