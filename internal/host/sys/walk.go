package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenDir opens the folder at an absolute path. The path itself must not be a link. Of the links on the way those of
// root and of the caller are followed: another user could exchange theirs. What the folder holds cannot be listed, nor
// its mode changed, before it is opened once more, as its own Dir(".").
func OpenDir(path string) (*Dir, error) { return openFolder(path, false) }

// FollowDir is like OpenDir. The path may be a link of root's or of the caller's too, and begin in the current folder.
func FollowDir(path string) (*Dir, error) { return openFolder(path, true) }

// openFolder opens a folder at once where no link is on the way to it, else part by part.
func openFolder(path string, follow bool) (*Dir, error) {
	if !follow && !filepath.IsAbs(path) {
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}

	path = filepath.Clean(path)
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})

	if errors.Is(err, unix.ELOOP) || isUnsupported(err) {
		fd, err = walkPath(path, follow, nil, 0)
	}

	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}

	return &Dir{os.NewFile(uintptr(fd), path)}, nil //nolint:gosec // a descriptor
}

// walkPath opens a folder part by part, and calls judge with each folder on the way, the last one included. With a
// mode, what is missing is made.
func walkPath(path string, follow bool, judge judgeFunc, mode uint32) (int, error) {
	w, err := startWalk(path, judge, mode)
	for err == nil && len(w.rest) > 0 {
		err = w.walkPart(follow)
	}
	if err != nil {
		w.close()
		return -1, err
	}

	return w.at, nil
}

// pathWalker is somewhere on its way.
type pathWalker struct {
	// Opened for its place alone.
	at int
	// The path of it, for messages.
	path string
	// Parts of the path that are still to go.
	rest  []string
	links int // that were followed
	judge judgeFunc
	// The mode of folders that are missing; 0: they are not made.
	mode uint32
	shut privateDepth
}

// judgeFunc is an error where the walk must not go on. It is told whether no other user can come to the folder.
type judgeFunc func(at string, st *unix.Stat_t, shut bool) error

// startWalk is at the root or in the current folder.
func startWalk(path string, judge judgeFunc, mode uint32) (*pathWalker, error) {
	w := &pathWalker{at: -1, rest: pathParts(path), judge: judge, mode: mode}
	from := "."
	if filepath.IsAbs(path) {
		from = "/"
	}

	_, err := w.openPart(from)

	return w, err
}

func pathParts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." })
}

// walkPart goes one part further, or to where it leads if it is a link.
func (p *pathWalker) walkPart(follow bool) error {
	part := p.rest[0]
	p.rest = p.rest[1:]
	link, err := p.openPart(part)
	switch {
	case link == "":
		return err
	case len(p.rest) == 0 && !follow:
		return unix.ELOOP
	}

	return p.followLink(link)
}

// followLink puts what a link says before the rest of the way.
func (p *pathWalker) followLink(link string) error {
	p.links++
	if p.links > 40 {
		// path_resolution(7).
		return unix.ELOOP
	}

	p.rest = append(pathParts(link), p.rest...)
	if !filepath.IsAbs(link) {
		return nil
	}

	_, err := p.openPart("/")

	return err
}

func (p *pathWalker) close() {
	if p.at >= 0 {
		_ = unix.Close(p.at)
	}
}

// openPart opens the next folder, or returns the target if name is a link.
func (p *pathWalker) openPart(name string) (link string, err error) {
	path := "/"
	if name != "/" {
		path = filepath.Join(p.path, name)
	}

	at := p.at
	if at < 0 {
		at = unix.AT_FDCWD
	}

	magic := false
	fd, st, err := openPath(at, name, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) && p.mode != 0 {
		fd, st, err = p.makePart(name)
	}

	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		link, err = readTrustedLink(fd, path, &st)
		_ = unix.Close(fd)
		if !errors.Is(err, errMagic) {
			return link, err
		}

		magic = true
		fd, st, err = openPath(at, name, 0)
	}

	if err != nil {
		return "", err
	}

	p.shut = p.shut.afterStep(name, magic, fd, &st)
	if p.judge != nil {
		err = p.judge(path, &st, p.shut.depth > 0)
	}

	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}

	if err != nil {
		_ = unix.Close(fd)
		return "", err
	}

	p.close()
	p.at, p.path = fd, path

	return "", nil
}

// makePart makes a folder, unless another process was faster, and opens what has the name then.
func (p *pathWalker) makePart(name string) (fd int, st unix.Stat_t, err error) {
	err = unix.Mkdirat(p.at, name, p.mode)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, st, err
	}
	return openPath(p.at, name, unix.O_NOFOLLOW)
}

// openat is openat(2), a variable for tests.
var openat = unix.Openat

// openPath opens a name for its place alone. First as a folder: the kernel mounts what is mounted at its first use
// (autofs) only for who asks for a folder, and would else show the empty place where it belongs.
func openPath(at int, name string, flags int) (fd int, st unix.Stat_t, err error) {
	flags |= unix.O_PATH | unix.O_CLOEXEC
	fd, err = openat(at, name, flags|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		fd, err = openat(at, name, flags, 0)
	}

	if err != nil {
		return -1, st, err
	}

	err = unix.Fstat(fd, &st)
	if err != nil {
		_ = unix.Close(fd)
	}

	return fd, st, err
}

// errMagic: a link of /proc leads to its object whatever its text, and no user can exchange it (proc_pid_root(5)).
var errMagic = errors.New("a link of /proc")

// readTrustedLink is what an open link says, if its owner may lead the caller.
func readTrustedLink(fd int, path string, st *unix.Stat_t) (string, error) {
	if !isTrusted(st.Uid) {
		return "", fmt.Errorf("%s is a symbolic link of uid %d, which is not followed; name the place itself", path, st.Uid)
	}

	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		return "", errMagic
	}

	said := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", said)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}

	return string(said[:max(n, 0)]), err
}

// isTrusted reports whether the uid cannot be that of an attacker. In a user namespace without the machine's root,
// folders of root and of other users both show the overflow uid, so there no answer is possible.
func isTrusted(uid uint32) bool {
	// user_namespaces(7).
	const overflow = 65534
	return uid == 0 || uid == uint32(os.Geteuid()) || uid == overflow && isNamespaced()
}

func isNamespaced() bool {
	// The map of the initial namespace.
	const all = "0 0 4294967295"
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(data)), " ") != all
}
