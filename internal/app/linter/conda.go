package linter

import (
	"path/filepath"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/host/files"
	"gpuard/internal/text/shell"
)

// deactivation is what conda runs when an environment is left.
type deactivation struct{ scripts []lint.File }

// isHook reports whether conda runs a script when an environment is activated: in bash and zsh it runs what ends in .sh.
func isHook(path string) bool {
	return filepath.Base(filepath.Dir(path)) == "activate.d" && filepath.Ext(path) == ".sh"
}

// besideHook is a file of the folder whose scripts undo those of activate.d.
func besideHook(path, name string) string {
	return filepath.Join(filepath.Dir(path), "..", "deactivate.d", name)
}

// findUndo reads what undoes a script of activate.d; whole is its absolute path. It is nil for any other file, and where a script cannot be
// read: that is a problem, and what is undone is not known then.
func (c *collector) findUndo(p, whole string) *deactivation {
	if !isHook(whole) {
		return nil
	}

	folder := besideHook(whole, "")
	found, known := c.hooks[folder]
	if !known {
		found = c.readUndo(p, folder)
		c.hooks[folder] = found
	}

	return found
}

func (c *collector) readUndo(p, folder string) *deactivation {
	names, err := files.ListNames(folder, ".sh")
	if err != nil {
		c.addProblem(besideHook(p, ""), errorReason(err))
		return nil
	}

	var found deactivation

	for _, name := range names {
		one := fileReading{sourceFile: sourceFile{path: besideHook(p, name), kind: lint.Shell}}
		text, err := files.ReadFile(filepath.Join(folder, name))
		if err != nil {
			c.addProblem(one.path, errorReason(err))
			return nil
		}

		one.text = text.Content
		one.readBy(shell.ReadSteps)
		if one.skipped+one.problem != "" {
			c.addProblem(one.path, strings.TrimPrefix(one.skipped, "not read: ")+strings.TrimPrefix(one.problem, "cannot read it: "))
			return nil
		}

		found.scripts = append(found.scripts, one.file)
	}

	return &found
}

// undoFor is the file where a script of activate.d should be undone, and the scripts that conda runs then.
func (d *deactivation) undoFor(p string) (path string, scripts []lint.File) {
	if d == nil {
		return "", nil
	}
	return besideHook(p, filepath.Base(p)), d.scripts
}
