package proc

import (
	"os"
	"path/filepath"
	"strconv"
)

// Shell finds the shell that runs a command substitution, from the parent of the command in it. For $(…) a shell forks
// a copy of itself in the same process group. The copy ends with the substitution, and a lease bound to it would end
// then. A shell that was started as a program leads its process group or has other arguments.
func (f FS) Shell(parent int) int {
	for range 16 {
		// Substitutions within substitutions.
		s, err := f.Stat(parent)
		if err != nil || s.PPID <= 1 || s.Group == parent {
			return parent
		}

		above, err := f.Stat(s.PPID)
		if err != nil || above.Group != s.Group || !f.isForkOf(parent, s.PPID) {
			return parent
		}

		parent = s.PPID
	}
	return parent
}

// isForkOf reports whether two processes have the same program and arguments, as after a fork.
func (f FS) isForkOf(a, b int) bool {
	exe := func(pid int) string {
		path, _ := os.Readlink(filepath.Join(f.root, strconv.Itoa(pid), "exe"))
		return path
	}
	line := func(pid int) string {
		b, _ := f.readSlow(2*maxCommandLength, strconv.Itoa(pid), "cmdline")
		return string(b)
	}
	return exe(a) != "" && exe(a) == exe(b) && line(a) == line(b)
}
