package proc

import (
	"os"
	"path/filepath"
	"strconv"
)

// Shell finds the shell that a command substitution belongs to, from the parent of the command in it. For $(…) shells
// fork a copy of themselves in the same process group, which ends with the substitution: a lease for its life would be
// over at once. A shell that was started as a program of its own leads its process group, or has other arguments.
func (f FS) Shell(parent int) int {
	for range 16 { // substitutions within substitutions
		s, err := f.Stat(parent)
		if err != nil || s.PPID <= 1 || s.Group == parent {
			return parent
		}
		above, err := f.Stat(s.PPID)
		if err != nil || above.Group != s.Group || !f.copyOf(parent, s.PPID) {
			return parent
		}
		parent = s.PPID
	}
	return parent
}

// copyOf: same program and same arguments, as after a fork.
func (f FS) copyOf(a, b int) bool {
	exe := func(pid int) string {
		path, _ := os.Readlink(filepath.Join(f.root, strconv.Itoa(pid), "exe"))
		return path
	}
	line := func(pid int) string {
		b, _ := f.readSlow(2*commandLimit, strconv.Itoa(pid), "cmdline")
		return string(b)
	}
	return exe(a) != "" && exe(a) == exe(b) && line(a) == line(b)
}
