package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/job"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
)

// siteState reads gpuard's own folder and what it can promise here. Nothing is made and no lock is taken.
func siteState(ctx context.Context, host *machine.Host) hostinfo.Answer[hostinfo.State] {
	var s hostinfo.State
	path, others, err := host.StateFolder(gpu.Machine{})
	if err != nil {
		return hostinfo.NoAnswer[hostinfo.State](err.Error())
	}

	own, _ := host.Env.Lookup("GPUARD_STATE")
	s.Folder, s.Named = path, own != ""

	for _, o := range others {
		if _, err := os.Lstat(o); err == nil && filepath.Clean(o) != path {
			s.Others = append(s.Others, o)
		}
	}

	if _, warning := store.LocateFolder(host.Run, host.Tmp); own == "" && warning != "" {
		s.Passing = warning
	}

	s.Unshared = host.SharingNote(path)
	if s.Unshared == "" {
		if err := host.CheckShared(path); err != nil {
			s.Unshared = err.Error()
		}
	}

	readStateFolder(host, &s)
	readQuotaLevels(ctx, host, &s)
	means := host.IsolationMeans(job.Cgroup)
	s.Namespace, s.Landlock, s.Cgroup = means.Namespace, means.Landlock, means.Cgroup

	return hostinfo.AnswerOf(s)
}

// readStateFolder reads the state folder, if there is one.
func readStateFolder(host *machine.Host, s *hostinfo.State) {
	info, err := os.Lstat(s.Folder)
	s.Exists = err == nil
	if s.Exists {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && !host.Proc.IDs().Hides(st.Uid) {
			s.Owner = host.Names(st.Uid)
		}
	}

	folder, err := host.Folder(gpu.Machine{}, false)
	switch {
	case err != nil:
		s.Problem = err.Error()
		return
	case folder == nil:
		s.Problem = makeObstacle(host, s.Folder)
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

// makeObstacle says why the folder, which is not there yet, could not be made; "" when it could.
func makeObstacle(host *machine.Host, path string) string {
	const write, search = 2, 1
	parent := filepath.Dir(path)
	if err := syscall.Access(parent, write|search); err != nil {
		return host.FolderError(path, &os.PathError{Op: "cannot make the state folder", Path: path, Err: err}).Error()
	}

	return ""
}

// readQuotaLevels are those of a share's quota, as gpuard run --share would find them.
func readQuotaLevels(ctx context.Context, host *machine.Host, s *hostinfo.State) {
	if launch.CanHold() {
		s.Levels = append(s.Levels, string(job.Watch))
	} else {
		s.Watch = "this process adopts orphans (PID 1 of a container, or a subreaper)"
	}
	switch _, err := claim.MPSControl(ctx, host); {
	case err != nil:
		s.MPS = err.Error()
	case s.Watch != "":
		s.MPS = s.Watch
	default:
		s.Levels = append(s.Levels, string(job.MPS))
	}
}
