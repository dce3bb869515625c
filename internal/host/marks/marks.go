// Package marks keeps what people and watchers noted about devices, as small files in the state folder: which device an
// administrator takes out of use, and which driver errors somebody saw. It believes only users that the caller trusts, opens
// nothing that could hang or lead it away, and decides nothing.
package marks

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
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Mark is what an administrator said about one device.
type Mark struct {
	Device  gpu.UUID  `json:"device"`
	Drained bool      `json:"drained"`
	Reason  string    `json:"reason,omitempty"`
	By      string    `json:"by,omitempty"`
	Since   time.Time `json:"since"`
	Cleared time.Time `json:"cleared"` // driver errors up to then are settled
	Boot    string    `json:"boot"`    // in which Cleared was said: errors without a time are settled in this boot only
}

// Limits that keep a strange file from costing more than a moment.
const (
	fileSize = 64 << 10 // of one file, in bytes
	devices  = 512      // marks that are read
	compact  = 32 << 10 // size from which a record of errors is written anew, with what counts of it
)

// folder is where the marks lie, in the state folder; errors of a user lie beside it.
const folder = "drained"

func errorsOf(uid uint32) string { return "xids-" + strconv.FormatUint(uint64(uid), 10) }

// Read returns the marks below the state folder path that root or owner made, and the errors of this boot that root, owner
// or the caller recorded, oldest first for each of them. A folder or file that cannot be used counts as empty; the error
// says so, and is nil where there simply is none.
func Read(path string, owner uint32, boot func() string) (map[gpu.UUID]Mark, []gpu.Event, error) {
	found, err := drained(filepath.Join(path, folder), []uint32{0, owner})
	var seen []gpu.Event
	trusted := []uint32{0, owner, uint32(os.Geteuid())}
	slices.Sort(trusted)
	for _, uid := range slices.Compact(trusted) {
		data, rerr := read(filepath.Join(path, errorsOf(uid)), []uint32{uid})
		if rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		if len(data) > 0 {
			seen = append(seen, decode(data, boot())...)
		}
	}
	return found, seen, err
}

func drained(dir string, trusted []uint32) (map[gpu.UUID]Mark, error) {
	d, err := openDir(dir, trusted)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	defer d.Close() //nolint:errcheck // read only
	names, err := d.Readdirnames(devices)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	found := map[gpu.UUID]Mark{}
	var wrong error
	for _, name := range names {
		if filepath.Ext(name) != ".json" {
			continue
		}
		var m Mark
		data, err := read(filepath.Join(dir, name), trusted)
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err == nil && name != fileOf(m.Device) {
			err = errors.New("content and file name differ")
		}
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("cannot use %s: %w", filepath.Join(dir, name), err))
			continue
		}
		found[m.Device] = m
	}
	return found, wrong
}

func fileOf(id gpu.UUID) string { return job.DeviceHash(id) + ".json" }

// Write records a mark in the state folder path of that owner. Only root and the owner may; os.ErrPermission says so.
func Write(path string, owner uint32, m Mark) error {
	if uid := uint32(os.Geteuid()); uid != 0 && uid != owner {
		return os.ErrPermission
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) >= fileSize { // nobody would read it
		return fmt.Errorf("cannot note more than %d KiB about a device", fileSize>>10)
	}
	dir := filepath.Join(path, folder)
	made := unix.Mkdir(dir, 0o755)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: made}
	}
	d, err := openDir(dir, []uint32{0, owner})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // read only
	if made == nil {
		if err := d.Chmod(0o755); err != nil { // whatever the umask says: others must see what is drained
			return err
		}
	}
	// From here on the folder that was looked at, whatever its owner puts in its place meanwhile: root writes here.
	err = replace(filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), fileOf(m.Device)), append(data, '\n'))
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		failed.Path = dir
	}
	return err
}

// line is one recorded error.
type line struct {
	Boot   string    `json:"boot"`
	Device gpu.UUID  `json:"device"`
	Code   int       `json:"code"`
	At     time.Time `json:"at"`
	PID    int       `json:"pid,omitempty"`
	Source string    `json:"source"`
}

// Record adds errors of this boot to what the caller saw before. They are a line each, added in one step, so that several
// processes may do so at the same time.
func Record(path, boot string, events ...gpu.Event) error {
	var text []byte
	for _, e := range events {
		data, err := json.Marshal(line{boot, e.Device, e.XID.Code, e.XID.At, e.XID.PID, e.XID.Source})
		if err != nil {
			return err
		}
		text = append(append(text, data...), '\n')
	}
	uid := uint32(os.Geteuid())
	name := filepath.Join(path, errorsOf(uid))
	before, err := read(name, []uint32{uid})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(before) > compact {
		return replace(name, append(newer(before, boot), text...))
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) { // made in its place, so that what somebody adds at the same time is not lost
		file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
		switch {
		case err == nil:
			err = file.Chmod(0o644)
		case errors.Is(err, os.ErrExist): // by another one, a moment ago
			file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// newer is what is kept of a record that is full: of this boot the newest errors of each device and code, so that a program
// that fails in a loop does not push out what happened once; and if that is too much as well, the newer half of it.
func newer(data []byte, boot string) []byte {
	const often = 4
	type kind struct {
		device gpu.UUID
		code   int
	}
	lines := bytes.SplitAfter(data, []byte{'\n'})
	count, size := map[kind]int{}, 0
	var kept [][]byte
	for _, l := range slices.Backward(lines) {
		found := decode(l, boot)
		if len(found) == 0 {
			continue
		}
		k := kind{found[0].Device, found[0].XID.Code}
		if count[k]++; count[k] > often || size+len(l) > compact/2 {
			continue
		}
		size += len(l)
		kept = append(kept, l)
	}
	slices.Reverse(kept)
	return bytes.Join(kept, nil)
}

func decode(data []byte, boot string) []gpu.Event {
	var out []gpu.Event
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var l line
		if json.Unmarshal(s.Bytes(), &l) == nil && l.Boot == boot && l.Code > 0 && l.PID >= 0 {
			out = append(out, gpu.Event{Device: l.Device, XID: gpu.XID{Code: l.Code, At: l.At, PID: l.PID, Source: gpu.Clean(l.Source)}})
		}
	}
	return out
}

// replace writes a file anew in one step, readable by all.
func replace(name string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(0o644)
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// read returns a small regular file that belongs to a trusted user and has no second name: what somebody else linked here,
// a pipe or a device is looked at and never opened.
func read(name string, trusted []uint32) ([]byte, error) {
	look, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(look) //nolint:errcheck // only looked at
	var st unix.Stat_t
	if err := unix.Fstat(look, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	switch {
	case !slices.Contains(trusted, st.Uid):
		return nil, fmt.Errorf("cannot use %s: it belongs to uid %d; root can remove it: sudo rm -r %s", name, st.Uid, name)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1:
		return nil, fmt.Errorf("cannot use %s: it is not a file of its own; remove it", name)
	}
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(look)) // the very file that was looked at
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(file, fileSize+1))
	if err == nil && len(data) > fileSize {
		err = fmt.Errorf("cannot use %s: it is larger than %d KiB; remove it", name, fileSize>>10)
	}
	return data, err
}

// openDir opens a folder that belongs to a trusted user and that nobody else can write.
func openDir(name string, trusted []uint32) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "cannot use", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (!slices.Contains(trusted, st.Uid) || st.Mode&0o022 != 0) {
		err = fmt.Errorf("cannot use %s: it belongs to uid %d, or others can write it; root can remove it: sudo rm -r %s", name, st.Uid, name)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
