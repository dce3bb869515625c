package tail

import (
	"bytes"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tailedFile is one file by its path. The open file may have been renamed or deleted since.
type tailedFile struct {
	number int
	path   string

	// watch descriptor of the folder.
	watch int32
	// This folder is the file's own, and not one above it.
	deep bool

	open *os.File
	// Offset of the next read.
	at int64
	// It has lost its name, and is being read to its end once more.
	left bool
	// PATH.1 at the time when the open file was opened; nil if there was none.
	old os.FileInfo

	// Read and not dropped yet.
	text []byte
	// How much of text was returned.
	told int
}

func (t *tailedFile) closeFile() {
	if t.open != nil {
		_ = t.open.Close()
		t.open = nil
	}
}

// rotatedPath is the path of a full file after rotation.
func (t *tailedFile) rotatedPath() string { return t.path + ".1" }

// openAtLastLines opens the file at its last lines.
func (t *tailedFile) openAtLastLines(last int) {
	var size int64
	t.old, _ = os.Stat(t.rotatedPath())
	if t.openRegular(t.path) {
		if info, err := t.open.Stat(); err == nil {
			size = info.Size()
		}
		t.at = size
	}

	if last <= 0 {
		return
	}

	found := 0
	if t.open != nil {
		t.at, found = findLastLines(t.open, size, last)
	}

	if found >= last {
		return
	}

	older := tailedFile{path: t.path}
	if !older.openRegular(t.rotatedPath()) {
		return
	}

	info, err := older.open.Stat()
	if err != nil {
		older.closeFile()
		return
	}

	older.at, found = findLastLines(older.open, info.Size(), last-found)
	if found == 0 {
		older.closeFile()
		return
	}

	t.closeFile()
	t.open, t.at, t.old = older.open, older.at, nil
}

// InodeAndSize returns inode and size of a file, for ResumeFile. The inode is 0 if there is no file.
func InodeAndSize(path string) (inode uint64, offset int64) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0, 0
	}
	return st.Ino, st.Size
}

// openAtOffset opens the file with that inode at an offset.
func (t *tailedFile) openAtOffset(inode uint64, offset int64) {
	for _, path := range []string{t.path, t.rotatedPath()} {
		if number, size := InodeAndSize(path); number == inode && size >= offset && t.openRegular(path) {
			t.at = offset
			t.clearOldIfRotated(path)
			return
		}
	}
	if inode != 0 && t.openRegular(t.rotatedPath()) {
		// It was full more than once.
		t.clearOldIfRotated(t.rotatedPath())
	} else {
		t.openRegular(t.path)
	}
}

// clearOldIfRotated drops old for a file that was opened as PATH.1: no other file was PATH.1 before it.
func (t *tailedFile) clearOldIfRotated(path string) {
	if path != t.path {
		t.old = nil
	}
}

// findLastLines searches from the end of a file for its last lines, and returns where they begin and how many there
// are.
func findLastLines(from *os.File, size int64, last int) (at int64, found int) {
	block := make([]byte, 32<<10)
	for end := size; end > 0; {
		begin := max(end-int64(len(block)), 0)
		n, _ := from.ReadAt(block[:end-begin], begin)
		part := block[:n]
		if end == size && n > 0 && part[n-1] == '\n' {
			// The end of the last line.
			part = part[:n-1]
		}

		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part, '\n') {
			found++
			if found == last {
				return begin + int64(i) + 1, found
			}
			part = part[:i]
		}

		end = begin
	}
	if size > 0 {
		found++
	}

	return 0, found
}

// openRegular opens a regular file at its beginning. It refuses other files, which may block or never end.
func (t *tailedFile) openRegular(path string) bool {
	opened, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}

	if info, err := opened.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = opened.Close()
		return false
	}

	t.closeFile()
	t.open, t.at, t.left = opened, 0, false
	t.old, _ = os.Stat(t.rotatedPath())

	return true
}

// readMore reads more text, and reports whether there was any.
func (t *tailedFile) readMore() bool {
	for t.open != nil || t.openSuccessor(nil) {
		if t.readPart() {
			return true
		}
		if !t.followRotation() {
			return false
		}
	}
	return false
}

func (t *tailedFile) readPart() bool {
	const part = 32 << 10
	t.text = append(t.text[:0], t.text[t.told:]...)
	t.told = 0
	have := len(t.text)
	t.text = append(t.text, make([]byte, part)...)
	n, _ := t.open.ReadAt(t.text[have:], t.at)
	t.text = t.text[:have+n]
	t.at += int64(n)

	return n > 0
}

// followRotation decides what to read after the end of the open file, and reports whether there may be more.
func (t *tailedFile) followRotation() bool {
	mine, err := t.open.Stat()
	if err != nil {
		return false
	}

	if mine.Size() < t.at {
		// It was truncated.
		t.at = 0
		return true
	}

	named, err := os.Stat(t.path)
	switch st, _ := mine.Sys().(*syscall.Stat_t); {
	case err != nil && st != nil && st.Nlink == 0:
		// Deleted: while it is open, the kernel does not report that its folder is gone too.
		t.closeFile()
		return false
	case err != nil || os.SameFile(mine, named):
		// Nothing new, or between the two steps of a rotation.
		return false
	case !t.left:
		// Something may have been written before it was renamed.
		t.left = true
		return true
	}

	return t.openSuccessor(mine)
}

// openSuccessor opens the file after mine, which was open until now; mine is nil if no file was open.
func (t *tailedFile) openSuccessor(mine os.FileInfo) bool {
	next := &tailedFile{path: t.path}
	if !next.openRegular(t.path) {
		return false
	}

	// The file at path is next if mine is PATH.1 now, or if PATH.1 has not changed: then mine was replaced. Otherwise
	// there was more than one rotation, and the file that is PATH.1 now is next.
	if between := next.old; between != nil && (mine == nil || !os.SameFile(between, mine)) && !t.isOldRotated(between) {
		_ = next.openRegular(t.rotatedPath())
	}

	t.closeFile()
	t.open, t.at, t.left, t.old = next.open, 0, false, next.old

	return true
}

// isOldRotated reports whether old is the PATH.1 from the time when the open file was opened. It compares times too,
// because an inode number is used again after its file is gone.
func (t *tailedFile) isOldRotated(old os.FileInfo) bool {
	return t.old != nil && os.SameFile(t.old, old) && t.old.ModTime().Equal(old.ModTime())
}

// takeLine returns the next line of the text; with all, also one without an end.
func (t *tailedFile) takeLine(all bool) (Line, bool) {
	for {
		rest := t.text[t.told:]
		i := bytes.IndexAny(rest, "\r\n")
		switch {
		case len(rest) == 0:
			return Line{}, false
		case i >= 0 && rest[i] == '\n':
			return t.nextLine(rest[:i], 1, false), true
		case i >= 0 && i+1 < len(rest) && rest[i+1] == '\n':
			return t.nextLine(rest[:i], 2, false), true
		case i == 0 && len(rest) > 1:
			// The line before the carriage return was returned.
			t.told++
		case i > 0 && (i+1 < len(rest) || all):
			return t.nextLine(rest[:i], 1, true), true
		case i < 0 && (all || len(rest) >= maxLineSize):
			return t.nextLine(rest, 0, false), true
		default:
			return Line{}, false
		}
	}
}

func (t *tailedFile) nextLine(text []byte, end int, over bool) Line {
	t.told += len(text) + end
	return Line{File: t.number, Text: text, Over: over}
}
