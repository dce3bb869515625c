package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/service"
	"gpuard/internal/host/project"
	"gpuard/internal/host/sys"
)

// folderOfProjects is the folder below which the folders of this user's projects lie. With create the one above it is
// made where it is missing.
func folderOfProjects(host *machine.Host, create bool) (path string, err error) {
	own, _ := host.Env.Lookup("GPUARD_STATE")
	home := host.StateHome()
	switch {
	case own != "" && !filepath.IsAbs(own):
		return "", exit.Usagef("cannot use GPUARD_STATE=%s: it must be an absolute path", own)
	case own != "":
		path = filepath.Join(own, fmt.Sprint("projects-", os.Geteuid()))
	case home != "":
		path = filepath.Join(home, "projects")
	default:
		return "", exit.Usagef("cannot find a folder for the state of projects: set HOME or GPUARD_STATE")
	}
	if create {
		err = host.MakeParents(filepath.Dir(path))
	}
	if own != "" && err == nil {
		err = guarded(own)
	}
	return path, err
}

// guarded refuses a folder that another user could exchange for another: commands are started from what lies in it.
func guarded(own string) error {
	err := sys.Guarded(own)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("cannot keep projects in GPUARD_STATE=%s: %w; set it to a folder of your own, or unset it", own, err)
}

// Unhealthy returns, by lease, why the caller's services that are unhealthy are so. What cannot be read is left out.
func Unhealthy(host *machine.Host) map[string]string {
	why := map[string]string{}
	top, err := folderOfProjects(host, false)
	if err != nil {
		return why
	}
	boot, _ := host.Proc.BootID()
	entries, _ := os.ReadDir(top)
	for _, entry := range entries {
		folder, err := project.Open(filepath.Join(top, entry.Name()))
		if err != nil {
			continue
		}
		for _, name := range folder.Instances() {
			r, found := folder.Record(name)
			if found && r.Boot == boot && r.Lease != "" && r.Healthy != nil && !*r.Healthy {
				why[r.Lease] = r.Why
			}
		}
	}
	return why
}

// Ground is the machine as a project finds it, with what this caller may see of it. If no device can be read, the error
// is a *gpu.Unavailable, and the ground is that of a project without GPUs.
func Ground(ctx context.Context, host *machine.Host) (service.Ground, error) {
	config, err := host.Config()
	if err != nil {
		return service.Ground{}, err
	}
	ground := service.Ground{Defaults: config.Defaults()}
	if ground.Machine, err = host.Read(ctx, gpu.Identity); err != nil {
		return ground, err
	}
	held, _, err := registry.Leases(host, ground.Machine)
	if err == nil {
		ground.In, err = claim.Placing(host, ground.Machine, held)
	}
	return ground, err
}
