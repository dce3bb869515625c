package tail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/host/tail"
)

const patience = 30 * time.Second

func open(t *testing.T) *tail.Tail {
	t.Helper()
	f := tail.New()
	t.Cleanup(f.Close)
	return f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func rotate(t *testing.T, path string) {
	t.Helper()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
}

// wants compares the next lines, waiting for them.
func wants(t *testing.T, f *tail.Tail, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, w := range want {
		line, err := f.Next(ctx)
		if err != nil {
			t.Fatalf("line %d, %q: %v", i, w, err)
		}
		if string(line.Text) != w {
			t.Fatalf("line %d: %q, want %q", i, line.Text, w)
		}
	}
	f.RecheckFiles()
	if line, ok := f.Now(); ok {
		t.Fatalf("one line too many: %q", line.Text)
	}
}

func numbered(from, to int) (lines []string) {
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	return lines
}

func joined(lines []string) string { return strings.Join(lines, "\n") + "\n" }

func TestLast(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 50<<10)
	for _, c := range []struct {
		name     string
		old, now string // "-" for no file
		last     int
		want     []string
	}{
		{"all", "-", joined(numbered(0, 9)), tail.AllLines, numbered(0, 9)},
		{"last three", "-", joined(numbered(0, 9)), 3, numbered(6, 9)},
		{"as many as there are", "-", joined(numbered(0, 9)), 9, numbered(0, 9)},
		{"more than there are", "-", joined(numbered(0, 9)), 10, numbered(0, 9)},
		{"none", "-", joined(numbered(0, 9)), 0, nil},
		{"an empty file", "-", "", 5, nil},
		{"no file", "-", "-", 5, nil},
		{"with what was full", joined(numbered(0, 5)), joined(numbered(5, 9)), 6, numbered(3, 9)},
		{"all with what was full", joined(numbered(0, 5)), joined(numbered(5, 9)), tail.AllLines, numbered(0, 9)},
		{"without what was full", joined(numbered(0, 5)), joined(numbered(5, 9)), 4, numbered(5, 9)},
		{"nothing after what was full", joined(numbered(0, 5)), "", 2, numbered(3, 5)},
		{"only what was full", joined(numbered(0, 5)), "-", 2, numbered(3, 5)},
		{"a line over both", "a\nb\nc", "d\ne\n", tail.AllLines, []string{"a", "b", "cd", "e"}},
		{"long lines", "-", "a\n" + long + "\n" + long + "\n", 2, []string{long, long}},
		{"empty lines", "-", "a\n\n\n\n", 3, []string{"", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "log")
			for name, text := range map[string]string{path + ".1": c.old, path: c.now} {
				if text != "-" {
					write(t, name, text)
				}
			}
			f := open(t)
			f.Add(path, c.last)
			wants(t, f, c.want...)
			write(t, path, "one more\n")
			wants(t, f, "one more")
		})
	}
}

// A last line without an end is returned on demand; a line longer than longest comes in pieces.
func TestUnended(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "whole\nhalf")
	f := open(t)
	f.Add(path, tail.AllLines)
	wants(t, f, "whole")
	if line, ok := f.UnendedLine(); !ok || string(line.Text) != "half" {
		t.Errorf("unended: %q %v, want half", line.Text, ok)
	}
	if line, ok := f.UnendedLine(); ok {
		t.Errorf("told twice: %q", line.Text)
	}
	write(t, path, strings.Repeat("y", 200<<10)+"\n")
	total := 0
	f.RecheckFiles()
	for line, ok := f.Now(); ok; line, ok = f.Now() {
		if len(line.Text) > 128<<10 {
			t.Errorf("a piece of %d bytes", len(line.Text))
		}
		total += len(line.Text)
	}
	if total != 200<<10 {
		t.Errorf("the pieces have %d bytes", total)
	}
}

// A line that a terminal would overwrite is marked, with the carriage return before or after it.
func TestOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "dos\r\n\r 1%\r 2%\r 3%\n10%\r20%\r\r\n\rend\n")
	f := open(t)
	f.Add(path, tail.AllLines)
	var told []string
	for line, ok := f.Now(); ok; line, ok = f.Now() {
		told = append(told, fmt.Sprintf("%s %v", line.Text, line.Over))
	}
	want := "dos false| 1% true| 2% true| 3% false|10% true|20% true| false|end false"
	if got := strings.Join(told, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	write(t, path, "50%\r")
	wants(t, f)
	if line, ok := f.UnendedLine(); !ok || string(line.Text) != "50%" || !line.Over {
		t.Errorf("unended: %q %v %v", line.Text, line.Over, ok)
	}
}

// A file and the folders above it may be made later; the folder may be removed and made again.
func TestBirth(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	path := filepath.Join(top, "a", "b", "c", "log")
	f := open(t)
	f.Add(path, 0)
	for round := range 3 {
		wants(t, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, fmt.Sprintf("round %d\n", round))
		wants(t, f, fmt.Sprint("round ", round))
		write(t, path, "again\n")
		wants(t, f, "again")
		if err := os.RemoveAll(filepath.Join(top, "a")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, joined(numbered(0, 5)))
	f := open(t)
	f.Add(path, tail.AllLines)
	wants(t, f, numbered(0, 5)...)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, "anew\n")
	wants(t, f, "anew")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wants(t, f)
	write(t, path, "another file\n")
	wants(t, f, "another file")
}

// Two rotations between two reads lose nothing.
func TestRotations(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path+".1", "long ago\n")
	write(t, path, "a\n")
	f := open(t)
	f.Add(path, 1)
	wants(t, f, "a")
	write(t, path, "b\n")
	rotate(t, path)
	write(t, path+".1", "c\n") // by a process that had it open
	wants(t, f, "b", "c")
	write(t, path, "d\n")
	wants(t, f, "d")
	write(t, path, "e\n")
	rotate(t, path)
	write(t, path, "f\n")
	rotate(t, path)
	write(t, path, "g\n")
	wants(t, f, "e", "f", "g")
}

// After a file that was replaced by hand, the new file is read, not the old PATH.1.
func TestReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	write(t, path+".1", "long ago\n")
	write(t, path, "a\n")
	f := open(t)
	f.Add(path, 1)
	wants(t, f, "a")
	write(t, path+".new", "b\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	wants(t, f, "b")
}

// A writer rotates all the time, in pieces that end anywhere, and the reader is at most one rotation late: nothing is
// lost, doubled or out of order.
func TestRotating(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "log")
	f := open(t)
	f.Add(path, tail.AllLines)
	const lines = 5000
	seen := make(chan int, lines) // so that the writer is never two rotations ahead
	go func() {
		defer close(seen)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i := range lines {
			line, err := f.Next(ctx)
			if want := fmt.Sprint("line ", i); err != nil || string(line.Text) != want {
				t.Errorf("got %q (%v), want %q", line.Text, err, want)
				return
			}
			seen <- i
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	text := joined(numbered(0, lines))
	random := rand.New(rand.NewPCG(1, 2))
	read, written, last := 0, 0, 0 // lines; last: written when it was rotated
	for text != "" {
		n := min(1+random.IntN(200), len(text))
		write(t, path, text[:n])
		written += strings.Count(text[:n], "\n")
		text = text[n:]
		if random.IntN(5) > 0 || written == last { // a file without an end of a line would not be seen to be read
			continue
		}
		for ; read < last; read++ { // what was full at the rotation before
			if _, ok := <-seen; !ok {
				return
			}
		}
		rotate(t, path)
		last = written
	}
	for range seen { //nolint:revive // until the reader has them all
	}
}

// Many files: each line has its file's number, and a file that always grows does not delay the others.
func TestMany(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f := open(t)
	const many = 20
	path := func(i int) string { return filepath.Join(folder, fmt.Sprint("s", i), "log") }
	for i := range many {
		if n := f.Add(path(i), tail.AllLines); n != i {
			t.Fatalf("file %d has number %d", i, n)
		}
	}
	for i := range many {
		if err := os.Mkdir(filepath.Dir(path(i)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path(i), joined(numbered(0, i+1)))
	}
	write(t, path(0), strings.Repeat("noise\n", 100_000))
	heard := map[int]int{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(heard) < many || heard[many-1] < many {
		line, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err, heard)
		}
		if want := fmt.Sprint("line ", heard[line.File]); string(line.Text) != want && string(line.Text) != "noise" {
			t.Fatalf("file %d: %q, want %q", line.File, line.Text, want)
		}
		heard[line.File]++
	}
	if heard[0] > 50_000 {
		t.Errorf("the last file came after %d lines of the first", heard[0])
	}
}

// The end of ctx ends the wait; a file that is not regular has no lines.
func TestNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := open(t)
	f.Add("/dev/zero", tail.AllLines)
	f.Add(t.TempDir(), tail.AllLines)
	f.Add("/proc/self/no/such", tail.AllLines)
	cancel()
	if line, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", line.Text, err)
	}
}

// Lines after a mark are returned, also if the file was rotated since.
func TestResume(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	lines := func(inode uint64, offset int64) string {
		f := tail.New()
		defer f.Close()
		f.ResumeFile(path, inode, offset)
		var all []string
		for line, ok := f.Now(); ok; line, ok = f.Now() {
			all = append(all, string(line.Text))
		}
		return strings.Join(all, " ")
	}
	write := func(name, text string) {
		t.Helper()
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
			_ = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rotate := func() {
		t.Helper()
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	none, zero := tail.InodeAndSize(path)
	is("no file yet", lines(none, zero), "")
	write(path, "a\n")
	is("a file that was not there", lines(none, zero), "a")
	inode, offset := tail.InodeAndSize(path)
	write(path, "b\n")
	is("behind the mark", lines(inode, offset), "b")
	rotate()
	is("only the old file", lines(inode, offset), "b")
	write(path, "c\n")
	is("full once", lines(inode, offset), "b c")
	keep, err := os.Open(path + ".1") // its number is not given to another
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close() //nolint:errcheck // read only
	rotate()
	write(path, "d\n")
	is("full twice", lines(inode, offset), "c d")
}
