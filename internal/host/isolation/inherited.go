package isolation

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/ownproc"
)

// inheritedError says what would be inherited that leads past the wall.
type inheritedError struct{ error }

// InheritedEscape says what this process would hand on that leads past a namespace; "" nothing.
func InheritedEscape() string {
	err := refuseDescriptors(nil, job.Namespace)
	if err != nil {
		return err.Error()
	}
	return ""
}

// refuseDescriptors refuses what was inherited and leads past the wall: an open device, and, where paths change their
// meaning, an open folder, or where they count, a strange one. A filter by numbers asks for no path.
func refuseDescriptors(hidden []string, level job.Isolation) error {
	numbers := map[uint64]string{}
	for _, path := range hidden {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) == nil {
			numbers[stat.Rdev] = path
		}
	}

	open, err := ownproc.OpenDescriptors()
	if err != nil {
		return fmt.Errorf("cannot list the open files of this process: %w", err)
	}

	for _, d := range open {
		var stat unix.Stat_t
		if d.CloseOnExec || unix.Fstat(d.FD, &stat) != nil {
			continue
		}

		target, _ := os.Readlink(d.Path())
		switch kind := stat.Mode & unix.S_IFMT; {
		case kind == unix.S_IFCHR && numbers[stat.Rdev] != "":
			return fmt.Errorf("descriptor %d, which it would inherit, is open on %s: close it first: %[1]d>&-", d.FD, numbers[stat.Rdev])
		case kind == unix.S_IFDIR && level != job.Cgroup && (level == job.Namespace || checkFolderInside(d.Path()) != nil):
			return fmt.Errorf("descriptor %d, which it would inherit, is the folder %s, through which files outside can be opened: close it first: %[1]d>&-", d.FD, target)
		}
	}

	return nil
}

// refuseCurrentFolder refuses a current folder that is strange.
func refuseCurrentFolder() error {
	folder, _ := os.Readlink("/proc/self/cwd")
	why := checkFolderInside("/proc/self/cwd")
	if why != nil {
		return fmt.Errorf(`the current folder %s leads to files outside: %w; go elsewhere first: cd "$HOME"`, folder, why)
	}

	return nil
}

// checkFolderInside says why from a folder paths can lead past a wall; nil: they cannot. It is in a mount that is not
// among those of this process, as that of another namespace (/proc/PID/root/dev) or one that was unmounted, or in one
// that others cover. A new mount namespace has the first not, and closes nothing in the second; and Landlock may allow
// what is above of it.
func checkFolderInside(folder string) error {
	id, err := mountID(folder)
	if err != nil {
		return fmt.Errorf("its mount is not known: %w", err)
	}

	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("cannot read what is mounted: %w", err)
	}

	mounts := readMounts(string(text))
	at := slices.IndexFunc(mounts, func(m mountEntry) bool { return m.id == id })
	if at < 0 && isBelowRoot(folder, id) {
		return nil
	}
	if at < 0 {
		return errors.New("it is in no mount of this process")
	}

	reached, err := mountID(mounts[at].point)
	if err != nil || reached != id {
		return errors.New("it is in a mount that another covers")
	}

	return nil
}

// isBelowRoot reports whether a folder of this mount lies where its path says, beside the root of this process: after
// chroot(2) into a plain folder that mount is not listed.
func isBelowRoot(folder, id string) bool {
	root, err := mountID("/")
	if err != nil || root != id {
		return false
	}

	path, err := os.Readlink(folder)
	if err != nil {
		return false
	}

	var is, there unix.Stat_t
	return unix.Stat(folder, &is) == nil && unix.Stat(path, &there) == nil && is.Dev == there.Dev && is.Ino == there.Ino
}

// mountID is the number of the mount in which a folder lies, as in /proc/self/mountinfo.
func mountID(folder string) (string, error) {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was written
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return "", err
	}

	_, rest, found := strings.Cut(string(text), "mnt_id:")
	if f := strings.Fields(rest); found && len(f) > 0 {
		return f[0], nil
	}

	return "", errors.New("the kernel does not say")
}
