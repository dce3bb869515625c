// Package loader finds shared libraries and CUDA toolkits where programs find them: in the folders of LD_LIBRARY_PATH,
// the cache of ldconfig, the default folders, and PATH. It loads and runs nothing.
//
//	libraries, err := loader.Search{Root: "/", Path: os.Getenv("LD_LIBRARY_PATH")}.Libraries()
//	driver, ok := loader.FirstNamed(libraries, "libcuda.so.1")
package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/core/hostinfo"
)

// Search says where to search. Root is put before every path ("/" for this machine); the paths in results are without
// it.
type Search struct {
	Root string
	// LD_LIBRARY_PATH, "" if it is not set.
	Path string
}

// Libraries lists the libraries of the driver and of CUDA in the order in which the loader searches them: of several
// with the same name, it loads the first (ld.so(8)). It does not find libraries by a program's own RPATH, as Python
// wheels have them. The error says that the cache cannot be read; the libraries in the other folders are returned with
// it.
func (s Search) Libraries() ([]hostinfo.Library, error) {
	var found []hostinfo.Library
	for _, folder := range strings.FieldsFunc(s.Path, func(r rune) bool { return r == ':' || r == ';' }) {
		if filepath.IsAbs(folder) {
			// A relative one depends on the working directory of the program.
			found = append(found, s.librariesIn(folder, "LD_LIBRARY_PATH")...)
		}
	}

	cached, err := s.readCache()
	for _, e := range cached {
		if _, ok := parseLibraryName(e.name); ok && fileExists(s.Root, e.path) {
			found = append(found, s.newLibrary(e.name, e.path, "ld.so.cache"))
		}
	}

	for _, folder := range defaultFolders() {
		found = append(found, s.librariesIn(folder, "default")...)
	}

	return s.dropDuplicates(found), err
}

// dropDuplicates drops files that are found again in another folder: on most machines /lib is a link to /usr/lib.
func (s Search) dropDuplicates(found []hostinfo.Library) []hostinfo.Library {
	type file struct {
		name     string
		dev, ino uint64
	}
	seen := map[file]bool{}
	return slices.DeleteFunc(found, func(l hostinfo.Library) bool {
		info, err := os.Stat(filepath.Join(s.Root, s.resolveLinks(l.Path)))
		if err != nil {
			return false
		}

		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}

		f := file{l.Name, uint64(st.Dev), st.Ino} //nolint:unconvert // the type differs between architectures
		again := seen[f]
		seen[f] = true

		return again
	})
}

// FirstNamed returns the library of that name that the loader would load.
func FirstNamed(libraries []hostinfo.Library, name string) (hostinfo.Library, bool) {
	i := slices.IndexFunc(libraries, func(l hostinfo.Library) bool { return l.Name == name })
	if i < 0 {
		return hostinfo.Library{}, false
	}
	return libraries[i], true
}

func (s Search) readCache() ([]cacheEntry, error) {
	data, err := os.ReadFile(filepath.Join(s.Root, "etc/ld.so.cache"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Another C library, or a distribution without one.
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the loader's cache: %w", err)
	}

	entries, err := parseCache(data, nativeFlags())
	if err != nil {
		return nil, fmt.Errorf("cannot read the loader's cache /etc/ld.so.cache: %w", err)
	}

	return entries, nil
}

// defaultFolders lists the folders that the loader searches last. Debian's loader is built with the first two.
func defaultFolders() []string {
	triple := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{"/lib/" + triple, "/usr/lib/" + triple, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}

// FindOutside returns the path of a library in a folder that the loader does not search by default, and in which some
// systems keep the driver: NixOS (NixOS/nixpkgs pkgs/build-support/add-driver-runpath), WSL, and pods of Google's
// Kubernetes and images like NVIDIA's old ones. It is "" if none has it.
func (s Search) FindOutside(name string) string {
	for _, folder := range []string{"/run/opengl-driver/lib", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"} {
		if path := filepath.Join(folder, name); fileExists(s.Root, s.resolveLinks(path)) {
			return path
		}
	}
	return ""
}

// librariesIn lists the wanted libraries of one folder by name.
func (s Search) librariesIn(folder, from string) []hostinfo.Library {
	entries, err := os.ReadDir(filepath.Join(s.Root, folder))
	if err != nil {
		// The loader ignores it too.
		return nil
	}

	var found []hostinfo.Library
	// Files that are the target of a link with another name.
	linked := map[string]bool{}
	for _, e := range entries {
		version, ok := parseLibraryName(e.Name())
		path := filepath.Join(folder, e.Name())
		if !ok || strings.Count(version, ".") > 1 || !s.isLoadable(path) {
			continue
		}

		l := s.newLibrary(e.Name(), path, from)
		if target := filepath.Base(s.resolveLinks(path)); target != e.Name() {
			linked[target] = true
		}

		found = append(found, l)
	}

	return slices.DeleteFunc(found, func(l hostinfo.Library) bool { return linked[l.Name] })
}

func (s Search) newLibrary(name, path, from string) hostinfo.Library {
	l := hostinfo.Library{Name: name, Path: path, From: from}
	short, _ := parseLibraryName(name)
	if long, ok := parseLibraryName(filepath.Base(s.resolveLinks(path))); ok && len(long) > len(short) {
		l.Version = long
	}

	return l
}

// parseLibraryName reports whether a file is a library of the driver or of CUDA, and returns the version after ".so.".
func parseLibraryName(name string) (version string, ok bool) {
	stem, version, found := strings.Cut(name, ".so.")
	if !found || version == "" || strings.Trim(version, "0123456789.") != "" {
		return "", false
	}

	stem = strings.TrimPrefix(stem, "lib")
	known := []string{"cuda", "nvidia-ml", "cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cusparseLt", "nccl",
		"nvrtc", "nvJitLink", "cupti", "cudnn"}

	return version, strings.HasPrefix(name, "lib") && (slices.Contains(known, stem) || strings.HasPrefix(stem, "cudnn_"))
}

// resolveLinks follows the links of a file within Root.
func (s Search) resolveLinks(path string) string {
	for range 16 {
		target, err := os.Readlink(filepath.Join(s.Root, path))
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}

// isLoadable reports whether the loader's search ends at this file. It skips libraries of another architecture or word
// size.
func (s Search) isLoadable(path string) bool {
	file, err := openRegular(filepath.Join(s.Root, s.resolveLinks(path)))
	if err != nil {
		return false
	}

	defer file.Close() //nolint:errcheck // read only
	head := make([]byte, 20)
	if n, _ := file.Read(head); n < len(head) || string(head[:4]) != "\x7fELF" {
		// The loader fails here and does not search further.
		return true
	}

	// EM_X86_64, EM_AARCH64.
	machine := map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH]

	return machine == 0 || head[4] == 2 && binary.NativeEndian.Uint16(head[18:]) == machine
}

// openRegular opens a regular file for reading. It never blocks: in a folder that other users may write, a FIFO can
// have any name.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, file.Close(), fmt.Errorf("cannot read %s: it is no file", path))
	}

	return file, nil
}

func fileExists(root, path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}
