package amdgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// fileReader reads small files below one folder.
type fileReader struct{ root string }

// maxFileSize is larger than a file of sysfs (a page) and than libdrm's list of names.
const maxFileSize = 256 << 10

func (f fileReader) filePath(parts ...string) string {
	return filepath.Join(append([]string{f.root}, parts...)...)
}

// readText returns the content without surrounding space.
func (f fileReader) readText(parts ...string) (string, error) {
	b, err := sys.ReadSome(f.filePath(parts...), maxFileSize)
	return strings.TrimSpace(string(b)), err
}

// readShort returns the content of a file, "" if it is missing or cannot be read.
func (f fileReader) readShort(parts ...string) string {
	s, err := f.readText(parts...)
	if err != nil || len(s) > 256 {
		return ""
	}
	return s
}

// listNames lists a folder in order; nothing if it is missing or cannot be read.
func (f fileReader) listNames(parts ...string) []string {
	d, err := os.Open(f.filePath(parts...))
	if err != nil {
		return nil
	}

	defer d.Close()
	names, _ := d.Readdirnames(-1)
	slices.Sort(names)

	return names
}

// hasFile reports whether a file exists.
func (f fileReader) hasFile(parts ...string) bool {
	_, err := os.Stat(f.filePath(parts...))
	return err == nil
}

// checkUsable checks whether this process may open a device node, without opening it: opening /dev/kfd would make this
// process one of its users. access(2) also obeys the device filter of a container (torvalds/linux fs/namei.c
// inode_permission), which answers EPERM. So does a sandbox that does not know faccessat2(2), and the older call, which
// asks for the real ids, tells which it was. (unix.Faccessat would look at the permissions of the file alone then.)
func (f fileReader) checkUsable(parts ...string) error {
	const mode = unix.R_OK | unix.W_OK
	err := unix.Faccessat2(unix.AT_FDCWD, f.filePath(parts...), mode, unix.AT_EACCESS)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		err = unix.Faccessat(unix.AT_FDCWD, f.filePath(parts...), mode, 0)
	}

	return err
}

// isAbsent reports whether err means that the device does not have a reading, and not that the read failed.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODATA)
}

// errorReason returns the error without the path, because the message that contains it has the path.
func errorReason(err error) string {
	var where *fs.PathError
	if errors.As(err, &where) {
		return where.Err.Error()
	}
	return err.Error()
}

// parseProperties reads the lines "name value" of KFD's files (torvalds/linux
// drivers/gpu/drm/amd/amdkfd/kfd_topology.c). It skips lines of another form: the files of caches have some, and newer
// kernels may add others.
func parseProperties(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}

		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}

		out[fields[0]] = n
	}
	return out
}

// parseWholeNumber parses a decimal number; it is an error if the number is negative or above most.
func parseWholeNumber(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", shortenText(text))
	}
	if n < 0 || n > most {
		return 0, fmt.Errorf("%d is outside 0 to %d", n, most)
	}

	return n, nil
}

func shortenText(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
