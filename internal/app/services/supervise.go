package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/service"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/projectdir"
	"gpuard/internal/host/sys"
)

// SupervisorFlag is the first argument of a supervisor; the folder of the project follows.
const SupervisorFlag = "project-supervise"

// SuperviseProject is the life of a project's supervisor. It ends when there is nothing to do, or another one lives.
// Its own death costs nothing: the keepers go on, and the next supervisor finds them by their locks.
func SuperviseProject(ctx context.Context, host *machine.Host, dir string) error {
	if err := daemonize.BeginBackground("gpuard"); err != nil {
		return err
	}

	folder, err := projectdir.Open(dir)
	if err != nil {
		return err
	}

	lock, err := folder.LockSupervisor()
	if err != nil || lock == nil {
		return err
	}

	watcher, err := folder.Watch("")
	if err != nil {
		return err
	}

	defer watcher.Close()
	s := &supervisor{host: host, folder: folder, lock: lock, keepers: map[string]*startedKeeper{}, ended: make(chan *startedKeeper), pauses: map[string]*keeperPause{}}
	for {
		over, err := s.superviseOnce()
		if over || err != nil {
			return err
		}
		if err := s.awaitChange(ctx, watcher); err != nil {
			return err
		}
	}
}

// supervisor brings about what is wanted.
type supervisor struct {
	host   *machine.Host
	folder *projectdir.Folder
	lock   *projectdir.Lock
	// That it started and that live.
	keepers map[string]*startedKeeper
	ended   chan *startedKeeper
	pauses  map[string]*keeperPause
	// The last round failed: on a disk that is full, nothing may change that would wake it.
	failed bool
}

// startedKeeper is a keeper that this supervisor started.
type startedKeeper struct {
	name, hash string
	began      time.Time
}

// keeperPause delays the next keeper of an instance whose keepers end without a result.
type keeperPause struct {
	length time.Duration
	until  time.Time
}

const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	// After a step that did not succeed.
	retryPause = 2 * time.Second
)

// awaitChange returns when something changed.
func (s *supervisor) awaitChange(ctx context.Context, w *projectdir.Watcher) error {
	var timer <-chan time.Time
	soonest := time.Duration(0)
	for _, p := range s.pauses {
		if left := time.Until(p.until); left > 0 && (soonest == 0 || left < soonest) {
			soonest = left
		}
	}

	if s.failed && (soonest == 0 || soonest > retryPause) {
		soonest = retryPause
	}

	if soonest > 0 {
		timer = time.After(soonest)
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case k := <-s.ended:
		s.recordKeeperEnd(k)
	case <-w.Changed:
	case <-timer:
	}

	return nil
}

// recordKeeperEnd records the end of a keeper. If it has changed nothing, the next one starts after a pause.
func (s *supervisor) recordKeeperEnd(k *startedKeeper) {
	delete(s.keepers, k.name)
	r, found := s.folder.ReadRecord(k.name)
	if found && (r.Hash == k.hash || k.hash == "") && isOver(r.State) {
		delete(s.pauses, k.name)
		return
	}

	p := s.pauses[k.name]
	if p == nil || time.Since(k.began) > time.Minute {
		p = &keeperPause{length: firstPause}
	} else {
		p.length = min(2*p.length, longestPause)
	}

	p.until = time.Now().Add(p.length)
	s.pauses[k.name] = p
}

// superviseOnce does what can be done now, and reports whether nothing will be to do any more.
func (s *supervisor) superviseOnce() (over bool, err error) {
	wanted, err := s.folder.ReadWanted()
	if err != nil {
		return true, err
	}

	seen := s.readState(&wanted)
	actions := service.NextActions(wanted.Instances, seen)
	s.failed = false

	for _, act := range actions {
		if err := s.applyAction(act, &wanted, seen[act.Instance]); err != nil {
			s.failed = true
			s.writeJournal(err.Error())
		}
	}

	if len(actions) > 0 || len(s.keepers) > 0 || anyAlive(seen) {
		return false, nil
	}

	return s.releaseIfIdle()
}

func anyAlive(seen map[string]service.Seen) bool {
	for _, one := range seen {
		if one.Kept || one.Orphaned {
			return true
		}
	}
	return false
}

// releaseIfIdle ends this supervisor, unless a command has changed what is wanted meanwhile: the command then checks
// for a supervisor, and finds none, or one that has seen the change.
func (s *supervisor) releaseIfIdle() (bool, error) {
	lock, err := s.folder.LockForEdit(editLockTimeout)
	if errors.Is(err, os.ErrNotExist) {
		// The folder was removed.
		return true, nil
	}
	if err != nil {
		return true, err
	}

	defer lock.Release()
	wanted, err := s.folder.ReadWanted()
	if err != nil {
		return true, err
	}

	seen := s.readState(&wanted)
	if len(service.NextActions(wanted.Instances, seen)) > 0 || anyAlive(seen) {
		return false, nil
	}

	s.lock.Release()

	return true, nil
}

// readState is the state of the instances. A keeper that has just been started counts before it has its lock.
func (s *supervisor) readState(wanted *service.Wanted) map[string]service.Seen {
	l := newStateReader(s.host, s.folder)
	seen := l.readAll(wanted)
	for name, k := range s.keepers {
		one := seen[name]
		one.Kept = true
		if one.Hash != k.hash || isOver(one.State) {
			// It has not written yet.
			one.Record = service.Record{Last: one.Last}
		}
		seen[name] = one
	}

	return seen
}

// applyAction starts or ends one instance.
func (s *supervisor) applyAction(act service.Action, wanted *service.Wanted, seen service.Seen) error {
	if act.Do == service.End && seen.Kept {
		if hash, _ := s.folder.RequestedEnd(act.Instance); hash == seen.Hash {
			return nil
		}
		return s.folder.RequestEnd(act.Instance, seen.Hash, false)
	}

	if p := s.pauses[act.Instance]; p != nil && time.Until(p.until) > 0 || s.keepers[act.Instance] != nil {
		return nil
	}

	// Of what has lost its keeper and shall end, nothing is started.
	hash := ""
	if act.Do == service.Start {
		hash = wanted.Instances[slices.IndexFunc(wanted.Instances, func(i service.Instance) bool { return i.Name == act.Instance })].Hash
	}

	return s.startKeeper(act.Instance, hash, wanted.Machine)
}

// startKeeper starts a keeper, without a hash one that only ends what is left.
func (s *supervisor) startKeeper(name, hash, machine string) error {
	env, err := s.folder.ReadEnvironment()
	if err != nil {
		return err
	}

	text, err := json.Marshal(KeeperOrders{Instance: name, Hash: hash, Machine: []byte(machine)})
	if err != nil {
		return err
	}

	errs, err := s.openErrorLog()
	if err != nil {
		return err
	}

	defer errs.Close() //nolint:errcheck // the keeper has it
	k := &startedKeeper{name, hash, time.Now()}
	process, err := daemonize.StartBackground(s.host.Name, env, errs, KeeperFlag, s.folder.Path, string(text))
	if err != nil {
		s.recordKeeperEnd(k)
		return err
	}

	s.keepers[name] = k
	go func() {
		_, _ = process.Wait()
		s.ended <- k
	}()

	return nil
}

// logOf is the log that an instance has by its file, "" for none.
func logOf(i *service.Instance) string {
	for _, flag := range slices.Backward(i.Flags) {
		if path, ok := strings.CutPrefix(flag, "--log="); ok {
			if !filepath.IsAbs(path) {
				path = filepath.Join(i.WorkDir, path)
			}
			return path
		}
	}
	return ""
}

// openErrorLog is the file for errors of supervisors and keepers that have no place in a record. Its size is limited.
func (s *supervisor) openErrorLog() (*os.File, error) { return openJournal(s.folder) }

func (s *supervisor) writeJournal(text string) {
	file, err := s.openErrorLog()
	if err != nil {
		return
	}
	defer file.Close() //nolint:errcheck // no one could read an error here
	fmt.Fprintln(file, time.Now().Format(time.RFC3339)+" supervisor: "+text)
}

// openJournal begins it anew when it is large.
func openJournal(folder *projectdir.Folder) (*os.File, error) {
	path := filepath.Join(folder.Path, "supervisor.log")
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	if info, err := os.Lstat(path); err == nil && info.Size() > 1<<20 {
		flags |= os.O_TRUNC
	}

	return sys.OpenFile(path, flags, 0o600)
}
