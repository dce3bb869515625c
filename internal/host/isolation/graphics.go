//go:build amd64 || arm64

package isolation

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// showWithout puts, in place of each folder of the kernel's graphics that has a hidden file, one that has only the
// other files: AMD's library finds no GPU at all where it may not open one of several, and leaves out what is not
// there. The files that are not there were covered before, so that nothing depends on the folder.
func (a *soleThread) showWithout(hidden []string) error {
	var folders []string
	for _, path := range hidden {
		dir := filepath.Dir(path)
		if filepath.Base(dir) == "dri" && !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
	}

	if len(folders) == 0 {
		return nil
	}

	// A path through a descriptor needs its number before there is one, so another keeps the number until then.
	kept, err := unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}

	for _, dir := range folders {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("cannot close files in %s: %w", dir, err)
		}
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(hidden, filepath.Join(dir, e.Name())) })
		a.replaceFolder(dir, entries, uintptr(kept)) //nolint:gosec // a descriptor
	}

	return nil
}

// replaceFolder mounts a folder with these entries of another over it.
func (a *soleThread) replaceFolder(dir string, entries []fs.DirEntry, kept uintptr) {
	what := "close files in " + dir
	a.addStep(syscallStep{what: what, call: unix.SYS_OPENAT, args: [6]uintptr{atCurrentDir, a.keepString(dir), unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}, opens: true})
	a.addStep(syscallStep{what: what, call: unix.SYS_DUP3, args: [6]uintptr{0, kept, unix.O_CLOEXEC}, from: 1})
	a.addStep(syscallStep{what: what, call: unix.SYS_CLOSE, from: 1})
	a.mountEmpty(dir)

	for _, e := range entries {
		from, to := a.keepString(fmt.Sprintf("/proc/self/fd/%d/%s", kept, e.Name())), a.keepString(filepath.Join(dir, e.Name()))
		switch {
		case e.IsDir():
			a.addStep(syscallStep{what: what, call: unix.SYS_MKDIRAT, args: [6]uintptr{atCurrentDir, to, 0o755}})
		case e.Type()&fs.ModeSymlink != 0:
			// None of a driver's, and it may lead to a file that is hidden.
			continue
		default:
			a.addStep(syscallStep{what: what, call: unix.SYS_MKNODAT, args: [6]uintptr{atCurrentDir, to, unix.S_IFREG | 0o644}})
		}

		// It is gone meanwhile.
		a.addStep(syscallStep{what: what, call: unix.SYS_MOUNT, args: [6]uintptr{from, to, 0, unix.MS_BIND}, skips: uintptr(unix.ENOENT)})
	}

	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	a.addStep(syscallStep{what: what, call: unix.SYS_MOUNT, args: [6]uintptr{0, a.keepString(dir), 0, flags}})
}

// mountEmpty mounts an empty file system over a folder.
func (a *soleThread) mountEmpty(dir string) {
	kind := a.keepString("tmpfs")
	a.addStep(syscallStep{what: "close files in " + dir, call: unix.SYS_MOUNT, args: [6]uintptr{kind, a.keepString(dir), kind, unix.MS_NOSUID | unix.MS_NOEXEC, a.keepString("mode=0755,size=1m")}})
}
