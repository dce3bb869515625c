package app

import (
	"fmt"
	"path/filepath"

	"errors"
	"os"
	"slices"
	"syscall"

	"gpuard/internal/core/space"
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

// unprotected says that a state folder of an ordinary user protects nobody from that user.
func (a *App) unprotected(path string, owner uint32) string {
	if !a.hardware() || owner == 0 || a.Proc.IDs().Hides(owner) { // it may be root
		return ""
	}
	remedy := "to have root own a better one, type: " + store.AsRoot()
	if own, _ := a.Env.Lookup("GPUARD_STATE"); own != "" {
		remedy = "leave GPUARD_STATE unset, or let root make the folder that it names"
	}
	return fmt.Sprintf("the user %s owns the lease folder %s and could remove leases; %s", a.Names(owner), path, remedy)
}

// elsewhere ends an error of the file system with what to do. Another folder is good advice for an invented machine only:
// leases of real devices in a folder of one's own would be seen by nobody else.
func (a *App) elsewhere(path string, err error) error {
	mendable := slices.ContainsFunc([]error{os.ErrPermission, os.ErrNotExist, syscall.ENOTDIR, syscall.EROFS, syscall.ELOOP},
		func(e error) bool { return errors.Is(err, e) })
	switch {
	case !mendable:
		return err
	case !a.hardware():
		return fmt.Errorf("%w; set GPUARD_STATE to a folder you can write", err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w; make %s first, for everybody", err, filepath.Dir(path))
	}
	return fmt.Errorf("%w; no other folder will do, because everybody's leases of these GPUs must lie in one: ask %s to mend it", err, a.keeper(path))
}

// keeper is who can change the access to path: the owner of it, or of the nearest folder above it that can be looked at.
func (a *App) keeper(path string) string {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		if err != nil && path != filepath.Dir(path) {
			continue
		}
		if err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && !a.Proc.IDs().Hides(st.Uid) {
				return fmt.Sprintf("the user %s or root (%s)", a.Names(st.Uid), path)
			}
		}
		return "the administrator"
	}
}
