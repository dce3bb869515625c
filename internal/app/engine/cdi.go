package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/host/files"
	"gpuard/internal/host/loader"
	"gpuard/internal/text/cdi"
)

// Specs reads the CDI files in the default folders of container engines; a file in a later folder wins
// (cncf-tags/container-device-interface pkg/cdi/spec-dirs.go). /var/run is a link to /run.
func Specs(host *machine.Host) (found []hostinfo.CDISpec, problems []string) {
	for place, folder := range []string{"/etc/cdi", "/var/run/cdi"} {
		names, err := files.ListNames(host.SystemPath(folder), ".yaml", ".json")
		if err != nil {
			problems = append(problems, folder+": "+err.Error())
		}

		for i, name := range names {
			if i == 64 {
				problems = append(problems, fmt.Sprintf("%s: only the first %d of %d files were read", folder, i, len(names)))
				break
			}

			path := folder + "/" + name
			text, err := files.ReadFile(host.SystemPath(path))
			spec, bad := cdi.ReadSpec(text.Content)
			err = cmp.Or(err, bad)
			if err != nil {
				spec = hostinfo.CDISpec{Problem: err.Error(), Closed: errors.Is(err, os.ErrPermission)}
			}

			spec.Path, spec.Folder, spec.Modified = path, place, text.Modified
			found = append(found, spec)
		}
	}
	return found, problems
}

// MachineSpec is the CDI file of a vendor for this machine, and notes about what is not in it.
func MachineSpec(ctx context.Context, host *machine.Host, vendor gpu.Vendor) (container.Spec, []string, error) {
	m, err := host.Read(ctx, gpu.Identity)
	if err != nil {
		return container.Spec{}, nil, err
	}

	libraries, notes := map[string]string{}, []string(nil)
	if vendor == gpu.NVIDIA {
		libraries = driverLibraries(host.Root)
		if len(libraries) == 0 {
			notes = append(notes, "the driver's libraries were not found, so images have to bring them")
		}
	}

	spec, left := container.SpecOf(vendor, m.Devices, sharedFiles(host, vendor), libraries)
	if len(left) > 0 {
		notes = append(notes, fmt.Sprintf("%s has no entry: it has no device file of its own, or is split into MIG slices; nvidia-ctk cdi generate lists those", strings.Join(left, ", ")))
	}

	if len(spec.Devices) == 0 {
		return spec, notes, fmt.Errorf("cannot describe the GPUs of %s for containers: this machine has none that can be given", vendor)
	}

	return spec, notes, nil
}

// sharedFiles are those of container.SharedFiles that this machine has.
func sharedFiles(host *machine.Host, vendor gpu.Vendor) []string {
	return slices.DeleteFunc(container.SharedFiles(vendor), func(file string) bool { return !files.Exists(host.SystemPath(file)) })
}

// driverLibraries are the files of NVIDIA's driver beside libcuda.so.1, by each path that leads to one: the driver's
// version ends their names.
func driverLibraries(root string) map[string]string {
	found := map[string]string{}
	all, _ := (loader.Search{Root: root}).Libraries()
	cuda, ok := loader.FirstNamed(all, "libcuda.so.1")
	if !ok || cuda.Version == "" {
		return found
	}

	folder := filepath.Dir(cuda.Path)
	names, _ := os.ReadDir(filepath.Join(root, folder))
	for _, entry := range names {
		path := filepath.Join(folder, entry.Name())
		target, err := filepath.EvalSymlinks(filepath.Join(root, path))
		if err == nil && strings.Contains(entry.Name(), ".so.") && strings.HasSuffix(target, ".so."+cuda.Version) {
			found[path] = "/" + strings.TrimPrefix(strings.TrimPrefix(target, filepath.Clean(root)), "/")
		}
	}

	return found
}
