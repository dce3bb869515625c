package machine

import (
	"cmp"
	"fmt"
	"path/filepath"

	"errors"
	"os"
	"slices"
	"syscall"

	"gpuard/internal/core/space"
	"gpuard/internal/host/store"
)

// CheckShared refuses a place where leases of other users cannot be seen, or not be told from the caller's own: in a
// container or with a private /run the same GPU would be leased twice.
func (h *Host) CheckShared(path string) error {
	if err := h.Proc.CheckClock(); err != nil {
		return fmt.Errorf("cannot lease a GPU here: %w", err)
	}
	if err := store.CheckUserKnown(); err != nil || h.PrivateState {
		return err
	}

	seen, err := h.sightOf(path)
	if err != nil || seen.Sight != space.Private {
		return err
	}

	return fmt.Errorf("cannot lease a GPU here: %s, and its leases in %s would not be seen outside; mount the host's %s here "+
		"(that folder itself: whose %s this is does not show), or use --private-state if no other user uses these GPUs", seen.why, path, seen.missing, filepath.Dir(seen.missing))
}

// SharingNote says that it cannot be known whether others see the leases, "" where it can.
func (h *Host) SharingNote(path string) string {
	if !h.IsHardware() || h.PrivateState {
		return ""
	}
	if seen, err := h.sightOf(path); err != nil || seen.Sight != space.Unclear {
		return ""
	}
	return fmt.Sprintf("cannot tell whether leases in %s are seen outside of this mount namespace; if they are not, GPUs are given away "+
		"twice: mount the host's %[1]s here, or use --private-state if no other user uses these GPUs", path)
}

// sharedSight is whether the machine's other users see a folder of leases.
type sharedSight struct {
	space.Sight
	why string // they do not
	// The folder of theirs that has to be mounted then.
	missing string
}

// sightOf says whether the machine's other users see the folder path.
func (h *Host) sightOf(path string) (sharedSight, error) {
	s := sharedSight{missing: path}
	initial, err := h.Proc.InitialPIDNamespace()
	switch {
	case err != nil:
		return s, err
	case !initial && h.isWSL():
		s.Sight = space.Common
		return s, nil
	case !initial:
		if sight, mounted := h.Proc.MountSight(path); mounted {
			s.Sight = sight
			return s, nil
		}
		s.Sight, s.why = space.Private, "this is a container or a private PID namespace"
		return s, nil
	}

	s.Sight, s.why, err = h.Proc.FolderSight(path)
	if err == nil && s.Sight == space.Common && h.lacksBetter(path) {
		var missing string
		s.Sight, s.why, missing, err = h.Proc.ChoiceSight(path, h.Run, func(root string) string {
			chosen, _ := store.LocateFolder(filepath.Join(root, h.Run), filepath.Join(root, h.Tmp))
			return chosen
		})
		s.missing = cmp.Or(missing, path)
	}

	if s.Sight == space.Unclear && s.why != "" && h.Container() != "" {
		s.Sight = space.Private
	}

	return s, err
}

// lacksBetter reports whether path was chosen because a better place for leases is missing here.
func (h *Host) lacksBetter(path string) bool {
	own, _ := h.Env.Lookup("GPUARD_STATE")
	return own == "" && slices.Index(store.CandidateFolders(h.Run, h.Tmp), path) > 0
}

// OwnerNote warns that the user who owns the state folder can remove leases; "" if root owns it.
func (h *Host) OwnerNote(path string, owner uint32) string {
	if !h.IsHardware() || owner == 0 || h.Proc.IDs().Hides(owner) {
		// It may be root.
		return ""
	}
	remedy := "to have root own a better one, type: " + store.SetupCommand()
	if own, _ := h.Env.Lookup("GPUARD_STATE"); own != "" {
		remedy = "leave GPUARD_STATE unset, or let root make the folder that it names"
	}

	return fmt.Sprintf("the user %s owns the lease folder %s and could remove leases; %s", h.Names(owner), path, remedy)
}

// FolderError adds to an error of the file system what to do. Only for an invented machine is that another folder:
// leases of real devices in a private folder would be invisible to other users.
func (h *Host) FolderError(path string, err error) error {
	mendable := slices.ContainsFunc([]error{os.ErrPermission, os.ErrNotExist, syscall.ENOTDIR, syscall.EROFS, syscall.ELOOP},
		func(e error) bool { return errors.Is(err, e) })
	switch {
	case !mendable:
		return err
	case !h.IsHardware():
		return fmt.Errorf("%w; set GPUARD_STATE to a folder you can write", err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w; make %s first, for all users", err, filepath.Dir(path))
	}
	return fmt.Errorf("%w; all leases of these GPUs must be in one folder, so no other one will do: ask %s to mend it", err, h.accessOwner(path))
}

// accessOwner names the user who can change the access to path: the owner of it, or of the nearest existing folder
// above it.
func (h *Host) accessOwner(path string) string {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		if err != nil && path != filepath.Dir(path) {
			continue
		}
		if err != nil {
			return "the administrator"
		}

		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid == 0 || h.Proc.IDs().Hides(st.Uid) {
			return "the administrator"
		}

		return fmt.Sprintf("the user %s or root (%s)", h.Names(st.Uid), path)
	}
}
