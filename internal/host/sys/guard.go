package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenOwnFolder opens a folder in which nobody but the caller may write, and which no other user can exchange: each
// folder from the root to it belongs to root or to the caller, and nobody else may rename what is in it. Where others
// may write, that takes the sticky bit, which lets only the owner of an entry rename it. What a group may do in a
// folder means nothing where a folder above is closed to all but the caller. So its path may be used afterwards, for
// what is run or believed. With a mode the folder, and those above it, are made where they are missing, as the umask
// leaves them: each in the folder that was checked, so that no link of another user leads away from it.
func OpenOwnFolder(path string, mode uint32) (*Dir, error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EINVAL}
	}

	shut := false
	fd, err := walkPath(path, true, func(at string, st *unix.Stat_t, in bool) error {
		shut = in
		return checkTrustedFolder(at, st, in)
	}, mode)

	if err != nil {
		return nil, err
	}

	dir := &Dir{os.NewFile(uintptr(fd), path)} //nolint:gosec // a descriptor
	st, err := dir.Status()
	switch {
	case err != nil:
	case st.Uid != uint32(os.Geteuid()): //nolint:gosec // a uid
		err = &ForeignError{path, st.Uid}
	case canOthersWrite(path, &st, shut):
		err = fmt.Errorf("others may write in %s; chmod go-w %[1]s", path)
	}

	if err != nil {
		_ = dir.Close()
		return nil, err
	}

	return dir, nil
}

// checkTrustedFolder is an error where another user could exchange what is in a folder.
func checkTrustedFolder(at string, st *unix.Stat_t, shut bool) error {
	switch {
	case !isTrusted(st.Uid):
		return fmt.Errorf("%w, who could put another folder in its place", &ForeignError{at, st.Uid})
	case st.Mode&unix.S_ISVTX != 0 || !canOthersWrite(at, st, shut):
		return nil
	case st.Mode&0o002 != 0:
		return fmt.Errorf("all users may write in %s, and could put another folder in its place; chmod +t %[1]s", at)
	}
	return fmt.Errorf("the group %d may write in %s, and could put another folder in its place; chmod g-w %[2]s, or chmod +t %[2]s if the group has to write there", st.Gid, at)
}

// canOthersWrite reports whether users other than its owner and root may write in a folder. Where it is shut in, the
// bits of its group do not count: an umask of 002 has left them.
func canOthersWrite(path string, st *unix.Stat_t, shut bool) bool {
	if st.Mode&0o002 != 0 {
		return true
	}
	return st.Mode&0o020 != 0 && !shut && (isNamespaced() || hasACL(path) || !isPrivateGroup(st.Uid, st.Gid))
}

// privateDepth says how deep a walk is in a folder that only the caller may enter.
type privateDepth struct {
	// How many folders deep, from 1 for that folder itself; 0: it is in none.
	depth int
	// That the folder is on: what is mounted below it may be used elsewhere too.
	mount uint64
}

// afterStep is what holds after a step to an open folder. Up, it counts down; where a link leads, it begins anew.
func (p privateDepth) afterStep(name string, magic bool, fd int, st *unix.Stat_t) privateDepth {
	own := st.Uid == uint32(os.Geteuid()) && st.Mode&0o011 == 0 //nolint:gosec // a uid
	switch {
	case magic || name == "/" || name == ".":
		p = privateDepth{}
	case p.depth > 0 && name == "..":
		p.depth--
	case p.depth > 0:
		p.depth++
	}

	if p.depth == 0 && !own {
		return privateDepth{}
	}

	mount, known := mountID(fd)
	switch {
	case !known:
		return privateDepth{}
	case own && (p.depth == 0 || mount != p.mount):
		return privateDepth{1, mount}
	case mount != p.mount:
		return privateDepth{}
	}

	return p
}

// mountID is the number of the mount that an open folder is on; before Linux 5.8 it is not known.
func mountID(fd int) (id uint64, known bool) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
}

// hasACL reports whether a folder has an access control list, whose mask the bits of the group are then (acl(5)): who
// may write is not said by the group.
func hasACL(path string) bool {
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return n > 0 || err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP)
}

// isPrivateGroup reports whether a group has this user alone, as distributions make one for each user, whose umask then
// lets it write (pam_umask(8), usergroups). Users and groups of a directory service are not known here, and count as
// others.
func isPrivateGroup(uid, gid uint32) bool {
	users, err := ReadSome("/etc/passwd", 16<<20)
	if err != nil {
		return false
	}
	groups, err := ReadSome("/etc/group", 16<<20)

	return err == nil && isPrivateIn(string(users), string(groups), uid, gid)
}

// isPrivateIn is isPrivateGroup by the texts of passwd(5) and group(5).
func isPrivateIn(users, groups string, uid, gid uint32) bool {
	name, group := "", strconv.FormatUint(uint64(gid), 10)
	for line := range strings.Lines(users) {
		f := strings.Split(line, ":")
		if len(f) < 4 || f[3] != group {
			continue
		}
		if f[2] != strconv.FormatUint(uint64(uid), 10) || name != "" {
			return false
		}
		name = f[0]
	}

	found := false
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || f[2] != group {
			continue
		}
		if members := f[3]; members != "" && members != name {
			return false
		}
		found = true
	}

	return found && name != ""
}
