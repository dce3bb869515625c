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

// Process reads what procfs knows of one process; only a driver knows the GPU, memory and kind. The error is
// os.ErrNotExist if there is no such process, and os.ErrPermission if procfs hides it (hidepid=).
func (f FS) Process(pid int) (gpu.Process, error) {
	p := f.readProcessInfo(pid, f.loadUserNames())
	p.PID = pid

	switch {
	case p.State == StateGone || pid <= 0:
		return p, fmt.Errorf("cannot read process %d: %w", pid, os.ErrNotExist)
	case p.State == "" && f.isHidden(pid):
		return p, fmt.Errorf("cannot read process %d: %w", pid, os.ErrPermission)
	case p.State == "":
		_, err := f.Stat(pid)
		return p, err
	}

	return p, nil
}

// HasFile reports whether a file of this path exists in the root folder of the process. Only the owner of the process
// and root may read that; for other callers the answer is false.
func (f FS) HasFile(pid int, path string) bool {
	_, err := withDeadline(func() (fs.FileInfo, error) {
		return os.Lstat(filepath.Join(f.root, strconv.Itoa(pid), "root", path))
	})
	return err == nil
}

// DeviceFiles lists the GPU device files under /dev in the root folder of the process: "nvidia0", "dri/renderD128".
// Only the owner of the process and root may read that.
func (f FS) DeviceFiles(pid int) ([]string, error) {
	names, err := withDeadline(func() ([]string, error) {
		dev := filepath.Join(f.root, strconv.Itoa(pid), "root", "dev")
		entries, err := readDir(dev, maxDevEntries)
		if err != nil {
			return nil, err
		}

		names := numberedNames("", "nvidia", entries)
		if entries, err := readDir(filepath.Join(dev, "dri"), maxDevEntries); err == nil {
			names = append(names, numberedNames("dri/", "renderD", entries)...)
		}

		return names, nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the device files of process %d: %w", pid, err)
	}
	return names, nil
}

// maxDevEntries is more than any machine has in /dev.
const maxDevEntries = 4096

// readDir lists at most n entries of a folder, because its owner may have filled it.
func readDir(folder string, n int) ([]os.DirEntry, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}

	defer f.Close() //nolint:errcheck // read only
	entries, err := f.ReadDir(n)
	if errors.Is(err, io.EOF) {
		// An empty folder.
		err = nil
	}

	return entries, err
}

// numberedNames returns the names that consist of prefix and a number.
func numberedNames(folder, prefix string, entries []os.DirEntry) []string {
	var names []string
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), prefix); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			names = append(names, folder+e.Name())
		}
	}
	slices.Sort(names)

	return names
}

// withDeadline runs read, which may wait for another process or for a file system that another user mounted. If it
// takes longer than slow, it keeps running in its goroutine, because nothing can interrupt it, and the result is an
// error.
func withDeadline[T any](read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}

	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()

	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(slowReadDeadline):
		var none T
		return none, fmt.Errorf("no answer within %v: the process may be stuck in the kernel", slowReadDeadline)
	}
}
