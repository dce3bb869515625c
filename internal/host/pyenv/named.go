package pyenv

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// NamedEnvironment returns the environment that a user names by the path of an interpreter or of an environment's
// folder, by a folder with a .venv in it, by the name of a conda environment or of a version of pyenv, or by a program
// on PATH ("python3.11"). The error says what was searched for.
func (w SearchScope) NamedEnvironment(name string) (Environment, error) {
	if name == "" {
		return Environment{}, errors.New("it has no name")
	}

	path := w.absolutePath(name)
	p, here := w.environmentAtPath(path)
	if here == nil || strings.ContainsRune(name, filepath.Separator) {
		return p, here
	}

	for _, prefix := range w.condaPrefixesNamed(name) {
		if p, ok := w.environmentAt(prefix); ok && p.Kind == "conda" {
			return p, nil
		}
	}

	if p, ok := w.environmentAt(filepath.Join(w.pyenvRoot(), "versions", name)); ok {
		return p, nil
	}
	if p, ok := w.environmentOnPath(name); ok {
		return p, nil
	}
	if w.pathExists(path) {
		return Environment{}, here
	}

	known := ""
	if names := w.condaNames(); len(names) > 0 {
		known = "; conda has: " + strings.Join(names, ", ")
	}

	return Environment{}, fmt.Errorf("no folder, no environment of conda or pyenv and no program on PATH has this name%s", known)
}

// environmentAtPath returns the environment of a file or folder.
func (w SearchScope) environmentAtPath(path string) (Environment, error) {
	switch _, err := w.statPath(path); {
	case errors.Is(err, fs.ErrNotExist):
		if target := w.resolveLinks(path); target != path {
			return Environment{}, fmt.Errorf("it is a link to %s, which is not there", target)
		}
		return Environment{}, errors.New("there is no such file or folder")
	case err != nil:
		return Environment{}, errors.New(errorReason(err))
	}

	if !w.isFolder(path) {
		if ext := filepath.Ext(path); ext == ".yml" || ext == ".yaml" {
			return Environment{}, errors.New("this file says what an environment is made of: gpuard lint looks at it, and doctor at the folder of an environment")
		}
		if !w.isProgram(path) {
			return Environment{}, errors.New("this file is not a program: name the environment's python, or its folder")
		}
		if p, ok := w.environmentOf(path); ok {
			return p, nil
		}

		return Environment{}, errors.New("this program is not a Python, or it is a wrapper that does not say where its Python is: name the environment's folder")
	}

	for _, name := range append([]string{""}, w.projectFolders()...) {
		if p, ok := w.environmentAt(filepath.Join(path, name)); ok {
			return p, nil
		}
	}

	if p, ok := w.environmentAt(filepath.Dir(path)); ok && filepath.Base(path) == "bin" {
		return p, nil
	}

	return Environment{}, errors.New("there is no Python in this folder (bin/python3), and no .venv")
}

// condaPrefixesNamed returns the folders where conda may have an environment of that name. Source: docs.conda.io,
// "Specify environment directories" (envs_dirs).
func (w SearchScope) condaPrefixesNamed(name string) []string {
	var prefixes []string
	for _, variable := range []string{"CONDA_ENVS_PATH", "CONDA_ENVS_DIRS"} {
		for _, folder := range filepath.SplitList(w.envValue(variable)) {
			prefixes = append(prefixes, filepath.Join(w.absolutePath(folder), name))
		}
	}

	for _, root := range w.condaRoots() {
		if name == "base" {
			prefixes = append(prefixes, root)
		}
		prefixes = append(prefixes, filepath.Join(root, "envs", name))
	}

	prefixes = append(prefixes, filepath.Join(w.envValue("HOME"), ".conda/envs", name))
	for _, prefix := range w.condaPrefixes() {
		if filepath.Base(prefix) == name {
			prefixes = append(prefixes, prefix)
		}
	}

	return prefixes
}

// condaRoots returns the folders in which conda and mamba are installed.
func (w SearchScope) condaRoots() []string {
	var roots []string
	if exe := w.envValue("CONDA_EXE"); filepath.IsAbs(exe) {
		roots = append(roots, filepath.Dir(filepath.Dir(exe)))
	}
	if root := w.envValue("MAMBA_ROOT_PREFIX"); filepath.IsAbs(root) {
		roots = append(roots, root)
	}

	return roots
}

// condaNames returns the names of conda's environments, for the error about a mistyped one.
func (w SearchScope) condaNames() []string {
	var names []string
	for _, prefix := range w.condaPrefixes() {
		if filepath.Base(filepath.Dir(prefix)) == "envs" {
			names = append(names, filepath.Base(prefix))
		}
	}
	slices.Sort(names)

	return slices.Compact(names)
}
