package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/host/sys"
)

// jobMap keeps files for dcgm-exporter, which adds their lines to its metrics as the label hpc_job
// (NVIDIA/dcgm-exporter README.md, "How to include HPC jobs in metric labels"): one for each device with a lease, named
// by its index, of a slice "2.0", with a line for each lease.
type jobMap struct {
	dir *sys.Dir
	// Text of each file, by its name.
	written map[string]string
}

// openJobs opens the folder, which no other user may be able to change, and removes what an earlier process has left
// there.
func openJobs(folder string) (*jobMap, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("cannot find the folder for dcgm-exporter: %w", err)
	}

	place, err := sys.OpenOwnFolder(folder, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot write the jobs for dcgm-exporter: %w", err)
	}

	defer place.Close() //nolint:errcheck // opened for its place
	dir, err := place.Dir(".")
	if err != nil {
		return nil, fmt.Errorf("cannot write the jobs for dcgm-exporter: %w", err)
	}

	j := &jobMap{dir: dir}
	if err := j.removeOldFiles(); err != nil {
		return nil, fmt.Errorf("cannot remove old jobs for dcgm-exporter: %w", err)
	}

	return j, nil
}

// removeOldFiles removes the files of a killed process: those with the name of a device and only lines of ours, and
// unfinished ones.
func (j *jobMap) removeOldFiles() error {
	names, err := j.dir.Readdirnames(-1)
	if err != nil {
		return err
	}

	device, line := regexp.MustCompile(`^\d+(\.\d+)?$`), regexp.MustCompile(`^\S.* [0-9a-z]+ \([^()]+\)$`)
	for _, name := range names {
		ours := strings.HasPrefix(name, sys.NewPrefix)
		if device.MatchString(name) {
			text, err := j.readText(name)
			ours = err == nil && text != "" && !slices.ContainsFunc(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), func(l string) bool { return !line.MatchString(l) })
		}
		if ours {
			if err := j.dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}

	return nil
}

// readText is what a small file of the caller's in the folder holds.
func (j *jobMap) readText(name string) (string, error) {
	fd, err := j.dir.Open(name, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK)
	if err != nil {
		return "", err
	}

	file := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
	defer file.Close()                    //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || int(owner.Uid) != os.Geteuid() {
		return "", os.ErrPermission
	}

	text := make([]byte, 64<<10)
	n, err := file.Read(text)

	return string(text[:n]), err
}

// writeFiles makes the files those of this report.
func (j *jobMap) writeFiles(s *status.Report) error {
	if j == nil {
		return nil
	}

	wanted := map[string]string{}
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Vendor != gpu.NVIDIA {
			continue
		}
		addLeaseLines(wanted, fmt.Sprint(d.Index), d.Leases)

		for k := range d.MIG {
			addLeaseLines(wanted, fmt.Sprintf("%d.%d", d.Index, d.MIG[k].Index), d.MIG[k].Leases)
		}
	}

	var all []error
	for name := range j.written {
		if _, still := wanted[name]; !still {
			if err := j.dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				all = append(all, err)
			}
		}
	}

	for name, text := range wanted {
		if j.written[name] != text {
			// The exporter is another user.
			all = append(all, j.dir.Replace(name, []byte(text), 0o644))
		}
	}

	j.written = wanted
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("cannot write the jobs for dcgm-exporter: %w", err)
	}

	return nil
}

// addLeaseLines puts the leases of one device into its file: "train.py k3f9 (ann)".
func addLeaseLines(wanted map[string]string, name string, leases []status.Lease) {
	var lines []string
	for _, l := range leases {
		if l.Parent == "" {
			lines = append(lines, fmt.Sprintf("%s %s (%s)\n", l.Command, l.ID, l.User))
		}
	}
	slices.Sort(lines)
	if len(lines) > 0 {
		wanted[name] = strings.Join(lines, "")
	}
}
