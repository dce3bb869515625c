package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Programs lists the executables in PATH whose names begin with prefix, each once, for completion.
func (a *App) Programs(prefix string) []string {
	var names []string
	path, _ := a.Env.Lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a folder in PATH that is not there is usual
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
