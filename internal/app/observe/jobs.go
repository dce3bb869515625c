package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// jobMap keeps files for dcgm-exporter, which adds their lines to its metrics as the label hpc_job
// (NVIDIA/dcgm-exporter README.md, "How to include HPC jobs in metric labels"): one for each device with a lease, named
// by its index, of a slice "2.0", with a line for each lease.
type jobMap struct {
	folder  string
	written map[string]string // text of each file, by its name
}

// write makes the files those of this report.
func (j *jobMap) write(s *status.Report) error {
	if j == nil {
		return nil
	}
	wanted := map[string]string{}
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Vendor != gpu.NVIDIA {
			continue
		}
		note(wanted, fmt.Sprint(d.Index), d.Leases)
		for k := range d.MIG {
			note(wanted, fmt.Sprintf("%d.%d", d.Index, d.MIG[k].Index), d.MIG[k].Leases)
		}
	}
	var all []error
	for name := range j.written {
		if _, still := wanted[name]; !still {
			if err := os.Remove(filepath.Join(j.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				all = append(all, err)
			}
		}
	}
	for name, text := range wanted {
		if j.written[name] == text {
			continue
		}
		path := filepath.Join(j.folder, name)
		err := os.WriteFile(path+".new", []byte(text), 0o644) //nolint:gosec // the exporter is another user
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		all = append(all, err)
	}
	j.written = wanted
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("cannot write the jobs for dcgm-exporter: %w", err)
	}
	return nil
}

// note puts the leases of one device into its file: "train.py k3f9 (ann)".
func note(wanted map[string]string, name string, leases []status.Lease) {
	var lines []string
	for _, l := range leases {
		if l.Parent == "" {
			lines = append(lines, fmt.Sprintf("%s %s (%s)\n", l.Command, l.ID, l.User))
		}
	}
	if slices.Sort(lines); len(lines) > 0 {
		wanted[name] = strings.Join(lines, "")
	}
}
