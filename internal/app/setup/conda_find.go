package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/host/files"
	"gpuard/internal/host/sys"
)

// CondaChoice is the variable of an environment that says which GPUs it is for. It means nothing to any program but
// gpuard setup conda, so the empty string that conda leaves of it in a shell does no harm.
const CondaChoice = "GPUARD_CONDA"

// findPrefix finds the folder of an environment, as conda does: the active one without a name, a path, or a name in one
// of the folders for environments
// (https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html).
func (c Conda) findPrefix() (string, error) {
	active, _ := c.Host.Env.Lookup("CONDA_PREFIX")
	switch {
	case c.Name == "" && active == "":
		return "", &exit.Usage{Text: "cannot set up conda: no environment is active; name one" + folderList(c.findEnvironments())}
	case c.Name == "":
		return resolveEnvironment(active)
	case strings.Contains(c.Name, "/") || c.Name == "." || c.Name == "..":
		return resolveEnvironment(c.Name)
	}

	var found []string
	for _, e := range c.findEnvironments() {
		if e.name == c.Name && !slices.Contains(found, e.folder) {
			found = append(found, e.folder)
		}
	}

	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", &exit.Usage{Text: fmt.Sprintf("cannot set up the conda environment %q: there is none of that name; name one, or its folder%s", c.Name, folderList(c.findEnvironments()))}
	}

	return "", &exit.Usage{Text: fmt.Sprintf("cannot set up the conda environment %q: there are %d of that name; write the folder of one: %s", c.Name, len(found), strings.Join(found, ", "))}
}

// resolveEnvironment is the folder without links, if it is an environment.
func resolveEnvironment(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot set up %s for conda: %v", dir, err)}
	}

	abs, err = sys.ResolvePath(abs)
	if err != nil {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot set up %s for conda: %v", dir, err)}
	}
	if info, err := os.Stat(filepath.Join(abs, "conda-meta")); err != nil || !info.IsDir() {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot set up %s for conda: it is no environment, for it has no folder conda-meta", abs)}
	}

	return abs, nil
}

// namedFolder is an environment: the last part of its folder is its name, which may be a link to another one.
type namedFolder struct{ name, folder string }

// baseFolder is the base environment, "" where it is not known.
func (c Conda) baseFolder() string {
	for _, name := range []string{"CONDA_EXE", "MAMBA_EXE"} {
		if exe, _ := c.Host.Env.Lookup(name); filepath.IsAbs(exe) {
			if dir, err := resolveEnvironment(filepath.Join(filepath.Dir(exe), "..")); err == nil {
				return dir
			}
		}
	}
	if dir, _ := c.Host.Env.Lookup("MAMBA_ROOT_PREFIX"); filepath.IsAbs(dir) {
		if dir, err := resolveEnvironment(dir); err == nil {
			return dir
		}
	}
	return ""
}

// findEnvironments are all that can be found, some of them more than once.
func (c Conda) findEnvironments() (found []namedFolder) {
	var dirs, all []string
	look := func(name string) string { v, _ := c.Host.Env.Lookup(name); return v }
	for _, list := range []string{look("CONDA_ENVS_PATH"), look("CONDA_ENVS_DIRS")} {
		dirs = append(dirs, filepath.SplitList(list)...)
	}

	root, home := c.baseFolder(), look("HOME")
	for _, dir := range []string{root, look("CONDA_PREFIX"), look("MAMBA_ROOT_PREFIX"), filepath.Join(home, ".conda")} {
		dirs = append(dirs, filepath.Join(dir, "envs"))
	}

	for _, name := range strings.Fields("miniconda3 anaconda3 miniforge3 mambaforge micromamba") {
		// Where the installers put it.
		dirs = append(dirs, filepath.Join(home, name, "envs"))
	}

	if up := filepath.Dir(look("CONDA_PREFIX")); filepath.Base(up) == "envs" {
		// Its siblings.
		dirs = append(dirs, up)
	}

	all = append(all, root, look("CONDA_PREFIX"))
	for _, dir := range dirs {
		below, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "*"))
		all = append(all, below...)
	}

	text, _ := files.ReadFile(filepath.Join(home, ".conda", "environments.txt"))
	for line := range strings.Lines(string(text.Content)) {
		all = append(all, strings.TrimSpace(line))
	}

	for _, dir := range all {
		folder, err := resolveEnvironment(dir)
		if err != nil || !filepath.IsAbs(dir) {
			continue
		}
		found = append(found, namedFolder{filepath.Base(dir), folder})
		if folder == root {
			found = append(found, namedFolder{"base", folder})
		}
	}

	return found
}

// escapeGlob is a pattern that only the path itself matches.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func folderList(all []namedFolder) string {
	var dirs []string
	for _, e := range all {
		dirs = append(dirs, e.folder)
	}

	if len(dirs) == 0 {
		return ""
	}

	slices.Sort(dirs)

	return ": " + strings.Join(slices.Compact(dirs), ", ")
}

// EnvironmentNames are the names that can be given, for completion.
func (c Conda) EnvironmentNames() []string {
	var names []string
	for _, e := range c.findEnvironments() {
		names = append(names, e.name)
	}
	slices.Sort(names)

	return slices.Compact(names)
}

// AskedFlags are the flags that the environment's own variable has, from its environment.yml or from conda env config
// vars set; none where it has no such variable. conda keeps them in conda-meta/state (conda/conda:
// conda/core/prefix_data.py).
func (c Conda) AskedFlags() ([]string, error) {
	dir, err := c.findPrefix()
	if err != nil {
		return nil, err
	}

	path := filepath.Join(dir, "conda-meta", "state")
	read, err := files.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("cannot read the variables of the environment in %s: %w", path, err)
	}

	var state struct {
		Variables map[string]any `json:"env_vars"`
	}

	err = json.Unmarshal(read.Content, &state)
	if err != nil {
		return nil, fmt.Errorf("cannot read the variables of the environment in %s: %w", path, err)
	}

	text, _ := state.Variables[CondaChoice].(string)

	return strings.Fields(text), nil
}
