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

// Find lists environments: first the active ones (VIRTUAL_ENV, CONDA_PREFIX, python3 and python of PATH), then those in
// the working directory (.venv, venv, pixi's), those of conda's list (~/.conda/environments.txt) and of pyenv, and the
// system's. It returns at most 24, each once.
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

// local lists the names that tools give to the environment of a project: venv and uv, and pixi.
func (w Where) local() []string { return []string{".venv", "venv", ".pixi/envs/default"} }

// environment returns the environment in the folder prefix, if there is one. Its interpreter need not work.
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

// absence says why a path is not a program.
func (w Where) absence(path string) string {
	switch _, err := w.stat(path); {
	case err == nil:
		return "not a program"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	case errors.Is(err, syscall.ELOOP):
		return "a loop of links"
	default:
		return "out of reach (" + reason(err) + ")"
	}
}

// versionOf returns the version in an interpreter's name: "3.11" of "/usr/bin/python3.11".
func versionOf(path string) string {
	v := strings.TrimPrefix(filepath.Base(path), "python")
	if v == "" || strings.Trim(v, "0123456789.") != "" || !strings.Contains(v, ".") {
		return ""
	}
	return v
}

// interpreter returns the environment of a python, found as Python finds it: by a pyvenv.cfg in its folder or the
// folder above, else two folders above the target of its links.
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
		return Place{}, false // a wrapper of another tool, from which the path of its Python is not known
	}
	p, _ := w.environment(filepath.Dir(filepath.Dir(target)))
	p.Interpreter, p.Version, p.Problem = path, versionOf(target), ""
	return p, true
}

// onPath returns the environment of the first program of that name on PATH.
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

// pyenvs lists the names of pyenv's versions in reverse order of the alphabet, so roughly the newest first.
func (w Where) pyenvs() []string {
	names, _ := w.names(filepath.Join(w.pyenvRoot(), "versions"))
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// shim returns the environment that pyenv's shim of a name would run: that of PYENV_VERSION, else of the
// .python-version in the working directory or a folder above it, else of pyenv's global version; of several versions,
// the first that exists. Source: pyenv/pyenv README, "Choosing the Python version"; libexec/pyenv-version-name.
func (w Where) shim(name string) (Place, bool) {
	text := strings.ReplaceAll(w.value("PYENV_VERSION"), ":", "\n")
	for folder := w.Folder; text == "" && folder != ""; folder = filepath.Dir(folder) {
		text = string(w.readFile(filepath.Join(folder, ".python-version")))
		if folder == filepath.Dir(folder) {
			break
		}
	}
	if text == "" {
		text = string(w.readFile(filepath.Join(w.pyenvRoot(), "version")))
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

// fullVersion completes a prefix such as "3.11" to pyenv's first version with that prefix, in the order of pyenvs.
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

// condas returns the folders in conda's list of environments. Source: conda/conda conda/core/envs_manager.py.
func (w Where) condas() []string {
	var prefixes []string
	for line := range strings.Lines(string(w.readFile(filepath.Join(w.value("HOME"), ".conda/environments.txt")))) {
		if prefix := strings.TrimSpace(line); filepath.IsAbs(prefix) {
			prefixes = append(prefixes, filepath.Clean(prefix))
		}
	}
	return prefixes
}
