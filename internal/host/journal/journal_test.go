package journal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func lines(t *testing.T, j *Journal) string {
	t.Helper()
	var all []string
	if err := j.EachNewLine(func(line []byte) error {
		all = append(all, string(line))
		return nil
	}); err != nil {
		t.Error(err)
	}
	return strings.Join(all, "|")
}

// TestJournal: Next returns each line once, also those of another writer. It does not return an incomplete line, and
// Mend removes it.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, other := open(t, path), open(t, path)
	long := strings.Repeat("x", 200<<10)
	for _, line := range []string{"a", long, ""} {
		if err := j.Append([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if got := lines(t, other); got != "a|"+long+"|" {
		t.Errorf("%d characters were read", len(got))
	}
	if _, err := j.file.WriteString("half a li"); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, other); got != "" {
		t.Errorf("half a line was read: %q", got)
	}
	if err := other.TruncatePartial(); err != nil {
		t.Error(err)
	}
	if err := other.Append([]byte("b")); err != nil {
		t.Error(err)
	}
	if got := lines(t, j); !strings.HasSuffix(got, "||b") {
		t.Errorf("at the end: %q", got[max(0, len(got)-20):])
	}
	wrong := errors.New("wrong")
	if err := open(t, path).EachNewLine(func([]byte) error { return wrong }); !errors.Is(err, wrong) || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestMend: after a writer was killed at any point, the complete lines stay.
func TestMend(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": "", "a\n": "a\n", "a\nb": "a\n", "a\n" + strings.Repeat("b", 10000): "a\n", strings.Repeat("b", 10000): ""} {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, path)
		if err := j.TruncatePartial(); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%.10q… became %.10q…", text, got)
		}
	}
}

// TestFull: on a full disk no part of a line is written, and reserved bytes can still be written.
func TestFull(t *testing.T) {
	gate.Need(t, "privileged")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	j := open(t, filepath.Join(dir, "j"))
	if err := j.ReserveSpace(1 << 16); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 3<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 999))
	for range 60 {
		if err := j.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.ReserveSpace(1 << 20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a megabyte could be reserved: %v", err)
	}
	var err error
	n := 60
	for ; err == nil; n++ {
		err = j.Append(line)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "j")); len(got) != (n-1)*1000 {
		t.Errorf("%d bytes after %d lines", len(got), n-1)
	}
}

// TestLock: one process has the lock; the other one calls busy, waits, and gets it.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(path, func() { t.Error("nobody has it") })
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Bool
	busy := make(chan struct{})
	go func() {
		<-busy
		time.Sleep(20 * time.Millisecond)
		free.Store(true)
		_ = first.Close()
	}()
	second, err := Lock(path, func() { close(busy) })
	if err != nil || !free.Load() {
		t.Errorf("%v, free %v", err, free.Load())
	}
	_ = second.Close()
}

// TestReplace: the file has the old content or the new, and no other file remains.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write := func(text string, err error) error {
		return ReplaceFile(path, func(w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		})
	}
	if err := write("old", nil); err != nil {
		t.Fatal(err)
	}
	if err := write("half", errors.New("no more")); err == nil || !strings.Contains(err.Error(), "cannot write "+path) {
		t.Error(err)
	}
	got, _ := os.ReadFile(path)
	entries, _ := os.ReadDir(dir)
	if string(got) != "old" || len(entries) != 1 {
		t.Errorf("%q, %v", got, entries)
	}
}
