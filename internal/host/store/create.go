package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Create makes the folder at path unless somebody else just did: built aside, modes set by fchmod because
// a umask would leave a lock that others cannot open, then moved into place in one step.
// Only the last part of path may be missing; an empty folder of the caller's own is taken over.
func Create(path string) error {
	aside := filepath.Join(filepath.Dir(path), ".gpuard."+randomHex(6))
	if err := unix.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w; create %s first, or set GPUARD_STATE to a folder you can write", path, err, filepath.Dir(path))
	}
	defer os.RemoveAll(aside) //nolint:errcheck // gone after a successful rename; otherwise nothing more can be done
	if err := fill(aside); err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Rename(aside, path) // a file system without the flag; a folder replaces nothing but an empty folder
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		err = takeOver(aside, path)
	}
	if err != nil {
		return fmt.Errorf("cannot create the state folder %s: %w", path, err)
	}
	return nil
}

// takeOver replaces an empty folder of our own; anything else that stands there is left to Open to judge.
func takeOver(aside, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return nil //nolint:nilerr // gone again, or not ours: Open says what it is
	}
	err := unix.Rename(aside, path) // the kernel replaces a folder only while it is empty
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func fill(dir string) error {
	for _, sub := range []string{"leases", "tickets"} {
		p := filepath.Join(dir, sub)
		if err := unix.Mkdir(p, 0o700); err != nil {
			return err
		}
		if err := unix.Chmod(p, 0o1777); err != nil {
			return err
		}
	}
	if err := writeNew(filepath.Join(dir, "lock"), nil, 0o666); err != nil {
		return err
	}
	if err := writeNew(filepath.Join(dir, "format"), []byte(strconv.Itoa(Format)+"\n"), 0o644); err != nil {
		return err
	}
	return unix.Chmod(dir, 0o1777)
}

// writeNew creates a file that must not exist, readable by nobody else until it is complete.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}
