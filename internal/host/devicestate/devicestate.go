// Package devicestate keeps notes about devices as small files in the state folder: which devices an administrator has
// drained, and which driver errors a process has seen. It uses only files of users that the caller trusts, and opens
// nothing that could block or lead elsewhere. It decides nothing.
//
//	drained, errors, err := marks.Read(state, owner, bootID)
//	err = marks.Write(state, owner, marks.Mark{Device: id, Drained: true, Reason: "fan", Since: now})
//	err = marks.Record(state, boot, event)
package devicestate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/sys"
)

// DrainMark is an administrator's note about one device.
type DrainMark struct {
	Device  gpu.UUID  `json:"device"`
	Drained bool      `json:"drained"`
	Reason  string    `json:"reason,omitempty"`
	By      string    `json:"by,omitempty"`
	Since   time.Time `json:"since"`
	// Driver errors until then do not count any more.
	Cleared time.Time `json:"cleared"`
	// The boot of Cleared: errors without a time are cleared in this boot only.
	Boot string `json:"boot"`
}

// Limits on what is read of files that other users write.
const (
	// Of one file, in bytes.
	maxFileSize = 64 << 10
	// Marks that are read.
	maxMarks = 512
	// Size from which a record of errors is shortened.
	shortenAbove = 32 << 10
)

// markFolder contains the marks, in the state folder. The errors that a user recorded are in a file next to it, see
// errorFileOf.
const markFolder = "drained"

func errorFileOf(uid uint32) string { return "xids-" + strconv.FormatUint(uint64(uid), 10) }

// ReadState returns the marks in the state folder path that root or owner made, and the errors of this boot that root,
// owner or the caller recorded, oldest first for each of the three. A folder or file that cannot be used counts as
// empty and is named in the error; one that does not exist is no error. hidden are the uids that root or owner may have
// in a user namespace: their files count too, because a device that may be drained must not be leased.
func ReadState(path string, owner uint32, boot func() string, hidden ...uint32) (map[gpu.UUID]DrainMark, []gpu.Event, error) {
	root, err := sys.OpenDir(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, nil, err
	}

	defer root.Close() //nolint:errcheck // read only
	found, err := readMarks(root, append([]uint32{0, owner}, hidden...))
	var seen []gpu.Event
	trusted := []uint32{0, owner, uint32(os.Geteuid())}
	slices.Sort(trusted)

	for _, uid := range slices.Compact(trusted) {
		data, rerr := readTrusted(root, errorFileOf(uid), append([]uint32{uid}, hidden...))
		if rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		if len(data) > 0 {
			seen = append(seen, decodeErrors(data, boot())...)
		}
	}

	return found, seen, err
}

func readMarks(root *sys.Dir, trusted []uint32) (map[gpu.UUID]DrainMark, error) {
	d, err := openDir(root, trusted)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}

	defer d.Close() //nolint:errcheck // read only
	names, err := d.Readdirnames(maxMarks)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", d.Name(), err)
	}

	found := map[gpu.UUID]DrainMark{}
	var wrong error
	for _, name := range names {
		if filepath.Ext(name) != ".json" {
			continue
		}

		m, err := readMark(d, name, trusted)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("cannot use %s: %w", filepath.Join(d.Name(), name), err))
			continue
		}

		found[m.Device] = m
	}

	return found, wrong
}

func readMark(d *sys.Dir, name string, trusted []uint32) (m DrainMark, err error) {
	data, err := readTrusted(d, name, trusted)
	if err != nil {
		return m, err
	}

	err = json.Unmarshal(data, &m)
	if err != nil {
		return m, err
	}
	if name != markFileOf(m.Device) {
		return m, errors.New("content and file name differ")
	}

	return m, nil
}

func markFileOf(id gpu.UUID) string { return job.DeviceHash(id) + ".json" }

// WriteMark records a mark in the state folder path of that owner. For a caller other than root and the owner, the
// error is os.ErrPermission.
func WriteMark(path string, owner uint32, m DrainMark) error {
	if uid := uint32(os.Geteuid()); uid != 0 && uid != owner {
		return os.ErrPermission
	}

	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) >= maxFileSize {
		// Read would refuse it.
		return fmt.Errorf("cannot note more than %d KiB about a device", maxFileSize>>10)
	}

	root, err := sys.OpenDir(path)
	if err != nil {
		return err
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	if err := root.Mkdir(markFolder, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}

	d, err := openDir(root, []uint32{0, owner})
	if err != nil {
		return err
	}

	defer d.Close() //nolint:errcheck // nothing is written through it
	if err := makeReadable(d); err != nil {
		return err
	}

	return d.Replace(markFileOf(m.Device), append(data, '\n'), 0o644)
}

// makeReadable undoes a narrow umask: other users must be able to read the marks. It leaves a folder with other content
// alone, because the owner of the state folder may have put another folder of the caller in this place.
func makeReadable(d *sys.Dir) error {
	st, err := d.Status()
	if err != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&0o755 == 0o755 {
		return err
	}

	names, err := d.Readdirnames(-1)
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return filepath.Ext(n) != ".json" && !strings.HasPrefix(n, sys.NewPrefix) }) {
		return err
	}

	return d.SetMode(0o755)
}

// errorLine is one recorded error.
type errorLine struct {
	Boot   string    `json:"boot"`
	Device gpu.UUID  `json:"device"`
	Code   int       `json:"code"`
	At     time.Time `json:"at"`
	PID    int       `json:"pid,omitempty"`
	Source string    `json:"source"`
}

// RecordErrors adds errors of this boot to the caller's file, one line each. All lines are written in one step, so
// several processes may do that at the same time.
func RecordErrors(path, boot string, events ...gpu.Event) error {
	var text []byte
	for _, e := range events {
		data, err := json.Marshal(errorLine{boot, e.Device, e.XID.Code, e.XID.At, e.XID.PID, e.XID.Source})
		if err != nil {
			return err
		}
		text = append(append(text, data...), '\n')
	}

	uid := uint32(os.Geteuid())
	root, err := sys.OpenDir(path)
	if err != nil {
		return err
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	before, err := readTrusted(root, errorFileOf(uid), []uint32{uid})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(before) > shortenAbove {
		return root.Replace(errorFileOf(uid), append(keepNewest(before, boot), text...), 0o644)
	}

	return appendTo(root, errorFileOf(uid), text)
}

// appendTo appends to a file of the caller. It creates a missing file under its final name, so that lines of another
// process are not lost.
func appendTo(root *sys.Dir, name string, text []byte) error {
	const flags = unix.O_WRONLY | unix.O_APPEND
	fd, err := root.Open(name, flags)
	if errors.Is(err, os.ErrNotExist) {
		if err := root.Write(name, nil, 0o644); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		fd, err = root.Open(name, flags)
	}

	if err != nil {
		return err
	}

	file := os.NewFile(uintptr(fd), filepath.Join(root.Name(), name)) //nolint:gosec // a descriptor
	err = checkTrusted(fd, file.Name(), []uint32{uint32(os.Geteuid())})
	if err != nil {
		return errors.Join(err, file.Close())
	}

	_, err = file.Write(text)

	return errors.Join(err, file.Close())
}

// keepNewest shortens a full record to the newest errors of each device and code in this boot, so that a program that
// fails in a loop does not displace an error that happened once. If these are too many, it keeps the newer ones, up to
// half of compact.
func keepNewest(data []byte, boot string) []byte {
	const often = 4
	type kind struct {
		device gpu.UUID
		code   int
	}

	lines := bytes.SplitAfter(data, []byte{'\n'})
	count, size := map[kind]int{}, 0
	var kept [][]byte
	for _, l := range slices.Backward(lines) {
		found := decodeErrors(l, boot)
		if len(found) == 0 {
			continue
		}

		k := kind{found[0].Device, found[0].XID.Code}
		count[k]++
		if count[k] > often || size+len(l) > shortenAbove/2 {
			continue
		}

		size += len(l)
		kept = append(kept, l)
	}

	slices.Reverse(kept)

	return bytes.Join(kept, nil)
}

func decodeErrors(data []byte, boot string) []gpu.Event {
	var out []gpu.Event
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var l errorLine
		if json.Unmarshal(s.Bytes(), &l) == nil && l.Boot == boot && l.Code > 0 && l.PID >= 0 {
			out = append(out, gpu.Event{Device: l.Device, XID: gpu.XID{Code: l.Code, At: l.At, PID: l.PID, Source: prose.Clean(l.Source)}})
		}
	}
	return out
}

// checkTrusted returns an error unless the open file is a regular file of a trusted user with only one name: another
// user may have made a second hard link here.
func checkTrusted(fd int, name string, trusted []uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}

	switch {
	case !slices.Contains(trusted, st.Uid):
		return fmt.Errorf("cannot use %s: it belongs to uid %d; root can remove it: sudo rm -r %s", name, st.Uid, name)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1:
		return fmt.Errorf("cannot use %s: it is not a file of its own; remove it", name)
	}

	return nil
}

// readTrusted returns the content of a small file of a trusted user. It checks the file through O_PATH first, so that
// it never opens a FIFO or a device.
func readTrusted(d *sys.Dir, name string, trusted []uint32) ([]byte, error) {
	handle, err := d.Open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}

	defer unix.Close(handle) //nolint:errcheck // O_PATH
	name = filepath.Join(d.Name(), name)
	if err := checkTrusted(handle, name, trusted); err != nil {
		return nil, err
	}

	// The file that was checked.
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(handle))
	if err != nil {
		return nil, err
	}

	defer file.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("cannot use %s: it is larger than %d KiB; remove it", name, maxFileSize>>10)
	}

	return data, err
}

// openDir opens the folder of the marks. It must belong to a trusted user, and no other user may write it.
func openDir(root *sys.Dir, trusted []uint32) (*sys.Dir, error) {
	d, err := root.Dir(markFolder)
	if err != nil {
		return nil, &os.PathError{Op: "cannot use", Path: filepath.Join(root.Name(), markFolder), Err: errors.Unwrap(err)}
	}

	st, err := d.Status()
	if err == nil && (!slices.Contains(trusted, st.Uid) || st.Mode&0o022 != 0) {
		err = fmt.Errorf("cannot use %s: it belongs to uid %d, or others can write it; root can remove it: sudo rm -r %s", d.Name(), st.Uid, d.Name())
	}

	if err != nil {
		_ = d.Close()
		return nil, err
	}

	return d, nil
}
