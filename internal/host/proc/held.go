package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/devfile"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// HeldDeviceFiles lists the device files that a process has open or mapped, by their paths as that process sees them,
// each once. A program that closed its descriptors may still have them mapped. Only the owner of the process and root
// may read that.
func (f FS) HeldDeviceFiles(pid int) ([]string, error) {
	open, err := withDeadline(func() ([]string, error) { return f.linksBelowDev(pid) })
	if err != nil {
		return nil, fmt.Errorf("cannot read which files process %d has open: %w", pid, err)
	}

	maps, err := f.readSlow(16<<20, strconv.Itoa(pid), "maps")
	if err != nil {
		return nil, fmt.Errorf("cannot read which files process %d has open: %w", pid, err)
	}

	for line := range strings.Lines(string(maps)) {
		if _, path, found := strings.Cut(strings.TrimRight(line, "\n"), "/"); found && devfile.IsDevicePath("/"+path) {
			open = append(open, prose.Clean("/"+path))
		}
	}

	slices.Sort(open)

	return slices.Compact(open), nil
}

func (f FS) linksBelowDev(pid int) (found []string, err error) {
	folder := filepath.Join(f.root, strconv.Itoa(pid), "fd")
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		// One that was closed meanwhile is not open.
		if target, err := os.Readlink(filepath.Join(folder, name)); err == nil && devfile.IsDevicePath(target) {
			found = append(found, prose.Clean(target))
		}
	}

	return found, nil
}

// confirmOnDevice keeps what is known of a process only if it has the device open that the driver lists it on.
// Otherwise the driver means a process outside of this PID namespace, or nobody can tell.
func (f FS) confirmOnDevice(m *gpu.Machine, p gpu.Process) gpu.Process {
	if d, _, known := m.FindDevice(p.GPU); known && p.Start != 0 {
		files, err := f.HeldDeviceFiles(p.PID)
		now, again := f.Stat(p.PID)
		if err == nil && devfile.HasOpen(*d, files) && again == nil && now.Start == p.Start {
			return p
		}
	}
	return gpu.Process{Outside: p.PID, GPU: p.GPU, Memory: p.Memory, Kind: p.Kind, Extra: p.Extra}
}
