package machine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/ledger"
	"gpuard/internal/host/quotawatch"
	"gpuard/internal/host/store"
	"gpuard/internal/host/sys"
)

// Each lease that has ended leaves a line in a file of its owner: about 400 bytes, so some 20,000 leases.
const (
	endedFile     = "leases-ended"
	endedSize     = 8 << 20
	historyFolder = "history" // of DurablePath
)

// UsersFolder is where each user has a folder named by the uid, on a machine that root has set up. All users may make
// one there, and none can change another's: its mode is UsersMode.
const (
	UsersFolder = "var/lib/gpuard/users"
	UsersMode   = 0o1777
)

// NoteEnds has a line written for each lease that this process ends in the folder, or finds dead there. A line that
// cannot be written is lost without a word: the lease has ended all the same.
func (h *Host) NoteEnds(folder *store.Folder) {
	folder.Ended = func(list []store.EndedLease) {
		path := h.endedPath(folder.Path)
		if _, err := os.Stat(filepath.Join(folder.Path, "leases")); err != nil || !h.hasBaseFolder() {
			// What was removed meanwhile is not made again.
			path = ""
		}

		for _, e := range list {
			if path == "" || e.Lease.Parent != "" || e.Lease.Unreadable {
				// A part of another lease has that one's devices.
				continue
			}

			if e.Lease.UID == uint32(os.Geteuid()) { //nolint:gosec // a uid
				used := h.MeasuredUse(folder, e.Lease.ID, e.Lease.Since)
				e.Lease.Peak, e.Lease.Load, e.Lease.Seen = max(e.Lease.Peak, used.Peak), used.MeanLoad(), used.Seen
			}

			line, err := json.Marshal(trend.NewEndedLease(e.Lease, h.Names(e.Lease.UID), e.At, e.Seen))
			if err != nil {
				continue
			}

			_ = ledger.AppendLine(path, line, endedSize)
		}
	}
}

// SampleInterval is the time between two measurements of what a lease uses. One that lasts no longer is not measured.
func (h *Host) SampleInterval() time.Duration { return cmp.Or(h.Times.Sample, 10*time.Second) }

// MeasuredUse is what was measured of a lease of the caller since it began.
func (h *Host) MeasuredUse(folder *store.Folder, lease string, since time.Time) (used quota.Measured) {
	if time.Since(since) < h.SampleInterval() {
		return used
	}

	file, err := folder.MeasureFile(false)
	if err != nil {
		// Nothing was measured.
		return used
	}

	locks := quotawatch.NewLocks(file)
	defer locks.Close()
	used = locks.Used()[lease]
	if used.Until.Before(since) {
		// Another lease had that name before.
		return quota.Measured{}
	}

	return used
}

// endedPath is the file for the leases of a state folder; "" nowhere. Those of invented machines have files of their
// own.
func (h *Host) endedPath(leases string) string {
	folder := h.endedFolder()
	if folder == "" {
		return ""
	}

	name := endedFile
	if machine := store.InventedName(leases); machine != "" {
		name += "-" + machine
	}

	return filepath.Join(folder, name)
}

// endedFolder is beside the queue of this user; on a machine that root has set up, it is where root finds that of all.
func (h *Host) endedFolder() string {
	own, _ := h.Env.Lookup("GPUARD_STATE")
	if users := h.usersFolder(); users != "" && own == "" {
		return filepath.Join(users, fmt.Sprint(os.Geteuid()))
	}

	path, err := h.DurablePath(historyFolder)
	if err != nil || h.isShortLived(filepath.Dir(path)) {
		return ""
	}

	return path
}

// isShortLived reports whether this host is a container that has no folder yet. One should not be made: each container
// has a PID namespace of its own, and its folder would stay in the home when it has ended. Where something else is
// kept, a queue or a project, there is one anyway.
func (h *Host) isShortLived(folder string) bool {
	if h.ownNamespace() == "" {
		return false
	}
	_, err := os.Stat(folder)
	return errors.Is(err, os.ErrNotExist)
}

// hasBaseFolder reports whether the folder is there below which a user's files lie.
func (h *Host) hasBaseFolder() bool {
	for _, name := range []string{"GPUARD_STATE", "XDG_STATE_HOME", "HOME"} {
		if base, _ := h.Env.Lookup(name); filepath.IsAbs(base) {
			info, err := os.Stat(base)

			// It may be made.
			return err == nil && info.IsDir() || name == "XDG_STATE_HOME"
		}
	}
	return true
}

// usersFolder is UsersFolder if it is root's, and no other user has taken the caller's place in it; else "".
func (h *Host) usersFolder() string {
	path := filepath.Join("/", h.Root, UsersFolder)
	dir, err := sys.OpenDir(path)
	if err != nil {
		return ""
	}

	defer dir.Close() //nolint:errcheck // looked at only
	if st, err := dir.Status(); err != nil || st.Uid != 0 {
		return ""
	}
	if st, err := dir.Lstat(fmt.Sprint(os.Geteuid())); err == nil && int(st.Uid) != os.Geteuid() {
		return ""
	}

	return path
}

// EndedNote says why this user's leases leave no lines, "" where they do.
func (h *Host) EndedNote() string {
	folder := h.endedFolder()
	if path, err := h.DurablePath(historyFolder); folder == "" && err == nil && h.isShortLived(filepath.Dir(path)) {
		return "your leases leave no lines for gpuard history: this is a PID namespace of its own (a container), of which nothing is kept"
	}
	if folder == "" {
		return ""
	}

	dir, err := sys.OpenOwnFolder(folder, 0)
	switch {
	case err == nil:
		_ = dir.Close()
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("your leases leave no lines for gpuard history: %v", h.AdviseOwn(err))
	}

	return ""
}

// EndedLeases are the leases of this user that have ended, of which there are lines; for root those of all users, as
// far as their lines lie where root finds them.
func (h *Host) EndedLeases(ctx context.Context) ([]trend.EndedLease, error) {
	var m gpu.Machine
	if !h.IsHardware() {
		var err error
		m, err = h.Read(ctx, gpu.Identity)
		if err != nil {
			return nil, err
		}
	}

	leases, _, err := h.StateFolder(m)
	if err != nil {
		return nil, err
	}

	path := h.endedPath(leases)
	if path == "" {
		return nil, nil
	}

	own := uint32(os.Geteuid()) //nolint:gosec // a uid
	list := h.readEnded(filepath.Dir(path), filepath.Base(path), own)
	users := h.usersFolder()
	if users != "" && strings.HasPrefix(path, users+"/") {
		// And those from before root has set the machine up.
		if before, err := h.DurablePath(historyFolder); err == nil {
			list = append(list, h.readEnded(before, filepath.Base(path), own)...)
		}
	}

	if own != 0 || users == "" || !h.IsHardware() {
		return list, nil
	}

	entries, err := os.ReadDir(users)
	if err != nil {
		return list, nil //nolint:nilerr // it was there a moment ago
	}

	for _, e := range entries {
		if uid, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && uid != 0 {
			list = slices.Concat(list, h.readEnded(filepath.Join(users, e.Name()), endedFile, uint32(uid)))
		}
	}

	return list, nil
}

// readEnded reads the lines of one user. Only root's may be about other users.
func (h *Host) readEnded(folder, name string, uid uint32) (list []trend.EndedLease) {
	text, err := ledger.ReadText(folder, name, uid, 2*endedSize)
	if err != nil {
		// None, or another user's.
		return nil
	}

	user := h.Names(uid)
	for line := range bytes.Lines(text) {
		var e trend.EndedLease
		if json.Unmarshal(line, &e) != nil || e.Lease == "" {
			// Cut by a full disk or a killed process.
			continue
		}
		if uid != 0 || e.UID == nil {
			e.UID, e.User = &uid, user
		}
		list = append(list, e)
	}

	return list
}
