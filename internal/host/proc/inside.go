package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// Process reads one process: everything of gpu.Process but what only a driver knows. The error is os.ErrNotExist when
// there is none, os.ErrPermission when procfs hides it (hidepid=).
func (f FS) Process(pid int) (gpu.Process, error) {
	p := f.process(pid, f.users())
	p.PID = pid
	switch {
	case p.State == Gone || pid <= 0:
		return p, fmt.Errorf("cannot read process %d: %w", pid, os.ErrNotExist)
	case p.State == "" && f.hidden(pid):
		return p, fmt.Errorf("cannot read process %d: %w", pid, os.ErrPermission)
	case p.State == "":
		_, err := f.Stat(pid)
		return p, err
	}
	return p, nil
}

// Has reports whether a file of this path exists as the process sees it, in its own root folder. Only the owner of the
// process and root may look; for others the answer is no.
func (f FS) Has(pid int, path string) bool {
	_, err := within(func() (fs.FileInfo, error) {
		return os.Lstat(filepath.Join(f.root, strconv.Itoa(pid), "root", path))
	})
	return err == nil
}

// DeviceFiles lists the GPU device files that the process has under its own /dev: "nvidia0", "dri/renderD128".
// Only the owner of the process and root may look.
func (f FS) DeviceFiles(pid int) ([]string, error) {
	names, err := within(func() ([]string, error) {
		dev := filepath.Join(f.root, strconv.Itoa(pid), "root", "dev")
		entries, err := some(dev, many)
		if err != nil {
			return nil, err
		}
		names := numbered("", "nvidia", entries)
		if entries, err := some(filepath.Join(dev, "dri"), many); err == nil {
			names = append(names, numbered("dri/", "renderD", entries)...)
		}
		return names, nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the device files of process %d: %w", pid, err)
	}
	return names, nil
}

// many is more than any machine has in /dev.
const many = 4096

// some lists at most n entries of a folder that belongs to others, who may have put anything there.
func some(folder string, n int) ([]os.DirEntry, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	entries, err := f.ReadDir(n)
	if errors.Is(err, io.EOF) { // an empty folder
		err = nil
	}
	return entries, err
}

// numbered keeps the names that are prefix and a number.
func numbered(folder, prefix string, entries []os.DirEntry) []string {
	var names []string
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), prefix); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			names = append(names, folder+e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// within runs what may wait for another process, or for a file system of its making, and gives it up when it is late:
// nothing can interrupt it.
func within[T any](look func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := look()
		done <- result{value, err}
	}()
	timer := time.NewTimer(slow)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("no answer within %v: the process may be stuck in the kernel", slow)
	}
}
