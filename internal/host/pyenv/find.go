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

// FindEnvironments lists environments: first the active ones (VIRTUAL_ENV, CONDA_PREFIX, python3 and python of PATH),
// then those in the working directory (.venv, venv, pixi's), those of conda's list (~/.conda/environments.txt) and of
// pyenv, and the system's. It returns at most 24, each once.
func (w SearchScope) FindEnvironments() []Environment {
	var found []Environment
	add := func(p Environment, ok bool) {
		if !ok {
			return
		}
		if len(found) < maxEnvironments && !slices.ContainsFunc(found, func(o Environment) bool { return o.Prefix == p.Prefix }) {
			found = append(found, p)
		}
	}

	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := w.envValue(name); filepath.IsAbs(prefix) {
			p, ok := w.environmentAt(filepath.Clean(prefix))
			if !ok {
				p, ok = Environment{Prefix: filepath.Clean(prefix), Kind: "venv", Problem: name + " names this folder, and there is no Python in it"}, true
			}
			p.Active = true
			add(p, ok)
		}
	}

	for _, name := range []string{"python3", "python"} {
		p, ok := w.environmentOnPath(name)
		p.Active = true
		add(p, ok)
	}

	for _, name := range w.projectFolders() {
		add(w.environmentAt(filepath.Join(w.Folder, name)))
	}

	for _, prefix := range slices.Concat(w.condaPrefixes(), w.condaRoots()) {
		add(w.environmentAt(prefix))
	}

	for _, name := range w.pyenvVersions() {
		add(w.environmentAt(filepath.Join(w.pyenvRoot(), "versions", name)))
	}

	for _, prefix := range []string{"/usr/local", "/usr"} {
		add(w.environmentAt(prefix))
	}

	return found
}

// projectFolders lists the names that tools give to the environment of a project: venv and uv, and pixi.
func (w SearchScope) projectFolders() []string {
	return []string{".venv", "venv", ".pixi/envs/default"}
}

// environmentAt returns the environment in the folder prefix, if there is one. Its interpreter need not work.
func (w SearchScope) environmentAt(prefix string) (Environment, bool) {
	p := Environment{Prefix: prefix, Kind: "system"}
	switch {
	case w.isFolder(filepath.Join(prefix, "conda-meta")):
		p.Kind = "conda"
	case w.pathExists(filepath.Join(prefix, "pyvenv.cfg")):
		p.Kind = "venv"
	case filepath.Dir(prefix) == filepath.Join(w.pyenvRoot(), "versions"):
		p.Kind = "pyenv"
	}
	for _, name := range []string{"python3", "python"} {
		path := filepath.Join(prefix, "bin", name)
		if w.isProgram(path) {
			p.Interpreter, p.Version = path, versionOf(w.resolveLinks(path))
			return p, true
		}
		_, err := os.Readlink(w.realPath(path))
		if target := w.resolveLinks(path); p.Kind == "venv" && err == nil {
			p.Problem = "its " + path + " leads to " + target + ", which is " + w.absenceReason(target)
		}
	}

	return p, p.Kind == "conda" || p.Problem != ""
}

// absenceReason says why a path is not a program.
func (w SearchScope) absenceReason(path string) string {
	switch _, err := w.statPath(path); {
	case err == nil:
		return "not a program"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	case errors.Is(err, syscall.ELOOP):
		return "a loop of links"
	default:
		return "out of reach (" + errorReason(err) + ")"
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

// environmentOf returns the environment of a python, found as Python finds it: by a pyvenv.cfg in its folder or the
// folder above, else two folders above the target of its links.
func (w SearchScope) environmentOf(path string) (Environment, bool) {
	if filepath.Dir(path) == filepath.Join(w.pyenvRoot(), "shims") {
		return w.shimEnvironment(filepath.Base(path))
	}

	folder := filepath.Dir(path)
	for _, prefix := range []string{folder, filepath.Dir(folder)} {
		if w.pathExists(filepath.Join(prefix, "pyvenv.cfg")) {
			return Environment{Prefix: prefix, Interpreter: path, Kind: "venv", Version: versionOf(w.resolveLinks(path))}, true
		}
	}

	target := w.resolveLinks(path)
	if !strings.HasPrefix(filepath.Base(target), "python") && !strings.HasPrefix(filepath.Base(target), "pypy") {
		// A wrapper of another tool, from which the path of its Python is not known.
		return Environment{}, false
	}

	p, _ := w.environmentAt(filepath.Dir(filepath.Dir(target)))
	p.Interpreter, p.Version, p.Problem = path, versionOf(target), ""

	return p, true
}

// environmentOnPath returns the environment of the first program of that name on PATH.
func (w SearchScope) environmentOnPath(name string) (Environment, bool) {
	for _, folder := range filepath.SplitList(w.envValue("PATH")) {
		path := filepath.Join(folder, name)
		if !filepath.IsAbs(folder) || !w.isProgram(path) {
			continue
		}
		if p, ok := w.environmentOf(path); ok {
			return p, true
		}
	}
	return Environment{}, false
}

func (w SearchScope) pyenvRoot() string {
	if root := w.envValue("PYENV_ROOT"); filepath.IsAbs(root) {
		return filepath.Clean(root)
	}
	return filepath.Join(w.envValue("HOME"), ".pyenv")
}

// pyenvVersions lists the names of pyenv's versions in reverse order of the alphabet, so roughly the newest first.
func (w SearchScope) pyenvVersions() []string {
	names, _ := w.listNames(filepath.Join(w.pyenvRoot(), "versions"))
	slices.Sort(names)
	slices.Reverse(names)

	return names
}

// shimEnvironment returns the environment that pyenv's shim of a name would run: that of PYENV_VERSION, else of the
// .python-version in the working directory or a folder above it, else of pyenv's global version; of several versions,
// the first that exists. Source: pyenv/pyenv README, "Choosing the Python version"; libexec/pyenv-version-name.
func (w SearchScope) shimEnvironment(name string) (Environment, bool) {
	text := strings.ReplaceAll(w.envValue("PYENV_VERSION"), ":", "\n")
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
		p, ok := w.environmentAt(filepath.Join(w.pyenvRoot(), "versions", version))
		if ok && version != "" && filepath.Base(version) == version {
			if own := filepath.Join(p.Prefix, "bin", name); w.isProgram(own) {
				p.Interpreter = own
			}
			return p, true
		}
	}

	return Environment{}, false
}

// fullVersion completes a prefix such as "3.11" to pyenv's first version with that prefix, in the order of pyenvs.
func (w SearchScope) fullVersion(version string) string {
	names := w.pyenvVersions()
	if slices.Contains(names, version) {
		return version
	}
	if i := slices.IndexFunc(names, func(n string) bool { return version != "" && strings.HasPrefix(n, version+".") }); i >= 0 {
		return names[i]
	}

	return version
}

// condaPrefixes returns the folders in conda's list of environments. Source: conda/conda conda/core/envs_manager.py.
func (w SearchScope) condaPrefixes() []string {
	var prefixes []string
	for line := range strings.Lines(string(w.readFile(filepath.Join(w.envValue("HOME"), ".conda/environments.txt")))) {
		if prefix := strings.TrimSpace(line); filepath.IsAbs(prefix) {
			prefixes = append(prefixes, filepath.Clean(prefix))
		}
	}
	return prefixes
}
