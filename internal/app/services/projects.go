package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/service"
	"gpuard/internal/host/projectdir"
)

// projectsFolder is the name of the folder below which the folders of this user's projects lie (machine.DurablePath).
const projectsFolder = "projects"

// folderOfProjects is that folder; with create it is made where it is missing.
func folderOfProjects(host *machine.Host, create bool) (path string, err error) {
	path, err = host.DurablePath(projectsFolder)
	if err != nil {
		return "", err
	}

	get := host.OpenDurable
	if create {
		get = host.MakeDurable
	}

	_, err = get(projectsFolder)
	if err != nil && (create || !errors.Is(err, os.ErrNotExist)) {
		return "", fmt.Errorf("cannot keep projects in %s: %w", path, host.AdviseOwn(err))
	}

	return path, nil
}

// UnhealthyReasons returns, by lease, why the caller's services that are unhealthy are so. What cannot be read is left
// out.
func UnhealthyReasons(host *machine.Host) map[string]string {
	why := map[string]string{}
	readRecords(host, func(_ service.Wanted, _ string, r service.Record) {
		if r.Lease != "" && r.Healthy != nil && !*r.Healthy {
			why[r.Lease] = r.Why
		}
	})
	return why
}

// FindInstance finds the service of the caller that has a lease: the name of the instance, and the file of its project.
func FindInstance(host *machine.Host, lease string) (name, file string, found bool) {
	readRecords(host, func(wanted service.Wanted, instance string, r service.Record) {
		if r.Lease == lease {
			name, file, found = instance, wanted.File, true
		}
	})
	return name, file, found
}

// readRecords reads the records of this boot of all services of the caller. What cannot be read is left out.
func readRecords(host *machine.Host, do func(wanted service.Wanted, instance string, r service.Record)) {
	top, err := folderOfProjects(host, false)
	if err != nil {
		return
	}

	boot, _ := host.Proc.BootID()
	entries, _ := os.ReadDir(top)
	for _, entry := range entries {
		folder, err := projectdir.Open(filepath.Join(top, entry.Name()))
		if err != nil {
			continue
		}

		// Without its file the name is enough.
		wanted, _ := folder.ReadWanted()
		for _, name := range folder.Instances() {
			if r, found := folder.ReadRecord(name); found && r.Boot == boot {
				do(wanted, name, r)
			}
		}
	}
}

// ReadGround is the machine as a project finds it, with what this caller may see of it. If no device can be read, the
// error is a *gpu.Unavailable, and the ground is that of a project without GPUs.
func ReadGround(ctx context.Context, host *machine.Host) (service.Ground, error) {
	config, err := host.Config()
	if err != nil {
		return service.Ground{}, err
	}

	ground := service.Ground{Defaults: config.MergeDefaults()}
	ground.Machine, err = host.Read(ctx, gpu.Identity)
	if err != nil {
		return ground, err
	}

	held, _, err := registry.LiveLeases(host, ground.Machine)
	if err != nil {
		return ground, err
	}

	ground.In, err = claim.CallerContext(host, ground.Machine, held)

	return ground, err
}
