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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
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
// says so, and is nil where there simply is none. hidden are ids as which root or owner may appear in a user namespace: what
// belongs to one of those is believed too, since a device that may be drained must not be given away.
func Read(path string, owner uint32, boot func() string, hidden ...uint32) (map[gpu.UUID]Mark, []gpu.Event, error) {
	root, err := sys.OpenDir(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, nil, err
	}
	defer root.Close() //nolint:errcheck // read only
	found, err := drained(root, append([]uint32{0, owner}, hidden...))
	var seen []gpu.Event
	trusted := []uint32{0, owner, uint32(os.Geteuid())}
	slices.Sort(trusted)
	for _, uid := range slices.Compact(trusted) {
		data, rerr := read(root, errorsOf(uid), append([]uint32{uid}, hidden...))
		if rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		if len(data) > 0 {
			seen = append(seen, decode(data, boot())...)
		}
	}
	return found, seen, err
}

func drained(root *sys.Dir, trusted []uint32) (map[gpu.UUID]Mark, error) {
	d, err := openDir(root, trusted)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	defer d.Close() //nolint:errcheck // read only
	names, err := d.Readdirnames(devices)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", d.Name(), err)
	}
	found := map[gpu.UUID]Mark{}
	var wrong error
	for _, name := range names {
		if filepath.Ext(name) != ".json" {
			continue
		}
		var m Mark
		data, err := read(d, name, trusted)
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err == nil && name != fileOf(m.Device) {
			err = errors.New("content and file name differ")
		}
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("cannot use %s: %w", filepath.Join(d.Name(), name), err))
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
	root, err := sys.OpenDir(path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	if err := root.Mkdir(folder, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := openDir(root, []uint32{0, owner})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing is written through it
	if err := widen(d); err != nil {
		return err
	}
	return d.Replace(fileOf(m.Device), append(data, '\n'), 0o644)
}

// widen undoes a narrow umask: others must see what is drained. A folder in which something else lies is not the one that was made:
// the owner of the state folder may have put another one of the caller's in its place.
func widen(d *sys.Dir) error {
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
	root, err := sys.OpenDir(path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	before, err := read(root, errorsOf(uid), []uint32{uid})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(before) > compact {
		return root.Replace(errorsOf(uid), append(newer(before, boot), text...), 0o644)
	}
	return add(root, errorsOf(uid), text)
}

// add appends to a file of the caller's. One that is missing is made in its place, so that what is added at the same time is not lost.
func add(root *sys.Dir, name string, text []byte) error {
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
	if err = judge(fd, file.Name(), []uint32{uint32(os.Geteuid())}); err == nil {
		_, err = file.Write(text)
	}
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

// judge refuses an open file unless it is a regular one of a trusted user without a second name: what another user linked here.
func judge(fd int, name string, trusted []uint32) error {
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

// read returns a small file of a trusted user. A pipe or a device is looked at and never opened.
func read(d *sys.Dir, name string, trusted []uint32) ([]byte, error) {
	look, err := d.Open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(look) //nolint:errcheck // only looked at
	name = filepath.Join(d.Name(), name)
	if err := judge(look, name, trusted); err != nil {
		return nil, err
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

// openDir opens the folder of the marks, which must belong to a trusted user and be for nobody else to write.
func openDir(root *sys.Dir, trusted []uint32) (*sys.Dir, error) {
	d, err := root.Dir(folder)
	if err != nil {
		return nil, &os.PathError{Op: "cannot use", Path: filepath.Join(root.Name(), folder), Err: errors.Unwrap(err)}
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
