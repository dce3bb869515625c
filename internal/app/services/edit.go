package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/files"
	"gpuard/internal/host/projectdir"
	"gpuard/internal/text/dotenv"
)

// editLockTimeout is how long to try for the lock of what is wanted, which is held for milliseconds.
const editLockTimeout = 10 * time.Second

// Change is what an up has changed; names of instances in the order of the file.
type Change struct {
	// Begin, or begin anew: new, changed, or ended before.
	Start []string
	Stay  []string // go on as they are
	// Are not in the file any more.
	End []string
}

// Up records that p is wanted, or only the named services and those that they depend on, and starts a supervisor if
// there is none. It returns without waiting: Look and Changes show the progress. The error is a *diagnostic.Many for
// mistakes that only show on this machine.
func (f *Folder) Up(ctx context.Context, p *service.Project, only []string) (*Change, error) {
	for _, name := range only {
		if !slices.ContainsFunc(p.Services, func(s service.Service) bool { return s.Name == name }) {
			return nil, &exit.Usage{Text: fmt.Sprintf("cannot start %s: %s has no such service; it has %s", name, f.file, serviceList(p))}
		}
	}

	ground, err := ReadGround(ctx, f.host)
	var none *gpu.Unavailable
	if err != nil && (!errors.As(err, &none) || !p.NeedsNoGPU()) {
		return nil, err
	}

	ground.Files, err = readEnvFiles(p)
	if err != nil {
		return nil, err
	}

	folder, err := f.createFolder()
	if err != nil {
		return nil, err
	}

	lock, err := folder.LockForEdit(editLockTimeout)
	if err != nil {
		return nil, err
	}

	defer lock.Release()
	ground.Placement, err = folder.ReadPlacement()
	if err != nil {
		return nil, err
	}

	instances, placement, err := service.Expand(p, ground)
	if err != nil {
		return nil, err
	}

	before, err := folder.ReadWanted()
	if err != nil {
		return nil, err
	}

	after := service.Wanted{File: p.File, Name: p.Name, Machine: f.host.Machine, Count: before.Count}
	u := &upDecision{before: before, seen: newStateReader(f.host, folder).readAll(&before), after: &after, change: &Change{Start: []string{}, Stay: []string{}, End: []string{}}}
	for _, i := range instances {
		u.decideInstance(i, len(only) == 0 || isNeeded(p, only, i.Service))
	}

	u.decideRemoved(len(only) > 0)
	if err := folder.SetEnvironment(withoutServiceVar(f.host.Env)); err != nil {
		return nil, err
	}
	if err := folder.SetPlacement(placement); err != nil {
		return nil, err
	}
	if err := folder.SetWanted(after); err != nil {
		return nil, err
	}

	lock.Release()

	return u.change, f.EnsureSupervisor(ctx)
}

func serviceList(p *service.Project) string {
	return strings.Join(serviceNames(p), ", ")
}

// isNeeded reports whether a service is among those named, or one of them depends on it.
func isNeeded(p *service.Project, only []string, name string) bool {
	known := map[string]bool{}
	for queue := slices.Clone(only); len(queue) > 0; queue = queue[1:] {
		if known[queue[0]] {
			continue
		}

		known[queue[0]] = true
		i := slices.IndexFunc(p.Services, func(s service.Service) bool { return s.Name == queue[0] })
		if i < 0 {
			continue
		}

		for _, d := range p.Services[i].After {
			queue = append(queue, d.Service)
		}
	}
	return known[name]
}

// readEnvFiles reads the files of variables.
func readEnvFiles(p *service.Project) (map[string][]service.Pair, error) {
	pairs := map[string][]service.Pair{}
	for _, s := range p.Services {
		for _, path := range s.EnvFiles {
			if _, known := pairs[path]; known {
				continue
			}

			data, err := files.ReadNamed(path, maxFileSize)
			if err != nil {
				return nil, &exit.Usage{Text: fmt.Sprintf("cannot read the env_file of service %s, %s: %v", s.Name, path, err)}
			}

			pairs[path], err = dotenv.ReadVariables(data, path)
			if err != nil {
				return nil, &exit.Usage{Text: err.Error()}
			}
		}
	}
	return pairs, nil
}

// upDecision is one up.
type upDecision struct {
	before service.Wanted
	seen   map[string]service.Seen
	after  *service.Wanted
	change *Change
}

// decideInstance decides about an instance of the file. Unless it is meant it stays as it is.
func (u *upDecision) decideInstance(i service.Instance, meant bool) {
	at := slices.IndexFunc(u.before.Instances, func(old service.Instance) bool { return old.Name == i.Name })
	seen, known := u.seen[i.Name]
	alive := seen.Kept || seen.Orphaned
	if !meant {
		if at >= 0 {
			u.after.Instances = append(u.after.Instances, u.before.Instances[at])
			u.change.Stay = append(u.change.Stay, i.Name)
		}
		return
	}

	if at >= 0 {
		old := u.before.Instances[at]
		i = i.WithRound(old.Round)

		// It has not come to its start yet.
		waits := !alive && (!known || seen.Hash != old.Hash) && old.Refused == ""
		done := seen.Hash == old.Hash && seen.State == service.Done && u.hasLiveInstance()
		if i.Hash == old.Hash && i.Refused == old.Refused && (alive || waits || done) {
			u.after.Instances = append(u.after.Instances, i)
			u.change.Stay = append(u.change.Stay, i.Name)
			return
		}
	}

	u.after.Count++
	u.after.Instances = append(u.after.Instances, i.WithRound(u.after.Count))
	u.change.Start = append(u.change.Start, i.Name)
}

// hasLiveInstance reports whether anything of the project lives: then what is done stays done.
func (u *upDecision) hasLiveInstance() bool { return anyAlive(u.seen) }

// decideRemoved is what is not in the file any more: it ends, unless only some services were meant.
func (u *upDecision) decideRemoved(stays bool) {
	for _, old := range u.before.Instances {
		if slices.ContainsFunc(u.after.Instances, func(i service.Instance) bool { return i.Name == old.Name }) {
			continue
		}
		if stays {
			u.after.Instances = append(u.after.Instances, old)
			u.change.Stay = append(u.change.Stay, old.Name)
		} else {
			u.change.End = append(u.change.End, old.Name)
		}
	}
}

// Down writes down that services, or single instances, are not wanted any more, all without names, and sees to a
// supervisor. now does not leave them the time that they have for their end; it may also follow on a Down without.
func (f *Folder) Down(ctx context.Context, only []string, now bool) error {
	return f.editWanted(ctx, only, func(folder *projectdir.Folder, w *service.Wanted, meant func(name, service string) bool) {
		seen := newStateReader(f.host, folder).readAll(w)
		for name, one := range seen {
			if now && (one.Kept || one.Orphaned) && one.Hash != "" && meant(name, one.Service) {
				// Else it ends in its time.
				_ = folder.RequestEnd(name, one.Hash, true)
			}
		}
		w.Instances = slices.DeleteFunc(w.Instances, func(i service.Instance) bool { return meant(i.Name, i.Service) })
	})
}

// Restart begins services, or single instances, anew that are wanted, all without names, and sees to a supervisor.
func (f *Folder) Restart(ctx context.Context, only []string) error {
	return f.editWanted(ctx, only, func(_ *projectdir.Folder, w *service.Wanted, meant func(name, service string) bool) {
		for n, i := range w.Instances {
			if meant(i.Name, i.Service) {
				w.Count++
				w.Instances[n] = i.WithRound(w.Count)
			}
		}
	})
}

// editWanted changes what is wanted.
func (f *Folder) editWanted(ctx context.Context, only []string, change func(folder *projectdir.Folder, w *service.Wanted, meant func(name, service string) bool)) error {
	folder, err := f.openFolder()
	if err != nil {
		return err
	}

	if folder == nil {
		if len(only) == 0 {
			return nil
		}
		folder, err = f.createFolder()
	}

	if err != nil {
		return err
	}

	lock, err := folder.LockForEdit(editLockTimeout)
	if err != nil {
		return err
	}

	defer lock.Release()
	w, err := folder.ReadWanted()
	if err != nil {
		return err
	}

	for _, name := range only {
		if !slices.ContainsFunc(w.Instances, func(i service.Instance) bool { return i.Service == name || i.Name == name }) && !f.isStillEnding(folder, &w, name) {
			return &exit.Usage{Text: fmt.Sprintf("cannot find service %s: nothing of it is up; see gpuard ps", name)}
		}
	}

	change(folder, &w, func(name, of string) bool {
		return len(only) == 0 || slices.Contains(only, name) || slices.Contains(only, of)
	})

	if err := folder.SetWanted(w); err != nil {
		return err
	}

	lock.Release()

	return f.EnsureSupervisor(ctx)
}

// isStillEnding reports whether something of a service is still about to end.
func (f *Folder) isStillEnding(folder *projectdir.Folder, w *service.Wanted, name string) bool {
	for instance, one := range newStateReader(f.host, folder).readAll(w) {
		if (one.Service == name || instance == name) && (one.Kept || one.Orphaned) {
			return true
		}
	}
	return false
}

// EnsureSupervisor starts a supervisor if there is work for one and none is alive. A caller that waits for a change
// calls it after each ReadView.
func (f *Folder) EnsureSupervisor(ctx context.Context) error {
	folder, err := f.openFolder()
	if err != nil || folder == nil || folder.HasSupervisor() {
		return err
	}

	wanted, err := folder.ReadWanted()
	if err != nil {
		return err
	}

	seen := newStateReader(f.host, folder).readAll(&wanted)
	if len(service.NextActions(wanted.Instances, seen)) == 0 && !anyAlive(seen) {
		return nil
	}

	return f.startSupervisor(ctx, folder)
}

// startSupervisor starts one, and returns when it is at work, or over already.
func (f *Folder) startSupervisor(ctx context.Context, folder *projectdir.Folder) error {
	errs, err := openJournal(folder)
	if err != nil {
		return err
	}

	defer errs.Close() //nolint:errcheck // the supervisor has it
	process, err := daemonize.StartBackground(f.host.Name, withoutServiceVar(f.host.Env), errs, SupervisorFlag, folder.Path)
	if err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() {
		state, err := process.Wait()
		if err == nil && !state.Success() {
			said, _ := os.ReadFile(errs.Name())
			err = fmt.Errorf("cannot keep a supervisor for the services (%s): %s", state, prose.LastLine(string(said)))
		}
		ended <- err
	}()

	for tick := time.NewTicker(2 * time.Millisecond); !folder.HasSupervisor(); {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}

	return nil
}
