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

func (f *tailedFile) closeFile() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}

// rotatedPath is the path of a full file after rotation.
func (f *tailedFile) rotatedPath() string { return f.path + ".1" }

// openAtLastLines opens the file at its last lines.
func (f *tailedFile) openAtLastLines(last int) {
	var size int64
	f.old, _ = os.Stat(f.rotatedPath())
	if f.openRegular(f.path) {
		if info, err := f.open.Stat(); err == nil {
			size = info.Size()
		}
		f.at = size
	}

	if last <= 0 {
		return
	}

	found := 0
	if f.open != nil {
		f.at, found = findLastLines(f.open, size, last)
	}

	if found >= last {
		return
	}

	older := tailedFile{path: f.path}
	if !older.openRegular(f.rotatedPath()) {
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

	f.closeFile()
	f.open, f.at, f.old = older.open, older.at, nil
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
func (f *tailedFile) openAtOffset(inode uint64, offset int64) {
	for _, path := range []string{f.path, f.rotatedPath()} {
		if number, size := InodeAndSize(path); number == inode && size >= offset && f.openRegular(path) {
			f.at = offset
			f.clearOldIfRotated(path)
			return
		}
	}
	if inode != 0 && f.openRegular(f.rotatedPath()) {
		// It was full more than once.
		f.clearOldIfRotated(f.rotatedPath())
	} else {
		f.openRegular(f.path)
	}
}

// clearOldIfRotated drops old for a file that was opened as PATH.1: no other file was PATH.1 before it.
func (f *tailedFile) clearOldIfRotated(path string) {
	if path != f.path {
		f.old = nil
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
func (f *tailedFile) openRegular(path string) bool {
	opened, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}

	if info, err := opened.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = opened.Close()
		return false
	}

	f.closeFile()
	f.open, f.at, f.left = opened, 0, false
	f.old, _ = os.Stat(f.rotatedPath())

	return true
}

// readMore reads more text, and reports whether there was any.
func (f *tailedFile) readMore() bool {
	for f.open != nil || f.openSuccessor(nil) {
		if f.readPart() {
			return true
		}
		if !f.followRotation() {
			return false
		}
	}
	return false
}

func (f *tailedFile) readPart() bool {
	const part = 32 << 10
	f.text = append(f.text[:0], f.text[f.told:]...)
	f.told = 0
	have := len(f.text)
	f.text = append(f.text, make([]byte, part)...)
	n, _ := f.open.ReadAt(f.text[have:], f.at)
	f.text = f.text[:have+n]
	f.at += int64(n)

	return n > 0
}

// followRotation decides what to read after the end of the open file, and reports whether there may be more.
func (f *tailedFile) followRotation() bool {
	mine, err := f.open.Stat()
	if err != nil {
		return false
	}

	if mine.Size() < f.at {
		// It was truncated.
		f.at = 0
		return true
	}

	named, err := os.Stat(f.path)
	switch st, _ := mine.Sys().(*syscall.Stat_t); {
	case err != nil && st != nil && st.Nlink == 0:
		// Deleted: while it is open, the kernel does not report that its folder is gone too.
		f.closeFile()
		return false
	case err != nil || os.SameFile(mine, named):
		// Nothing new, or between the two steps of a rotation.
		return false
	case !f.left:
		// Something may have been written before it was renamed.
		f.left = true
		return true
	}

	return f.openSuccessor(mine)
}

// openSuccessor opens the file after mine, which was open until now; mine is nil if no file was open.
func (f *tailedFile) openSuccessor(mine os.FileInfo) bool {
	next := &tailedFile{path: f.path}
	if !next.openRegular(f.path) {
		return false
	}

	// The file at path is next if mine is PATH.1 now, or if PATH.1 has not changed: then mine was replaced. Otherwise
	// there was more than one rotation, and the file that is PATH.1 now is next.
	if between := next.old; between != nil && (mine == nil || !os.SameFile(between, mine)) && !f.isOldRotated(between) {
		_ = next.openRegular(f.rotatedPath())
	}

	f.closeFile()
	f.open, f.at, f.left, f.old = next.open, 0, false, next.old

	return true
}

// isOldRotated reports whether old is the PATH.1 from the time when the open file was opened. It compares times too,
// because an inode number is used again after its file is gone.
func (f *tailedFile) isOldRotated(old os.FileInfo) bool {
	return f.old != nil && os.SameFile(f.old, old) && f.old.ModTime().Equal(old.ModTime())
}

// takeLine returns the next line of the text; with all, also one without an end.
func (f *tailedFile) takeLine(all bool) (Line, bool) {
	for {
		rest := f.text[f.told:]
		i := bytes.IndexAny(rest, "\r\n")
		switch {
		case len(rest) == 0:
			return Line{}, false
		case i >= 0 && rest[i] == '\n':
			return f.nextLine(rest[:i], 1, false), true
		case i >= 0 && i+1 < len(rest) && rest[i+1] == '\n':
			return f.nextLine(rest[:i], 2, false), true
		case i == 0 && len(rest) > 1:
			// The line before the carriage return was returned.
			f.told++
		case i > 0 && (i+1 < len(rest) || all):
			return f.nextLine(rest[:i], 1, true), true
		case i < 0 && (all || len(rest) >= maxLineSize):
			return f.nextLine(rest, 0, false), true
		default:
			return Line{}, false
		}
	}
}

func (f *tailedFile) nextLine(text []byte, end int, over bool) Line {
	f.told += len(text) + end
	return Line{File: f.number, Text: text, Over: over}
}
