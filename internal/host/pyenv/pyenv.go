// Package pyenv finds Python environments (venv, conda, pyenv, the system's) and lists their packages, from their files
// only. It reads files up to a limit and does not interpret them. Only Ask runs a Python.
//
//	w := pyenv.SearchScope{Root: "/", Env: env, Folder: folder}
//	for _, place := range w.FindEnvironments() {
//		folders, version := w.Packages(ctx, place)
//	}
package pyenv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"gpuard/internal/core/visible"
)

// SearchScope says where to search for environments.
type SearchScope struct {
	// Folder below which every path is taken; "/" outside tests.
	Root string
	Env  visible.Env // of the caller
	// The caller's working directory.
	Folder string
}

// Environment is an environment that was found.
type Environment struct {
	Prefix string // its folder
	// Path of its python; "" if there is none.
	Interpreter string
	// "venv", "conda", "pyenv", "system".
	Kind string
	// "3.11", from the interpreter's name; "" unknown.
	Version string
	// PATH, VIRTUAL_ENV or CONDA_PREFIX selects it.
	Active bool
	// Why it cannot be used; "" if no reason is known.
	Problem string
}

// Limits that keep the search short on machines with very many environments and packages.
const (
	maxEnvironments = 24 // environments
	// Names of one folder.
	maxNames    = 20000
	maxFileSize = 64 << 10 // bytes of one file
)

// realPath returns the path below Root.
func (w SearchScope) realPath(path string) string { return filepath.Join(w.Root, path) }

// statPath follows links. Below the Root of a test, an absolute link leads to a path below that Root too, not to one of
// this machine.
func (w SearchScope) statPath(path string) (os.FileInfo, error) {
	if w.Root != "/" {
		path = w.resolveLinks(path)
	}
	return os.Stat(w.realPath(path))
}

func (w SearchScope) pathExists(path string) bool {
	_, err := w.statPath(path)
	return err == nil
}

func (w SearchScope) isFolder(path string) bool {
	info, err := w.statPath(path)
	return err == nil && info.IsDir()
}

// isProgram reports whether the path is a file that can be executed.
func (w SearchScope) isProgram(path string) bool {
	info, err := w.statPath(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// resolveLinks follows the links of a path, also to a file that does not exist. Below the Root of a test, absolute
// links stay below it.
func (w SearchScope) resolveLinks(path string) string {
	if w.Root == "/" {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			return target
		}
	}
	for hops := 0; ; hops++ {
		target, err := os.Readlink(w.realPath(path))
		if err != nil || hops == 40 {
			// Not a link, or a loop of links.
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return filepath.Clean(path)
}

// envValue returns an environment variable; "" if it is not set.
func (w SearchScope) envValue(name string) string {
	v, _ := w.Env.Lookup(name)
	return v
}

// absolutePath makes an absolute path of the caller's argument.
func (w SearchScope) absolutePath(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(w.envValue("HOME"), path[1:])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.Folder, path)
	}
	return filepath.Clean(path)
}

// openFile opens a regular file; nil if it is none or cannot be opened. It does not block on a FIFO.
func (w SearchScope) openFile(path string) *os.File {
	f, err := os.OpenFile(w.realPath(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil
	}

	return f
}

// readFile returns the beginning of a file; nil if it is not a regular file or cannot be read.
func (w SearchScope) readFile(path string) []byte {
	f := w.openFile(path)
	if f == nil {
		return nil
	}

	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize))
	if err != nil {
		return nil
	}

	return text
}

// listNames lists a folder, in no order, up to the limit.
func (w SearchScope) listNames(path string) ([]string, error) {
	// A FIFO of this name would block.
	f, err := os.OpenFile(w.realPath(path), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	defer f.Close()
	names, err := f.Readdirnames(maxNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}

	return names, err
}
