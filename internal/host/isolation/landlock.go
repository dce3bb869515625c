package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock is asked to watch over (landlock(7)): opening files, since a device is used through an open file, and
// the making of device nodes, or root could make another one of the same number. Links and renames between folders have
// to be asked for to be allowed at all (LANDLOCK_ACCESS_FS_REFER).
const (
	openRights    = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	handledRights = openRights | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR
)

// becomeUnderLandlock becomes the program, which can open every file that is there now but those. Landlock knows only
// what is allowed, so everything is allowed that is beside the way to one of them: of / each entry but dev, of /dev
// each but the files. What is made later in a folder on that way itself cannot be opened, and never what is made later
// in /, /dev or a folder of devices.
func becomeUnderLandlock(hidden []string, p walledProgram) error {
	// The rules, and no_new_privs, are of this thread, which execve(2) makes the process.
	runtime.LockOSThread()
	ruleset, err := newRuleset(hidden)
	if err != nil {
		return err
	}

	caps, err := effectiveCaps()
	if err == nil && !caps.has(unix.CAP_SYS_ADMIN) {
		// The kernel wants one of the two.
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}

	if err != nil {
		return fmt.Errorf("cannot give up new privileges: %w", err)
	}

	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	if errno != 0 {
		return fmt.Errorf("cannot restrict itself: %w", errno)
	}

	return p.execute()
}

// newRuleset makes the rules, as a descriptor.
func newRuleset(hidden []string) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handledRights}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return -1, fmt.Errorf("cannot make rules of Landlock: %w", errno)
	}

	unix.CloseOnExec(int(fd))
	r := landlockRules{fd: int(fd), hidden: map[string]bool{}, above: map[string]bool{"/": true}}

	// A folder that is allowed as a whole would let in what is made there later.
	for _, path := range append([]string{"/dev/any", "/dev/dri/any", "/dev/nvidia-caps/any"}, hidden...) {
		for dir := filepath.Dir(path); !r.above[dir]; dir = filepath.Dir(dir) {
			r.above[dir] = true
		}
	}

	for _, path := range hidden {
		r.hidden[path] = true
	}

	return r.fd, r.allowBelow("/")
}

// landlockRules are a ruleset in the making.
type landlockRules struct {
	fd int
	// Files, and the folders on the way to them.
	hidden, above map[string]bool
}

// allowBelow allows all entries of a folder on the way to a hidden file, but not the folder itself.
func (l *landlockRules) allowBelow(dir string) error {
	if !l.above[dir] {
		// Nothing is hidden.
		return l.allowPath(dir)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot list %s, in which a device of others lies: %w", dir, err)
	}

	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case l.hidden[path] || e.Type() == fs.ModeSymlink:
			// A link is allowed by what it points to.
			continue
		case l.above[path]:
			err = l.allowBelow(path)
		default:
			err = l.allowPath(path)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// allowPath allows everything at a path and below.
func (l *landlockRules) allowPath(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		// It is gone by now.
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot allow %s: %w", path, err)
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err != nil {
		return fmt.Errorf("cannot allow %s: %w", path, err)
	}

	attr := unix.LandlockPathBeneathAttr{Allowed_access: openRights, Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		attr.Allowed_access |= unix.LANDLOCK_ACCESS_FS_REFER
	}

	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(l.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("cannot allow %s: %w", path, errno)
	}

	return nil
}

// landlockABI is the version of Landlock that the kernel has.
func landlockABI() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}
