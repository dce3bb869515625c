package project

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/service"
)

// largest is more than any of the files has.
const largest = 16 << 20

// Wanted reads what is wanted; a project that was never up wants nothing.
func (f *Folder) Wanted() (w service.Wanted, err error) {
	err = readJSON(f.at(wantedFile), &w)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return w, err
}

// SetWanted writes it. The lock of Edit is held.
func (f *Folder) SetWanted(w service.Wanted) error { return writeJSON(f.at(wantedFile), w) }

// Environment reads what services are started with.
func (f *Folder) Environment() ([]string, error) {
	data, err := read(f.at(environmentFile))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// SetEnvironment writes it.
func (f *Folder) SetEnvironment(env []string) error {
	return write(f.at(environmentFile), []byte(strings.Join(env, "\x00")+"\x00"))
}

// Placement reads which device is which number of a service that has one instance for each.
func (f *Folder) Placement() (p service.Placement, err error) {
	err = readJSON(f.at(placementFile), &p)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return p, err
}

// SetPlacement writes it.
func (f *Folder) SetPlacement(p service.Placement) error { return writeJSON(f.at(placementFile), p) }

// Record reads what the keeper of an instance wrote; false when there is nothing that can be read.
func (f *Folder) Record(instance string) (r service.Record, found bool) {
	err := readJSON(f.of(instance, recordFile), &r)
	return r, err == nil
}

// SetRecord writes it. The instance's lock is held.
func (f *Folder) SetRecord(instance string, r service.Record) error {
	return writeJSON(f.of(instance, recordFile), r)
}

// Ending is which start of an instance shall end, by its hash, and whether at once; "" none.
func (f *Folder) Ending(instance string) (hash string, now bool) {
	hash = f.line(instance, endFile)
	return hash, hash != "" && f.line(instance, hurryFile) == hash
}

// SetEnding asks the keeper of an instance for its end. Whoever asks without now takes back no now that was said before, or
// is said at the same time: that is a file of its own.
func (f *Folder) SetEnding(instance, hash string, now bool) error {
	if now {
		if err := write(f.of(instance, hurryFile), []byte(hash+"\n")); err != nil {
			return err
		}
	}
	return write(f.of(instance, endFile), []byte(hash+"\n"))
}

// line reads a file of one line; "" none.
func (f *Folder) line(instance, name string) string {
	data, _ := read(f.of(instance, name))
	return strings.TrimSuffix(string(data), "\n")
}

func readJSON(path string, v any) error {
	data, err := read(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("cannot read %s: %w; remove it", path, err)
	}
	return nil
}

// read reads a regular file of ours. What else may stand there is not opened: a link, or a FIFO that would never answer.
func read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() //nolint:errcheck // read only
	if err := regular(file); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, largest))
}

func regular(file *os.File) error {
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
	return write(path, append(data, '\n'))
}

// write replaces a file in one step: whoever reads finds the old content or the new.
func write(path string, data []byte) error {
	fresh := filepath.Join(filepath.Dir(path), ".new-"+rand.Text())
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err))
	}
	_, err = file.Write(data)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err))
	}
	return nil
}
