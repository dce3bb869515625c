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

// Watcher tells when a lease or a ticket of anybody has ended. Close it when done.
type Watcher struct {
	Changed <-chan struct{} // has a value after one or more ends that were not told yet

	folder  *Folder
	inotify *sys.Inotify
	changed chan struct{}

	mu      sync.Mutex
	closed  bool
	folders map[int32]*watched // by watch descriptor
	told    map[ended]bool     // ends that were told and whose file is still there
	asking  map[ended]bool     // files whose lock is being asked for
	last    time.Time          // of the latest value in Changed
	later   *time.Timer        // one more is on its way
}

// watched is a folder: the one of all users, or of one.
type watched struct {
	dir    *os.File // opened without reading, or nil for the folder of all users
	path   string
	uid    uint32
	suffix string // of the files that carry a life
}

// ended is one file by its watch descriptor and name.
type ended struct {
	folder int32
	name   string
}

// spacing is the least time between two values of Changed: whoever ends many leases at once, or does so to keep others busy,
// wakes them so often and no more.
const spacing = 5 * time.Millisecond

// Watch begins to watch this folder and the others that count. What ended before it returned is not told, so look after
// calling it. A user has 128 watchers in all (fs.inotify.max_user_instances), other programs' included; without one it
// fails, and looking now and then is what remains.
func (f *Folder) Watch() (*Watcher, error) {
	inotify, err := sys.NewInotify()
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w (limit: sysctl fs.inotify.max_user_instances)", f.Path, err)
	}
	changed := make(chan struct{}, 1)
	w := &Watcher{
		Changed: changed, changed: changed, folder: f, inotify: inotify,
		folders: map[int32]*watched{}, told: map[ended]bool{}, asking: map[ended]bool{},
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.top(f.Path, "tickets", ticketSuffix)
	for _, path := range append([]string{f.Path}, f.Others...) {
		if terr := w.top(path, "leases", lockSuffix); terr != nil && (path == f.Path || ours(terr) || errors.Is(terr, unix.ENOSPC)) && err == nil {
			err = terr
		}
	}
	if err != nil {
		_ = w.shut()
		return nil, fmt.Errorf("cannot watch %s: %w", f.Path, err)
	}
	go w.run()
	return w, nil
}

// Close ends the watch. Changed is not closed.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shut()
}

func (w *Watcher) shut() error {
	if !w.end() {
		return nil
	}
	return w.inotify.Close()
}

// Leave ends the watch like Close, and leaves its descriptor for another process to close; nil when it is closed already. The
// kernel takes 5 to 60 ms for the last close, and so for an exec that closes it: it waits until no processor can still see the
// watches (Linux fs/notify/group.c, fsnotify_destroy_group).
func (w *Watcher) Leave() *os.File {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.end() {
		return nil
	}
	_ = w.inotify.SetReadDeadline(time.Now()) // ends run
	return w.inotify.File
}

// end closes everything but the descriptor, and reports whether that was still to be done.
func (w *Watcher) end() bool {
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

func (d *watched) close() {
	if d.dir != nil {
		_ = d.dir.Close()
	}
}

// top watches root/sub for folders of users, and those that are there.
func (w *Watcher) top(root, sub, suffix string) error {
	path := filepath.Join(root, sub)
	fd, err := openIn(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close() //nolint:errcheck // read only
	if err := w.add(fd, &watched{path: path, suffix: suffix}, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ATTRIB); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.user(path, name, suffix); err != nil && (ours(err) || errors.Is(err, unix.ENOSPC)) {
			return err
		}
	}
	return nil
}

// user watches the folder of one user. What is no such folder, or is somebody else's, carries nothing.
func (w *Watcher) user(top, name, suffix string) error {
	if _, isUID := userNamed(name); !isUID && !spaceNamed(name) {
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
	uid, counts := judge(w.folder.ids, name, st.Uid)
	if err == nil && !counts {
		err = unix.EPERM
	}
	if err == nil {
		err = w.add(fd, &watched{dir: dir, path: path, uid: uid, suffix: suffix}, unix.IN_CLOSE_WRITE|unix.IN_DELETE)
	}
	if err != nil {
		_ = dir.Close()
	}
	return err
}

// add watches an open folder: by its path, users could lead the watch elsewhere, such as to a file system that does not answer.
func (w *Watcher) add(fd int, d *watched, events uint32) error {
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

// run reads events until the watch is closed.
func (w *Watcher) run() {
	for {
		events, err := w.inotify.Read()
		if err != nil {
			return
		}
		w.mu.Lock()
		for _, e := range events {
			if !w.closed {
				w.event(ended{e.Watch, e.Name}, e.What)
			}
		}
		w.mu.Unlock()
	}
}

func (w *Watcher) event(e ended, what uint32) {
	d := w.folders[e.folder]
	switch {
	case what&unix.IN_Q_OVERFLOW != 0: // anything may have happened
		w.told = map[ended]bool{}
		w.again()
		w.tell()
	case d == nil:
	case what&unix.IN_IGNORED != 0: // the folder is gone, and everything in it
		d.close()
		delete(w.folders, e.folder)
		w.tell()
	case d.dir == nil: // a user's first lease or ticket, which may have ended before we saw the folder
		if !w.watches(filepath.Join(d.path, e.name)) && w.user(d.path, e.name, d.suffix) == nil {
			w.tell()
		}
	case e.name == callName:
		if what&unix.IN_DELETE != 0 {
			w.tell()
		}
	case !strings.HasSuffix(e.name, d.suffix) || strings.HasPrefix(e.name, newPrefix):
	case what&unix.IN_DELETE != 0:
		if !w.told[e] {
			w.tell()
		}
		delete(w.told, e)
	case what&unix.IN_CLOSE_WRITE != 0 && !w.told[e] && !w.asking[e]:
		w.asking[e] = true
		go w.ask(e, d)
	}
}

// watches tells what is new from what has changed. A new folder can be watched by others only after its mode was widened, in
// a second step where its owner's umask is narrow.
func (w *Watcher) watches(path string) bool {
	for _, d := range w.folders {
		if d.path == path {
			return true
		}
	}
	return false
}

// again looks for users' folders whose appearance was missed.
func (w *Watcher) again() {
	for _, d := range slices.Collect(maps.Values(w.folders)) {
		if d.dir != nil {
			continue
		}
		entries, _ := os.ReadDir(d.path)
		for _, entry := range entries {
			_ = w.user(d.path, entry.Name(), d.suffix)
		}
	}
}

// ask waits for the end that the kernel announced: it sends the event just before it drops the lock (Linux fs/file_table.c,
// __fput). On a machine that is busy, that may take its time.
func (w *Watcher) ask(e ended, d *watched) {
	for _, pause := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		time.Sleep(pause)
		w.mu.Lock()
		alive := !w.closed && d.alive(w.folder, e.name)
		if !alive || w.closed || pause == time.Second {
			delete(w.asking, e)
			if !alive && !w.closed {
				w.told[e] = true
				w.tell()
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

func (d *watched) alive(f *Folder, name string) bool {
	alive := false
	raw, err := d.dir.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(dir uintptr) {
		fd, err := f.reader().openRegular(int(dir), name, &d.uid)
		if err == nil {
			alive, _ = held(fd)
			_ = unix.Close(fd)
		}
	})
	return alive
}

// tell puts a value into Changed, now or as soon as the spacing allows.
func (w *Watcher) tell() {
	if w.later != nil {
		return
	}
	if wait := spacing - time.Since(w.last); wait > 0 {
		w.later = time.AfterFunc(wait, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.later = nil
			w.send()
		})
		return
	}
	w.send()
}

func (w *Watcher) send() {
	w.last = time.Now()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
