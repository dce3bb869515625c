package app

import (
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/core/space"
	"gpuard/internal/host/files"
	"gpuard/internal/host/store"
)

// shared refuses a place where leases of other users cannot be seen, or not be told from the caller's own: in a
// container or with a private /run the same GPU would be leased twice.
func (a *App) shared(path string) error {
	if err := store.Anonymous(); err != nil || a.PrivateState {
		return err
	}
	sight, why, err := a.sight(path)
	if err != nil || sight != space.Private {
		return err
	}
	return fmt.Errorf("cannot lease a GPU here: %s, and its leases in %s would not be seen outside; mount the host's %[2]s here, "+
		"or say --private-state if nobody else uses these GPUs", why, path)
}

// doubt says that it cannot be known whether others see the leases, "" where it can.
func (a *App) doubt(path string) string {
	if !a.hardware() || a.PrivateState {
		return ""
	}
	if sight, _, err := a.sight(path); err != nil || sight != space.Unclear {
		return ""
	}
	return fmt.Sprintf("cannot tell whether leases in %s are seen outside of this mount namespace; if they are not, GPUs are given away "+
		"twice: mount the host's %[1]s here, or say --private-state if nobody else uses these GPUs", path)
}

// sight says whether the machine's other users see the folder path. A mount at the folder itself was made on purpose.
func (a *App) sight(path string) (s space.Sight, why string, err error) {
	initial, err := a.Proc.InitialPIDNamespace()
	switch {
	case err != nil:
		return space.Unclear, "", err
	case !initial && a.wsl():
		return space.Common, "", nil
	case !initial:
		if mounted, err := a.Proc.MountPoint(path); err == nil && mounted {
			return space.Common, "", nil
		}
		return space.Private, "this is a container or a private PID namespace", nil
	}
	s, why, err = a.Proc.Sight(path)
	if s == space.Unclear && why != "" && a.siteContainer() != "" {
		s = space.Private
	}
	return s, why, err
}

// wsl reports whether this is a Linux of Windows' subsystem, and no container in it: each of them has its own PID and
// mount namespace, and is a machine of its own (microsoft/WSL issue 12115, microsoft/wslg issue 919).
func (a *App) wsl() bool {
	release, err := files.Read(a.below("/proc/sys/kernel/osrelease"))
	first, ferr := a.Proc.Stat(1)
	return err == nil && ferr == nil && strings.Contains(strings.ToLower(string(release.Content)), "microsoft") &&
		(first.Comm == "systemd" || strings.HasPrefix(first.Comm, "init")) && files.Is(filepath.Join(a.Run, "WSL")) &&
		a.siteContainer() == ""
}
