// Package pyenv finds Python environments (venv, conda, pyenv, the system's) and lists their packages, from their files
// only. It reads files up to a limit and does not interpret them. Only Ask runs a Python.
//
//	w := pyenv.Where{Root: "/", Env: env, Folder: folder}
//	for _, place := range w.Find() {
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

// Where says where to search for environments.
type Where struct {
	Root   string      // folder below which every path is taken; "/" outside tests
	Env    visible.Env // of the caller
	Folder string      // the caller's working directory
}

// Place is an environment that was found.
type Place struct {
	Prefix      string // its folder
	Interpreter string // path of its python; "" if there is none
	Kind        string // "venv", "conda", "pyenv", "system"
	Version     string // "3.11", from the interpreter's name; "" unknown
	Active      bool   // PATH, VIRTUAL_ENV or CONDA_PREFIX selects it
	Problem     string // why it cannot be used; "" if no reason is known
}

// Limits that keep the search short on machines with very many environments and packages.
const (
	most     = 24       // environments
	entries  = 20000    // names of one folder
	fileSize = 64 << 10 // bytes of one file
)

// at returns the path below Root.
func (w Where) at(path string) string { return filepath.Join(w.Root, path) }

// stat follows links. Below the Root of a test, an absolute link leads to a path below that Root too, not to one of
// this machine.
func (w Where) stat(path string) (os.FileInfo, error) {
	if w.Root != "/" {
		path = w.resolve(path)
	}
	return os.Stat(w.at(path))
}

func (w Where) exists(path string) bool {
	_, err := w.stat(path)
	return err == nil
}

func (w Where) folder(path string) bool {
	info, err := w.stat(path)
	return err == nil && info.IsDir()
}

// program reports whether the path is a file that can be executed.
func (w Where) program(path string) bool {
	info, err := w.stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// resolve follows the links of a path, also to a file that does not exist. Below the Root of a test, absolute links
// stay below it.
func (w Where) resolve(path string) string {
	if w.Root == "/" {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			return target
		}
	}
	for hops := 0; ; hops++ {
		target, err := os.Readlink(w.at(path))
		if err != nil || hops == 40 { // not a link, or a loop of links
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return filepath.Clean(path)
}

// value returns an environment variable; "" if it is not set.
func (w Where) value(name string) string {
	v, _ := w.Env.Lookup(name)
	return v
}

// absolute makes an absolute path of the caller's argument.
func (w Where) absolute(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(w.value("HOME"), path[1:])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.Folder, path)
	}
	return filepath.Clean(path)
}

// openFile opens a regular file; nil if it is none or cannot be opened. It does not block on a FIFO.
func (w Where) openFile(path string) *os.File {
	f, err := os.OpenFile(w.at(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
func (w Where) readFile(path string) []byte {
	f := w.openFile(path)
	if f == nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileSize))
	if err != nil {
		return nil
	}
	return text
}

// names lists a folder, in no order, up to the limit.
func (w Where) names(path string) ([]string, error) {
	f, err := os.OpenFile(w.at(path), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0) // a FIFO of this name would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(entries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
