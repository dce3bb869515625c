package isolation

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// findAllPaths finds every path at which one of these device files can be opened: nodes of the same number below dev,
// and the same files in another mount of their file system, such as that of a folder for chroot(8).
func findAllPaths(nodes []string, dev, mountinfo string) ([]string, error) {
	numbers, err := numbersOf(nodes)
	if err != nil {
		return nil, err
	}

	found := slices.Clone(nodes)
	for _, path := range nodesBelow(dev, numbers) {
		if !slices.Contains(found, path) {
			found = append(found, path)
		}
	}

	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("cannot read what is mounted: %w", err)
	}

	return addOtherMounts(found, readMounts(string(text))), nil
}

// numbersOf are the numbers of device files.
func numbersOf(nodes []string) (map[uint64]bool, error) {
	numbers := map[uint64]bool{}
	for _, path := range nodes {
		var stat unix.Stat_t
		err := unix.Lstat(path, &stat)
		if err != nil {
			return nil, fmt.Errorf("cannot find %s any more: %w", path, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
			return nil, fmt.Errorf("cannot close %s: it is no device file", path)
		}

		numbers[stat.Rdev] = true
	}
	return numbers, nil
}

// nodesBelow finds the device files of these numbers in a folder and below. Other file systems in it, such as /dev/shm,
// may have very many files and are passed over, and so is what this user may not list.
func nodesBelow(dir string, numbers map[uint64]bool) (found []string) {
	var top, stat unix.Stat_t
	entries, err := os.ReadDir(dir)
	if err != nil || unix.Lstat(dir, &top) != nil {
		return nil
	}

	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Type()&(fs.ModeDir|fs.ModeCharDevice) == 0 || unix.Lstat(path, &stat) != nil {
			continue
		}

		switch {
		case e.IsDir() && stat.Dev == top.Dev:
			found = append(found, nodesBelow(path, numbers)...)
		case !e.IsDir() && numbers[stat.Rdev]:
			found = append(found, path)
		}
	}

	return found
}

// mountEntry is a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type mountEntry struct {
	id string
	// Number of the file system.
	device string
	// Folder of that file system, and where it is.
	root, point string
}

func readMounts(text string) (all []mountEntry) {
	escapes := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 5 {
			all = append(all, mountEntry{f[0], f[2], escapes.Replace(f[3]), escapes.Replace(f[4])})
		}
	}
	return all
}

// addOtherMounts adds to the paths those of the same files in other mounts. Mounts that are covered by others do no
// harm: what is found at their paths is another file.
func addOtherMounts(paths []string, mounts []mountEntry) []string {
	all := slices.Clone(paths)
	for _, path := range paths {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) != nil {
			continue
		}
		device := fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
		for _, from := range mounts {
			inFile, below := pathBelow(path, from.point)
			if from.device != device || !below {
				continue
			}

			for _, to := range mounts {
				rest, below := pathBelow(joinRest(from.root, inFile), to.root)
				other := joinRest(to.point, rest)
				var there unix.Stat_t
				if to.device != device || !below || slices.Contains(all, other) || unix.Lstat(other, &there) != nil {
					continue
				}

				if there.Dev == stat.Dev && there.Ino == stat.Ino {
					all = append(all, other)
				}
			}
		}
	}
	return all
}

// pathBelow is the part of a path below a folder.
func pathBelow(path, folder string) (rest string, below bool) {
	if folder == "/" || path == folder {
		return strings.TrimPrefix(path, folder), true
	}
	rest, below = strings.CutPrefix(path, folder+"/")
	return rest, below
}

func joinRest(folder, rest string) string {
	if rest == "" {
		return folder
	}
	return filepath.Join(folder, rest)
}
