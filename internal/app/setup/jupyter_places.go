package setup

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/host/files"
)

// kernelFolder is a folder of kernels.
type kernelFolder struct {
	kernels string
	// The prefix of the Python environment that it is in; "" for those of the user and of the system.
	prefix string
}

// jupyterKernel is one that Jupyter finds.
type jupyterKernel struct {
	kernelFolder
	name   string // in small letters
	folder string
}

// userKernels is where a user's own kernels lie.
func (j Jupyter) userKernels() (string, error) {
	if dir, _ := j.Host.Env.Lookup("JUPYTER_DATA_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kernels"), nil
	}
	return (&Setup{Host: j.Host}).homePath("XDG_DATA_HOME", ".local/share", "jupyter", "kernels")
}

// kernelPlaces are the folders of kernels; the first one wins (jupyter_core/paths.py, jupyter_path). Jupyter also
// searches the environment that it runs in. gpuard starts no Python to find it: it takes the active one, or that of the
// jupyter or the python3 in PATH.
func (j Jupyter) kernelPlaces() ([]kernelFolder, error) {
	var all []kernelFolder
	add := func(base, prefix string) {
		if dir := filepath.Join(base, "kernels"); filepath.IsAbs(dir) && !slices.ContainsFunc(all, func(p kernelFolder) bool { return p.kernels == dir }) {
			all = append(all, kernelFolder{dir, prefix})
		}
	}

	path, _ := j.Host.Env.Lookup("JUPYTER_PATH")
	for _, dir := range filepath.SplitList(path) {
		add(dir, "")
	}

	user, err := j.userKernels()
	if err != nil {
		return nil, err
	}

	active, others := j.pythonPrefixes()
	for _, prefix := range active {
		if j.isPreferred(prefix) {
			add(filepath.Join(prefix, "share", "jupyter"), prefix)
		}
	}

	add(filepath.Dir(user), "")
	home, _ := j.Host.Env.Lookup("HOME")

	// Where pip install --user puts files (site.getuserbase).
	base, _ := j.Host.Env.Lookup("PYTHONUSERBASE")
	add(filepath.Join(cmp.Or(base, filepath.Join(home, ".local")), "share", "jupyter"), "")

	for _, prefix := range append(active, others...) {
		add(filepath.Join(prefix, "share", "jupyter"), prefix)
	}

	add(filepath.Join(j.Host.Root, "usr", "local", "share", "jupyter"), "")
	add(filepath.Join(j.Host.Root, "usr", "share", "jupyter"), "")

	return all, nil
}

// isPreferred reports whether kernels of an active environment come before those of the user (jupyter_core/paths.py,
// prefer_environment_over_user).
func (j Jupyter) isPreferred(prefix string) bool {
	if prefer, set := j.Host.Env.Lookup("JUPYTER_PREFER_ENV_PATH"); set {
		return !slices.Contains([]string{"no", "n", "false", "off", "0", "0.0"}, strings.ToLower(prefer))
	}

	conda, _ := j.Host.Env.Lookup("CONDA_PREFIX")
	if name, _ := j.Host.Env.Lookup("CONDA_DEFAULT_ENV"); filepath.Clean(conda) == prefix && (name == "" || name == "base") {
		return false
	}

	info, err := os.Stat(prefix)
	if err != nil {
		return false
	}

	st, ok := info.Sys().(*syscall.Stat_t)

	return ok && st.Uid == uint32(os.Geteuid())
}

// pythonPrefixes are the prefixes of Python environments: of the active one, and of what PATH leads to.
func (j Jupyter) pythonPrefixes() (active, others []string) {
	system := []string{filepath.Join(j.Host.Root, "usr"), filepath.Join(j.Host.Root, "usr", "local"), filepath.Clean(j.Host.Root)}
	add := func(list *[]string, prefix string) {
		if filepath.IsAbs(prefix) && !slices.Contains(system, filepath.Clean(prefix)) && !slices.Contains(*list, filepath.Clean(prefix)) {
			*list = append(*list, filepath.Clean(prefix))
		}
	}

	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		prefix, _ := j.Host.Env.Lookup(name)
		add(&active, prefix)
	}

	for _, program := range []string{"jupyter", "python3"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}

		add(&others, filepath.Dir(filepath.Dir(path)))
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}

		add(&others, filepath.Dir(filepath.Dir(target)))
	}

	return active, others
}

// findKernels are those that Jupyter finds, in its order, and the folders that were searched.
func (j Jupyter) findKernels() (all []jupyterKernel, where []string, err error) {
	places, err := j.kernelPlaces()
	for _, p := range places {
		where = append(where, p.kernels)
		names, err := files.ListNames(p.kernels)
		if err != nil {
			// Not ours to read, and not Jupyter's.
			continue
		}

		for _, name := range names {
			folder := filepath.Join(p.kernels, name)
			if isKernelName(name) && files.Exists(filepath.Join(folder, "kernel.json")) {
				all = append(all, jupyterKernel{p, strings.ToLower(name), folder})
			}
		}
	}
	return all, where, err
}

// Names are those of the kernels that one can be set up over.
func (j Jupyter) Names() (names []string) {
	all, _, _ := j.findKernels()
	ours, _ := (&Setup{Host: j.Host}).Keys()
	for _, k := range all {
		if !slices.Contains(ours, "jupyter "+k.folder) && !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}

	return names
}
