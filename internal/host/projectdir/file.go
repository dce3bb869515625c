package projectdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/service"
	"gpuard/internal/host/sys"
)

// maxFileSize is the size up to which a file is read, in bytes; all files are smaller.
const maxFileSize = 16 << 20

// ReadWanted reads the wanted state. It is empty for a project that was never started.
func (f *Folder) ReadWanted() (w service.Wanted, err error) {
	err = readJSON(f.filePath(wantedFile), &w)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return w, err
}

// SetWanted writes the wanted state. The caller holds the lock of Edit.
func (f *Folder) SetWanted(w service.Wanted) error { return writeJSON(f.filePath(wantedFile), w) }

// ReadEnvironment reads the environment with which services are started.
func (f *Folder) ReadEnvironment() ([]string, error) {
	data, err := readFile(f.filePath(environmentFile))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// SetEnvironment writes it.
func (f *Folder) SetEnvironment(env []string) error {
	return replaceFile(f.filePath(environmentFile), []byte(strings.Join(env, "\x00")+"\x00"))
}

// ReadPlacement reads the devices of services that have one instance for each device, by instance number.
func (f *Folder) ReadPlacement() (p service.Placement, err error) {
	err = readJSON(f.filePath(placementFile), &p)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return p, err
}

// SetPlacement writes it.
func (f *Folder) SetPlacement(p service.Placement) error {
	return writeJSON(f.filePath(placementFile), p)
}

// ReadRecord reads the record that the keeper of an instance wrote. found is false if there is none or it cannot be
// read.
func (f *Folder) ReadRecord(instance string) (r service.Record, found bool) {
	err := readJSON(f.instancePath(instance, recordFile), &r)
	return r, err == nil
}

// SetRecord writes the record. The caller holds the instance's lock (Keep).
func (f *Folder) SetRecord(instance string, r service.Record) error {
	return writeJSON(f.instancePath(instance, recordFile), r)
}

// RequestedEnd returns the hash of the start of an instance that is to end, "" if none is, and whether it is to end
// without delay.
func (f *Folder) RequestedEnd(instance string) (hash string, now bool) {
	hash = f.readLine(instance, endFile)
	return hash, hash != "" && f.readLine(instance, hurryFile) == hash
}

// RequestEnd asks the keeper of an instance to end it. now is kept in a file of its own, so that a request without now
// does not undo an earlier or simultaneous one with now.
func (f *Folder) RequestEnd(instance, hash string, now bool) error {
	if now {
		if err := replaceFile(f.instancePath(instance, hurryFile), []byte(hash+"\n")); err != nil {
			return err
		}
	}
	return replaceFile(f.instancePath(instance, endFile), []byte(hash+"\n"))
}

// readLine reads a file of one line; "" if there is none.
func (f *Folder) readLine(instance, name string) string {
	data, _ := readFile(f.instancePath(instance, name))
	return strings.TrimSuffix(string(data), "\n")
}

func readJSON(path string, v any) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("cannot read %s: %w; remove it", path, err)
	}

	return nil
}

// readFile reads a regular file. It does not follow a link and does not block on a FIFO.
func readFile(path string) ([]byte, error) {
	file, err := sys.OpenFile(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}

	defer file.Close() //nolint:errcheck // read only
	if err := checkRegular(file); err != nil {
		return nil, err
	}

	return io.ReadAll(io.LimitReader(file, maxFileSize))
}

func checkRegular(file *os.File) error {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("cannot use %s: it is not a regular file; remove it", file.Name())
	}
	return err
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(data, '\n'))
}

// replaceFile replaces a file in one step: a reader gets the old content or the new.
func replaceFile(path string, data []byte) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err))
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	err = dir.Replace(filepath.Base(path), data, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err))
	}

	return nil
}
