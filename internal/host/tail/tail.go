// Package tail reads the last lines of text files, and the lines that are added later. A file may not exist yet, may be
// truncated, or may be rotated to PATH.1. inotify reports the changes. The package does not know which programs write,
// or why.
//
//	t := tail.New()
//	defer t.Close()
//	t.Add("/var/log/train.log", 10)
//	for {
//		line, err := t.Next(ctx) // waits
//	}
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
	File int // as Add numbered it
	// The text without its end; until the next call only.
	Text []byte
	// It ended with a carriage return: a terminal shows the next line in its place.
	Over bool
}

// AllLines is the number of lines for Add that reads a file from its beginning.
const AllLines = math.MaxInt

// maxLineSize is how many bytes of a line are kept until its end is written; a longer line is returned in pieces.
const maxLineSize = 64 << 10

// Tail reads several files. Only one goroutine may use it, except for RecheckFiles.
type Tail struct {
	// Now returns lines of this file.
	now     *tailedFile
	inotify *sys.Inotify
	// No inotify instance or watch is free (fs.inotify.max_user_instances, max_user_watches), so Wait polls.
	blind bool
	woken chan struct{}

	mu    sync.Mutex
	files []*tailedFile
	// Files that may have more lines.
	news []*tailedFile
}

// New makes a Tail without files. Close it when done.
func New() *Tail {
	t := &Tail{woken: make(chan struct{}, 1)}
	var err error
	t.inotify, err = sys.NewInotify()
	if err != nil {
		t.blind = true
		return t
	}

	go t.readEvents()

	return t
}

// Close closes all files.
func (t *Tail) Close() {
	if t.inotify != nil {
		_ = t.inotify.Close()
	}
	for _, f := range t.files {
		f.closeFile()
	}
}

// Add adds a file from its last lines on, which may be in PATH.1; with 0, from the end on. It returns the file's number
// in Line. The path is absolute; the file and its folder need not exist yet.
func (t *Tail) Add(path string, last int) int {
	return t.addFileAt(path, func(f *tailedFile) { f.openAtLastLines(last) })
}

// addFileAt adds a file; place sets where to begin.
func (t *Tail) addFileAt(path string, place func(f *tailedFile)) int {
	f := &tailedFile{number: len(t.files), path: path, watch: -1}
	t.mu.Lock()
	t.files = append(t.files, f)
	t.mu.Unlock()

	// Before the file is read, so that no change in between is missed.
	t.watchFolder(f)
	place(f)
	t.markFiles(func(other *tailedFile) bool { return other == f })

	return f.number
}

// ResumeFile adds a file from a point on that InodeAndSize returned, also if the file was rotated to PATH.1 since. If
// that is gone too, it begins with the oldest lines that exist.
func (t *Tail) ResumeFile(path string, inode uint64, offset int64) int {
	return t.addFileAt(path, func(f *tailedFile) { f.openAtOffset(inode, offset) })
}

// RecheckFiles makes Now return everything that was written before this call, even if the kernel has not reported it
// yet. It also ends a Wait.
func (t *Tail) RecheckFiles() {
	t.markFiles(func(*tailedFile) bool { return true })
	t.signalWoken()
}

// Now returns the next line without waiting; false if there is none yet.
func (t *Tail) Now() (Line, bool) {
	for {
		if t.now != nil {
			if line, ok := t.now.takeLine(false); ok {
				return line, true
			}
		}

		t.now = t.popFile()
		if t.now == nil {
			return Line{}, false
		}

		t.watchFolder(t.now)
		if t.now.readMore() {
			// It may have more, after the other files.
			t.markFiles(func(f *tailedFile) bool { return f == t.now })
		}
	}
}

// UnendedLine returns a last line without an end. Call it when Now has no more.
func (t *Tail) UnendedLine() (Line, bool) {
	for _, f := range t.files {
		if line, ok := f.takeLine(true); ok {
			return line, true
		}
	}
	return Line{}, false
}

// pollInterval is the poll interval without inotify.
const pollInterval = time.Second

// Next waits for the next line. The error is that of ctx.
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

// Wait returns when Now may have more, or after RecheckFiles. The error is that of ctx.
func (t *Tail) Wait(ctx context.Context) error {
	var later <-chan time.Time
	if t.blind {
		later = time.After(pollInterval)
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.woken:
	case <-later:
		t.RecheckFiles()
	}

	return nil
}

func (t *Tail) popFile() *tailedFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.news) == 0 {
		return nil
	}

	f := t.news[0]
	t.news = t.news[1:]

	return f
}

// markFiles marks files that may have more lines.
func (t *Tail) markFiles(which func(*tailedFile) bool) {
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
		t.signalWoken()
	}
}

func (t *Tail) signalWoken() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// watchFolder watches the file's folder, or the nearest folder above that exists. It does nothing if the file's folder
// is watched.
func (t *Tail) watchFolder(f *tailedFile) {
	t.mu.Lock()
	done := f.deep || t.inotify == nil
	t.mu.Unlock()
	if done {
		return
	}

	for {
		folder := filepath.Dir(f.path)
		missing := ""
		watch, err := t.inotify.Add(folder, changeEvents)
		for errors.Is(err, unix.ENOENT) && folder != filepath.Dir(folder) {
			missing, folder = folder, filepath.Dir(folder)
			watch, err = t.inotify.Add(folder, changeEvents)
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

// changeEvents are what may mean that a file has more.
const changeEvents = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR

// readEvents reads the kernel's events until Close.
func (t *Tail) readEvents() {
	for {
		events, err := t.inotify.Read()
		if err != nil {
			return
		}

		for _, e := range events {
			t.markFiles(func(f *tailedFile) bool {
				switch {
				case e.What&unix.IN_Q_OVERFLOW != 0:
					return true
				case f.watch != e.Watch:
					return false
				case e.What&unix.IN_IGNORED != 0:
					// The folder is gone.
					f.deep = false
					return true
				}
				return !f.deep || strings.HasPrefix(e.Name, filepath.Base(f.path))
			})
		}
	}
}
