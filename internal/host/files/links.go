package files

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ResolveLinks is an absolute path of which as much as exists has no symbolic links. Dots mean what the kernel takes
// them for: the folder above the one that a link leads to.
func ResolveLinks(path string) string {
	for head, tail := path, ""; ; {
		if whole, err := filepath.EvalSymlinks(head); err == nil {
			return filepath.Join(whole, tail)
		}
		at := strings.LastIndex(head, "/")
		if at <= 0 {
			return filepath.Clean(path)
		}
		head, tail = head[:at], head[at:]+tail
	}
}

// DeviceNumbers are the numbers of a character device; 0 and 0 of anything else.
func DeviceNumbers(path string) (major, minor uint32) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, 0
	}
	return unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
}
