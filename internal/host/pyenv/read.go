package pyenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PackageFolder is a folder of packages.
type PackageFolder struct {
	Path string
	// Its files and folders, sorted; at most 20,000.
	Names []string
	// Content of torch/version.py; nil if there is none.
	Torch []byte
	// Content of onnxruntime/capi/build_and_package_info.py; nil if there is none.
	ONNX []byte
	// Libraries of llama_cpp, and the names of those that they load; nil if there are none.
	Llama []string
	// Why it could not be listed.
	Problem string
}

// ReadConfig returns the content of the environment's pyvenv.cfg; nil if it has none.
func (w SearchScope) ReadConfig(p Environment) []byte {
	return w.readFile(filepath.Join(p.Prefix, "pyvenv.cfg"))
}

// CondaFiles lists the files in conda-meta; none if this is not a conda environment.
func (w SearchScope) CondaFiles(p Environment) []string {
	names, _ := w.listNames(filepath.Join(p.Prefix, "conda-meta"))
	slices.Sort(names)
	return names
}

// PackageFolders returns the environment's own folders of packages, in the order in which Python searches them, and
// their Python version ("3.11"): that of the place, or else the newest in the environment. It stops early if ctx ends.
func (w SearchScope) PackageFolders(ctx context.Context, p Environment) (folders []PackageFolder, version string) {
	version = p.Version
	if version == "" || !w.hasVersion(p.Prefix, version) {
		version = w.newestVersion(p.Prefix)
	}

	var paths []string
	if version != "" {
		for _, lib := range []string{"lib", "lib64"} {
			paths = append(paths, filepath.Join(p.Prefix, lib, "python"+version, "site-packages"), filepath.Join(p.Prefix, lib, "python"+version, "dist-packages"))
		}
	}

	if p.Prefix == "/usr" {
		// Python searches the administrator's folders before the distribution's.
		local, name := "/usr/local/lib/python"+version, "dist-packages"
		if !w.isFolder("/usr/lib/python3/dist-packages") {
			// Fedora and similar; on Debian this is the folder of a Python that was built in /usr/local.
			name = "site-packages"
		}
		paths = slices.Concat([]string{filepath.Join(local, name), filepath.Join(strings.Replace(local, "lib", "lib64", 1), name)}, paths, []string{"/usr/lib/python3/dist-packages"})
	}

	return w.readFolders(ctx, paths), version
}

// SharedFolders returns the other folders that Python searches: before the environment's own those of PYTHONPATH, and
// after them the user's, if user is set. Source: python/cpython Lib/site.py (getusersitepackages, ENABLE_USER_SITE).
func (w SearchScope) SharedFolders(ctx context.Context, version string, user bool) (before, after []PackageFolder) {
	var paths []string
	for _, path := range filepath.SplitList(w.envValue("PYTHONPATH")) {
		if filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}

	before = w.readFolders(ctx, paths)
	if user && version != "" && w.envValue("PYTHONNOUSERSITE") == "" {
		base := cmp.Or(w.envValue("PYTHONUSERBASE"), filepath.Join(w.envValue("HOME"), ".local"))
		after = w.readFolders(ctx, []string{filepath.Join(base, "lib", "python"+version, "site-packages")})
	}

	return before, after
}

// readFolders reads the folders that exist, each once: lib64 is often a link to lib.
func (w SearchScope) readFolders(ctx context.Context, paths []string) []PackageFolder {
	var folders []PackageFolder
	var seen []os.FileInfo
	for _, path := range paths {
		info, err := w.statPath(path)
		if err != nil || !info.IsDir() || ctx.Err() != nil {
			if os.IsPermission(err) {
				folders = append(folders, PackageFolder{Path: path, Problem: "no permission to read it"})
			}
			continue
		}

		if slices.ContainsFunc(seen, func(o os.FileInfo) bool { return os.SameFile(o, info) }) {
			continue
		}

		seen = append(seen, info)
		f := PackageFolder{Path: path}
		f.Names, err = w.listNames(path)
		if err != nil {
			f.Problem = errorReason(err)
		} else if len(f.Names) == maxNames {
			f.Problem = fmt.Sprintf("it has very many files: only the first %d were read", maxNames)
		}

		slices.Sort(f.Names)
		if _, has := slices.BinarySearch(f.Names, "torch"); has {
			f.Torch = w.readFile(filepath.Join(path, "torch/version.py"))
		}

		if _, has := slices.BinarySearch(f.Names, "onnxruntime"); has {
			f.ONNX = w.readFile(filepath.Join(path, "onnxruntime/capi/build_and_package_info.py"))
		}

		if _, has := slices.BinarySearch(f.Names, "llama_cpp"); has {
			// Before 0.2.80 there was no lib.
			f.Llama = slices.Concat(w.librariesIn(filepath.Join(path, "llama_cpp/lib")), w.librariesIn(filepath.Join(path, "llama_cpp")))
		}

		folders = append(folders, f)
	}

	return folders
}

// errorReason returns an error without the path, because the message has it already.
func errorReason(err error) string {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

func (w SearchScope) hasVersion(prefix, version string) bool {
	return w.isFolder(filepath.Join(prefix, "lib", "python"+version)) || w.isFolder(filepath.Join(prefix, "lib64", "python"+version))
}

// newestVersion returns the newest version for which an environment has a folder of packages.
func (w SearchScope) newestVersion(prefix string) string {
	var versions []string
	for _, lib := range []string{"lib", "lib64"} {
		names, _ := w.listNames(filepath.Join(prefix, lib))
		for _, name := range names {
			v, ok := strings.CutPrefix(name, "python")
			if ok && versionOf(name) == v && w.isFolder(filepath.Join(prefix, lib, name)) {
				versions = append(versions, v)
			}
		}
	}
	if len(versions) == 0 {
		return ""
	}

	return slices.MaxFunc(versions, func(a, b string) int { return slices.Compare(padVersion(a), padVersion(b)) })
}

// padVersion fills the parts of a version with zeros, so that they compare as text: "3.9" is older than "3.11".
func padVersion(version string) []string {
	parts := strings.Split(version, ".")
	for i, part := range parts {
		parts[i] = strings.Repeat("0", max(0, 8-len(part))) + part
	}
	return parts
}
