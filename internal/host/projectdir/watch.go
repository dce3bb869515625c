package projectdir

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Watcher reports changes of a project. Close it when done.
type Watcher struct {
	// Has a value after one or more changes that were not reported yet.
	Changed <-chan struct{}

	folder *Folder
	// nil if no instance was free.
	inotify *sys.Inotify
	changed chan struct{}
	stop    context.CancelFunc
}

// pollInterval is the time between two values of Changed without inotify: by default a user has 128 inotify instances
// for all programs (fs.inotify.max_user_instances).
const pollInterval = time.Second

// Watch begins to watch the project, or only one instance of it. It does not report changes before it returned, so read
// the files after the call.
func (f *Folder) Watch(only string) (*Watcher, error) {
	changed := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(context.Background())
	w := &Watcher{Changed: changed, changed: changed, folder: f, stop: stop}
	var err error
	w.inotify, err = sys.NewInotify()
	if err != nil {
		go w.notifyAtIntervals(ctx)
		return w, nil //nolint:nilerr // no inotify instance is free, so beat reports a change at intervals
	}

	if only != "" {
		err = w.addWatch(f.instancePath(only, ""))
	} else {
		err = w.addProject()
	}

	if err != nil {
		stop()
		_ = w.inotify.Close()
		return nil, fmt.Errorf("cannot watch %s: %w", f.Path, err)
	}

	go w.readEvents(ctx)

	return w, nil
}

// addProject watches the project and all of its instances.
func (w *Watcher) addProject() error {
	err := w.addWatch(w.folder.Path)
	if err != nil {
		return err
	}

	err = w.addWatch(w.folder.filePath(instancesFolder))
	if err != nil {
		return err
	}

	for _, name := range w.folder.Instances() {
		// It may be gone already.
		_ = w.addWatch(w.folder.instancePath(name, ""))
	}

	return nil
}

// Close ends the watch. Changed is not closed.
func (w *Watcher) Close() {
	w.stop()
	if w.inotify != nil {
		_ = w.inotify.Close()
	}
}

// notifyAtIntervals sends a value at intervals, in place of events of the kernel.
func (w *Watcher) notifyAtIntervals(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.notifyChanged()
		}
	}
}

func (w *Watcher) addWatch(dir string) error {
	const events = unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	_, err := w.inotify.Add(dir, events)
	return err
}

// readEvents reads events until the watch is closed.
func (w *Watcher) readEvents(ctx context.Context) {
	for {
		events, err := w.inotify.Read()
		if err != nil {
			return
		}

		told, locks := false, false
		for _, e := range events {
			tells, lock := w.judgeEvent(e.Name, e.What)
			told, locks = told || tells, locks || lock
		}

		if told {
			w.notifyChanged()
		}

		if locks {
			w.notifyRepeatedly(ctx)
		}
	}
}

// judgeEvent reports whether an event is a change, and whether it announces the end of a lock.
func (w *Watcher) judgeEvent(name string, what uint32) (tells, lock bool) {
	switch {
	case what&unix.IN_CREATE != 0 && what&unix.IN_ISDIR != 0:
		// A new instance, which may have files already.
		for _, name := range w.folder.Instances() {
			_ = w.addWatch(w.folder.instancePath(name, ""))
		}
		return true, true
	case what&unix.IN_CREATE != 0:
		return false, false
	case what&unix.IN_CLOSE_WRITE != 0:
		lock = slices.Contains([]string{supervisorLock, keeperLock, lifeLock}, name)
		return lock, lock
	}
	return true, false
}

// notifyRepeatedly sends more values: the kernel announces the end of a lock just before it drops it (Linux
// fs/file_table.c, __fput), and on a busy machine the drop can come later.
func (w *Watcher) notifyRepeatedly(ctx context.Context) {
	go func() {
		for _, pause := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				w.notifyChanged()
			}
		}
	}()
}

func (w *Watcher) notifyChanged() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
