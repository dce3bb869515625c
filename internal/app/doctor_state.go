package app

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/job"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// siteState reads gpuard's own folder and what it can promise here. Nothing is made and no lock is taken.
func (a *App) siteState(ctx context.Context) hostinfo.Answer[hostinfo.State] {
	var s hostinfo.State
	path, others, err := a.place(gpu.Machine{})
	if err != nil {
		return hostinfo.Failed[hostinfo.State](err.Error())
	}
	own, _ := a.Env.Lookup("GPUARD_STATE")
	s.Folder, s.Named = path, own != ""
	for _, o := range others {
		if _, err := os.Lstat(o); err == nil && filepath.Clean(o) != path {
			s.Others = append(s.Others, o)
		}
	}
	if _, warning := store.Locate(a.Run, a.Tmp); own == "" && warning != "" {
		s.Passing = warning
	}
	if s.Unshared = a.doubt(path); s.Unshared == "" {
		if err := a.shared(path); err != nil {
			s.Unshared = err.Error()
		}
	}
	a.folderOf(&s)
	a.levels(ctx, &s)
	return hostinfo.Read(s)
}

// folderOf looks into the folder, where there is one.
func (a *App) folderOf(s *hostinfo.State) {
	info, err := os.Lstat(s.Folder)
	if s.Exists = err == nil; s.Exists {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && !a.Proc.IDs().Hides(st.Uid) {
			s.Owner = a.Names(st.Uid)
		}
	}
	folder, err := a.folder(gpu.Machine{}, false)
	switch {
	case err != nil:
		s.Problem = err.Error()
		return
	case folder == nil:
		s.Problem = a.unmakeable(s.Folder)
		return
	}
	defer folder.Close() //nolint:errcheck // read only
	leases, problems := folder.Leases()
	tickets, more := folder.Tickets()
	s.Leases, s.Tickets = len(leases), len(tickets)
	for _, p := range slices.Concat(problems, more) {
		s.Entries = append(s.Entries, p.Path+": "+p.Text)
	}
}

// unmakeable says why the folder, which is not there yet, could not be made; "" when it could.
func (a *App) unmakeable(path string) string {
	const write, search = 2, 1
	parent := filepath.Dir(path)
	if err := syscall.Access(parent, write|search); err != nil {
		return a.elsewhere(path, &os.PathError{Op: "cannot make the state folder", Path: path, Err: err}).Error()
	}
	return ""
}

// levels are those of a share's quota, as gpuard run --share would find them.
func (a *App) levels(ctx context.Context, s *hostinfo.State) {
	if launch.CanHold() {
		s.Levels = append(s.Levels, string(job.Watch))
	} else {
		s.Watch = "this process adopts orphans (PID 1 of a container, or a subreaper)"
	}
	switch _, err := a.control(ctx); {
	case err != nil:
		s.MPS = err.Error()
	case s.Watch != "":
		s.MPS = s.Watch
	default:
		s.Levels = append(s.Levels, string(job.MPS))
	}
}
