package store

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Watcher reports that a lease or a ticket of any user has ended. Close it when done.
type Watcher struct {
	// Has a value after one or more ends that were not reported yet.
	Changed <-chan struct{}

	folder  *Folder
	inotify *sys.Inotify
	changed chan struct{}

	mu     sync.Mutex
	closed bool
	// The watched folders by watch descriptor.
	folders map[int32]*watchedFolder
	// Ends that were reported while the file remains.
	told map[watchedFile]bool
	// Files with a lock that ask polls.
	asking map[watchedFile]bool
	// The time of the latest value in Changed.
	last time.Time
	// Will send one more value.
	later *time.Timer
}

// watchedFolder is a watched folder: leases or tickets, or one user's folder in there.
type watchedFolder struct {
	// Opened with O_PATH; nil for leases and tickets.
	dir  *os.File
	path string
	uid  uint32
	// The suffix of the files with a lock that keeps the entry or ticket alive.
	suffix string
}

// watchedFile is one file by its watch descriptor and name.
type watchedFile struct {
	folder int32
	name   string
}

// minNotifyInterval is the least time between two values of Changed. It limits how often a user who ends many leases
// wakes the waiters.
const minNotifyInterval = 5 * time.Millisecond

// Watch begins to watch this folder and the Others. It does not report what ended before it returned, so read the
// folder after the call. By default a user has 128 inotify instances for all programs (fs.inotify.max_user_instances).
// Where none is free, Watch fails and the caller has to poll.
func (f *Folder) Watch() (*Watcher, error) {
	inotify, err := sys.NewInotify()
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w (limit: sysctl fs.inotify.max_user_instances)", f.Path, err)
	}

	changed := make(chan struct{}, 1)
	w := &Watcher{
		Changed: changed, changed: changed, folder: f, inotify: inotify,
		folders: map[int32]*watchedFolder{}, told: map[watchedFile]bool{}, asking: map[watchedFile]bool{},
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.watchTop(f.Path, "tickets", ticketSuffix)
	for _, path := range append([]string{f.Path}, f.Others...) {
		if terr := w.watchTop(path, "leases", lockSuffix); terr != nil && (path == f.Path || isLocalFault(terr) || errors.Is(terr, unix.ENOSPC)) && err == nil {
			err = terr
		}
	}

	if err != nil {
		_ = w.closeLocked()
		return nil, fmt.Errorf("cannot watch %s: %w", f.Path, err)
	}

	go w.readEvents()

	return w, nil
}

// Close ends the watch. Changed is not closed.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closeLocked()
}

func (w *Watcher) closeLocked() error {
	if !w.closeAll() {
		return nil
	}
	return w.inotify.Close()
}

// Detach ends the watch like Close, but returns its descriptor for another process to close; nil if it is closed
// already. The kernel takes 5 to 60 ms for the last close, also for one by exec: it waits until no processor can still
// see the watches (Linux fs/notify/group.c, fsnotify_destroy_group).
func (w *Watcher) Detach() *os.File {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closeAll() {
		return nil
	}

	// Ends run.
	_ = w.inotify.SetReadDeadline(time.Now())

	return w.inotify.File
}

// closeAll closes everything but the inotify descriptor. It returns false if the watch had ended already.
func (w *Watcher) closeAll() bool {
	if w.closed {
		return false
	}

	w.closed = true

	for _, d := range w.folders {
		d.close()
	}

	if w.later != nil {
		w.later.Stop()
	}

	return true
}

func (w *watchedFolder) close() {
	if w.dir != nil {
		_ = w.dir.Close()
	}
}

// watchTop watches root/sub for new folders of users, and watches the folders in it.
func (w *Watcher) watchTop(root, sub, suffix string) error {
	path := filepath.Join(root, sub)
	fd, err := openIn(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}

	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close() //nolint:errcheck // read only
	if err := w.addWatch(fd, &watchedFolder{path: path, suffix: suffix}, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ATTRIB); err != nil {
		return err
	}

	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}

	for _, name := range names {
		if err := w.watchUser(path, name, suffix); err != nil && (isLocalFault(err) || errors.Is(err, unix.ENOSPC)) {
			return err
		}
	}

	return nil
}

// watchUser watches the folder of one user. It skips names of other things, and refuses a folder of another user than
// its name says.
func (w *Watcher) watchUser(top, name, suffix string) error {
	if _, isUID := parseUIDName(name); !isUID && !isSpaceName(name) {
		return nil
	}

	path := filepath.Join(top, name)
	topFD, err := openIn(unix.AT_FDCWD, top, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}

	defer unix.Close(topFD) //nolint:errcheck // nothing was opened
	fd, err := openIn(topFD, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}

	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	uid, counts := folderOwner(w.folder.ids, name, st.Uid)
	switch {
	case err != nil:
	case !counts:
		err = unix.EPERM
	default:
		err = w.addWatch(fd, &watchedFolder{dir: dir, path: path, uid: uid, suffix: suffix}, unix.IN_CLOSE_WRITE|unix.IN_DELETE)
	}

	if err != nil {
		_ = dir.Close()
	}

	return err
}

// addWatch watches an open folder. By path, a user could direct the watch elsewhere, such as to a file system that does
// not answer.
func (w *Watcher) addWatch(fd int, d *watchedFolder, events uint32) error {
	number, err := w.inotify.Add("/proc/self/fd/"+strconv.Itoa(fd), events|unix.IN_ONLYDIR|unix.IN_EXCL_UNLINK)
	if err != nil {
		return &os.PathError{Op: "watch", Path: d.path, Err: err}
	}

	if old := w.folders[number]; old != nil {
		old.close()
	}

	w.folders[number] = d

	return nil
}

// readEvents reads events until the watch is closed.
func (w *Watcher) readEvents() {
	for {
		events, err := w.inotify.Read()
		if err != nil {
			return
		}

		w.mu.Lock()

		for _, e := range events {
			if !w.closed {
				w.applyEvent(watchedFile{e.Watch, e.Name}, e.What)
			}
		}
		w.mu.Unlock()
	}
}

func (w *Watcher) applyEvent(e watchedFile, what uint32) {
	d := w.folders[e.folder]
	switch {
	case what&unix.IN_Q_OVERFLOW != 0:
		// Events were lost.
		w.told = map[watchedFile]bool{}
		w.rescanUsers()
		w.notifySoon()
	case d == nil:
	case what&unix.IN_IGNORED != 0:
		// The folder is gone, and everything in it.
		d.close()
		delete(w.folders, e.folder)
		w.notifySoon()
	case d.dir == nil:
		// A user's first lease or ticket, which may have ended before the folder was watched.
		if !w.isWatching(filepath.Join(d.path, e.name)) && w.watchUser(d.path, e.name, d.suffix) == nil {
			w.notifySoon()
		}
	case e.name == callName:
		if what&unix.IN_DELETE != 0 {
			w.notifySoon()
		}
	case !strings.HasSuffix(e.name, d.suffix) || strings.HasPrefix(e.name, newPrefix):
	case what&unix.IN_DELETE != 0:
		if !w.told[e] {
			w.notifySoon()
		}
		delete(w.told, e)
	case what&unix.IN_CLOSE_WRITE != 0 && !w.told[e] && !w.asking[e]:
		w.asking[e] = true
		go w.pollLock(e, d)
	}
}

// isWatching reports whether the folder is watched already, and its event is only a change. A new folder can be watched
// by other users only after its mode is widened, which is a second step if the umask of its owner is narrow.
func (w *Watcher) isWatching(path string) bool {
	for _, d := range w.folders {
		if d.path == path {
			return true
		}
	}
	return false
}

// rescanUsers watches users' folders that appeared while events were lost.
func (w *Watcher) rescanUsers() {
	for _, d := range slices.Collect(maps.Values(w.folders)) {
		if d.dir != nil {
			continue
		}
		entries, _ := os.ReadDir(d.path)
		for _, entry := range entries {
			_ = w.watchUser(d.path, entry.Name(), d.suffix)
		}
	}
}

// pollLock polls the lock of a file after its close event. The kernel sends the event just before it drops the lock
// (Linux fs/file_table.c, __fput), and on a busy machine the drop can come later.
func (w *Watcher) pollLock(e watchedFile, d *watchedFolder) {
	for _, pause := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		time.Sleep(pause)
		w.mu.Lock()
		alive := !w.closed && d.isFileLocked(w.folder, e.name)
		if !alive || w.closed || pause == time.Second {
			delete(w.asking, e)
			if !alive && !w.closed {
				w.told[e] = true
				w.notifySoon()
			}
			w.mu.Unlock()

			return
		}
		w.mu.Unlock()
	}
}

func (w *watchedFolder) isFileLocked(f *Folder, name string) bool {
	alive := false
	raw, err := w.dir.SyscallConn()
	if err != nil {
		return false
	}

	_ = raw.Control(func(dir uintptr) {
		fd, err := f.newReader().openRegular(int(dir), name, &w.uid)
		if err != nil {
			return
		}
		alive, _ = isEntryLocked(fd)
		_ = unix.Close(fd)
	})

	return alive
}

// notifySoon sends a value to Changed, now or as soon as spacing allows.
func (w *Watcher) notifySoon() {
	if w.later != nil {
		return
	}
	if wait := minNotifyInterval - time.Since(w.last); wait > 0 {
		w.later = time.AfterFunc(wait, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.later = nil
			w.notifyNow()
		})
		return
	}
	w.notifyNow()
}

func (w *Watcher) notifyNow() {
	w.last = time.Now()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
