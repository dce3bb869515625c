package logfile

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestResume: a source that is copied again adds only what is new, another source adds all of its own, and a second
// process at the same time adds nothing.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	add := func(source string, parts ...string) {
		t.Helper()
		w, err := ResumeCopy(path, source)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if n, err := io.WriteString(w, p); n != len(p) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(p), err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add("pod-1", "one\n")
	add("pod-1", "on", "e\ntwo\n")
	add("pod-2", "other\n")
	first, err := ResumeCopy(path, "pod-2")
	if err != nil {
		t.Fatal(err)
	}
	add("pod-2", "other\nmore\n") // the first is still at it
	if _, err := io.WriteString(first, "other\nmore\n"); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	add("pod-2", "other\nmore\n")
	text, err := os.ReadFile(path)
	if want := "one\ntwo\nother\nmore\n"; err != nil || string(text) != want {
		t.Errorf("the log is %q, want %q (%v)", text, want, err)
	}
}
