// Package tail reads text files that grow: their last lines, and those written from then on, also where the file is not there
// yet, is cut, or is full and becomes PATH.1. The kernel tells of changes (inotify). It knows nothing of who writes, nor why.
package tail

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// Line is one line of a file.
type Line struct {
	File int    // as Add numbered it
	Text []byte // without its end; until the next call only
	Over bool   // it ended in a carriage return, so that a terminal shows the next line in its place
}

// All of a file, for Add.
const All = math.MaxInt

// longest is how much of a line is held back until its end comes; a longer one is told in pieces.
const longest = 64 << 10

// Tail is a number of files. Only one goroutine may use it, but for Look.
type Tail struct {
	now     *file // whose lines are being told
	inotify *sys.Inotify
	blind   bool // the kernel has no more watches to give (fs.inotify.max_user_instances, max_user_watches): looking is what remains
	woken   chan struct{}

	mu    sync.Mutex
	files []*file
	news  []*file // that may have more
}

// New begins. Close it when done.
func New() *Tail {
	t := &Tail{woken: make(chan struct{}, 1)}
	var err error
	if t.inotify, err = sys.NewInotify(); err != nil {
		t.blind = true
		return t
	}
	go t.listen()
	return t
}

// Close lets go of all files.
func (t *Tail) Close() {
	if t.inotify != nil {
		_ = t.inotify.Close()
	}
	for _, f := range t.files {
		f.leave()
	}
}

// Add begins with the last lines of a file, those of PATH.1 included; 0 is what is written after this call. The path is
// absolute; the file, and its folder, may come later.
func (t *Tail) Add(path string, last int) int {
	return t.begin(path, func(f *file) { f.begin(last) })
}

// begin numbers a file, and looks for the place where to begin.
func (t *Tail) begin(path string, place func(f *file)) int {
	f := &file{number: len(t.files), path: path, watch: -1}
	t.mu.Lock()
	t.files = append(t.files, f)
	t.mu.Unlock()
	t.place(f) // before it is looked at: what comes in between is told
	place(f)
	t.wake(func(other *file) bool { return other == f })
	return f.number
}

// Resume begins at a point that Mark told, also when the file has become PATH.1 since; with all that is left where that is gone
// too.
func (t *Tail) Resume(path string, inode uint64, offset int64) int {
	return t.begin(path, func(f *file) { f.resume(inode, offset) })
}

// Look makes Now see what was written before this call, of which the kernel may not have told yet; it also ends a Wait.
func (t *Tail) Look() {
	t.wake(func(*file) bool { return true })
	t.signal()
}

// Now is a line that is there already.
func (t *Tail) Now() (Line, bool) {
	for {
		if t.now != nil {
			if line, ok := t.now.line(false); ok {
				return line, true
			}
		}
		if t.now = t.pop(); t.now == nil {
			return Line{}, false
		}
		t.place(t.now)
		if t.now.read() { // and may have more: the others come first
			t.wake(func(f *file) bool { return f == t.now })
		}
	}
}

// Unended is a last line without an end, when Now has no more.
func (t *Tail) Unended() (Line, bool) {
	for _, f := range t.files {
		if line, ok := f.line(true); ok {
			return line, true
		}
	}
	return Line{}, false
}

// pause is between two looks where the kernel tells nothing.
const pause = time.Second

// Next is the next line; it waits for it. The error is that of ctx.
func (t *Tail) Next(ctx context.Context) (Line, error) {
	for {
		if line, ok := t.Now(); ok {
			return line, nil
		}
		if err := t.Wait(ctx); err != nil {
			return Line{}, err
		}
	}
}

// Wait returns when Now may have more, or after Look. The error is that of ctx.
func (t *Tail) Wait(ctx context.Context) error {
	var later <-chan time.Time
	if t.blind {
		later = time.After(pause)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.woken:
	case <-later:
		t.Look()
	}
	return nil
}

func (t *Tail) pop() *file {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.news) == 0 {
		return nil
	}
	f := t.news[0]
	t.news = t.news[1:]
	return f
}

// wake says that files may have more.
func (t *Tail) wake(which func(*file) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	more := false
	for _, f := range t.files {
		if which(f) {
			more = true
			if !slices.Contains(t.news, f) {
				t.news = append(t.news, f)
			}
		}
	}
	if more {
		t.signal()
	}
}

func (t *Tail) signal() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// place watches the file's folder, or the nearest above it that is there, unless that was done.
func (t *Tail) place(f *file) {
	t.mu.Lock()
	done := f.deep || t.inotify == nil
	t.mu.Unlock()
	if done {
		return
	}
	for {
		folder := filepath.Dir(f.path)
		missing := ""
		watch, err := t.inotify.Add(folder, changes)
		for errors.Is(err, unix.ENOENT) && folder != filepath.Dir(folder) {
			missing, folder = folder, filepath.Dir(folder)
			watch, err = t.inotify.Add(folder, changes)
		}
		t.mu.Lock()
		f.watch, f.deep = watch, err == nil && missing == ""
		t.mu.Unlock()
		if err != nil {
			t.blind = true
			return
		}
		if missing == "" {
			return
		}
		if _, err := os.Lstat(missing); err != nil {
			return
		}
	}
}

// changes are what may mean that a file has more.
const changes = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR

// listen reads what the kernel tells until Close.
func (t *Tail) listen() {
	for {
		events, err := t.inotify.Read()
		if err != nil {
			return
		}
		for _, e := range events {
			t.wake(func(f *file) bool {
				switch {
				case e.What&unix.IN_Q_OVERFLOW != 0:
					return true
				case f.watch != e.Watch:
					return false
				case e.What&unix.IN_IGNORED != 0: // the folder is gone
					f.deep = false
					return true
				}
				return !f.deep || strings.HasPrefix(e.Name, filepath.Base(f.path))
			})
		}
	}
}
