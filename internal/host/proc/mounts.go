package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/space"
)

// InitialMountNamespace reports whether this process sees the same files as the machine's own processes: it is in the
// first mount namespace and in no chroot. Since Linux 6.18, the inode number of that namespace is MNT_NS_INIT_INO of
// torvalds/linux include/uapi/linux/nsfs.h. Before, it was one of the first two numbers given out at boot; the other
// one belongs to the first network namespace or a file of procfs as long as the machine runs.
func (f FS) InitialMountNamespace() (bool, error) { return f.isInInitialMounts("self", "/") }

// isInInitialMounts is InitialMountNamespace for a process and its root folder. The root folder is the root of a mount,
// except in a chroot.
func (f FS) isInInitialMounts(pid, root string) (bool, error) {
	link, err := os.Readlink(filepath.Join(f.root, pid, "ns", "mnt"))
	if err != nil {
		return false, fmt.Errorf("cannot read the mount namespace: %w", err)
	}
	if !slices.Contains([]string{"mnt:[4026531832]", "mnt:[4026531840]", "mnt:[4026531841]"}, link) {
		return false, nil
	}

	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, root, unix.AT_NO_AUTOMOUNT, 0, &st)
	const mounted = unix.STATX_ATTR_MOUNT_ROOT
	chroot := err == nil && st.Attributes_mask&mounted != 0 && st.Attributes&mounted == 0

	return !chroot, nil
}

// FolderSight says whether the rest of the machine sees the files in the folder path; why is the reason for
// space.Private. In a PID namespace other than the machine's it cannot be known, and the answer is space.Unclear.
func (f FS) FolderSight(path string) (s space.Sight, why string, err error) {
	initial, err := f.InitialPIDNamespace()
	if err != nil || !initial {
		return space.Unclear, "", err
	}
	if first, err := f.InitialMountNamespace(); err != nil || first {
		return space.Common, "", ignoreMissing(err)
	}

	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		// Making the folder will fail too, with this reason.
		return space.Unclear, "", nil //nolint:nilerr // it is an answer
	}

	path = filepath.Join(parent, filepath.Base(path))
	if outside, found := f.findOutsideRoot(); found {
		if same, known := sameFolder(outside, path); known && same {
			return space.Common, "", nil
		} else if known {
			return space.Private, "this mount namespace has another " + parent + " than the machine", nil
		}
	}

	if s, mounted := f.MountSight(path); mounted {
		return s, "", nil
	}

	on, err := f.mountOf(parent)
	if err != nil {
		return space.Unclear, "", err
	}

	s, why = on.JudgeSight()

	return s, why, nil
}

// ChoiceSight says whether the rest of the machine, looking for the folder of leases, chooses the folder path that was
// chosen here. locate chooses below a root folder; run is the folder in which the places are that are better than path.
// why is the reason for space.Private, and missing what has to be mounted here then.
func (f FS) ChoiceSight(path, run string, locate func(root string) string) (s space.Sight, why, missing string, err error) {
	if first, err := f.InitialMountNamespace(); err != nil || first {
		return space.Common, "", "", ignoreMissing(err)
	}

	if outside, found := f.findOutsideRoot(); found {
		if there := strings.TrimPrefix(locate(outside), outside); there != path {
			return space.Private, "the machine keeps its leases in " + there + ", which is not in this mount namespace", there, nil
		}
		return space.Common, "", "", nil
	}

	on, err := f.mountOf(run)
	if err != nil {
		// Nothing says what the machine has there.
		return space.Unclear, "", run, nil //nolint:nilerr // it is an answer
	}

	s, why = on.JudgeSight()
	if s == space.Private && strings.HasPrefix(path, run+"/") {
		// The machine's own was mounted in it, so the better place may be missing there too.
		return space.Unclear, "", "", nil
	}

	return s, why, run, nil
}

// MountSight says of a folder that is a mount point itself whether it was mounted there on purpose, so that the machine
// sees it. In a user namespace anybody may mount any folder there: only one that the caller cannot have made is the
// machine's. The caller has looked through other processes before.
func (f FS) MountSight(path string) (s space.Sight, mounted bool) {
	if mounted, err := f.IsMountPoint(path); err != nil || !mounted {
		return space.Unclear, false
	}

	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, os.ErrNotExist) {
		// The one above is mounted.
		err = unix.Stat(filepath.Dir(path), &st)
	}

	if ids := f.IDs(); ids.Part() && (err != nil || !ids.Hides(st.Uid)) {
		return space.Unclear, true
	}

	return space.Common, true
}

// findOutsideRoot returns the root folder of a process that sees the machine's files, if the caller may read it: of
// process 1 for root, else of an ancestor of this process.
func (f FS) findOutsideRoot() (root string, found bool) {
	root = filepath.Join(f.root, "1", "root")
	if unix.Access(root+"/", unix.F_OK) == nil {
		return root, true
	}

	pid := os.Getppid()
	for range 64 {
		name := strconv.Itoa(pid)
		root = filepath.Join(f.root, name, "root")
		if all, err := f.isInInitialMounts(name, root+"/"); err == nil && all && unix.Access(root+"/", unix.F_OK) == nil {
			return root, true
		}

		s, err := f.Stat(pid)
		if err != nil || s.PPID <= 1 {
			break
		}

		pid = s.PPID
	}

	return "", false
}

// sameFolder reports whether path, which need not exist yet, is the same folder below the root folder of another
// process.
func sameFolder(outside, path string) (same, known bool) {
	for try := 0; ; try++ {
		same, known = true, true
		for _, p := range []string{filepath.Dir(path), path} {
			here, err1 := os.Stat(p)
			there, err2 := os.Stat(outside + p)
			missing := errors.Is(err1, os.ErrNotExist) && errors.Is(err2, os.ErrNotExist)
			if err2 != nil && !errors.Is(err2, os.ErrNotExist) || err1 != nil && !errors.Is(err1, os.ErrNotExist) {
				return false, false
			}

			same = same && (missing || err1 == nil && err2 == nil && os.SameFile(here, there))
		}
		if same || try == 3 {
			// It may have been made between the two calls of stat.
			return same, known
		}
	}
}

// mountOf finds the mount that a folder is on.
func (f FS) mountOf(folder string) (space.MountView, error) {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return space.MountView{}, &os.PathError{Op: "open", Path: folder, Err: err}
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was opened
	info, err := f.readFile(4096, "self", "fdinfo", strconv.Itoa(fd))
	if err != nil {
		return space.MountView{}, fmt.Errorf("cannot tell on which mount %s is: %w", folder, err)
	}

	all, err := f.readFile(64<<20, "self", "mountinfo")
	if err != nil {
		return space.MountView{}, fmt.Errorf("cannot read the mounts: %w", err)
	}

	on := space.MountView{All: space.ParseMounts(string(all))}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			on.On, err = strconv.Atoi(strings.TrimSpace(id))
		}
	}

	return on, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
