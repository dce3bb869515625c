package logfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gpuard/internal/gate"
)

// TestLogBehindALink: a log goes where a link of one's own leads, and into no file of the caller's that another user
// leads it to.
func TestLogBehindALink(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(at("precious"), nil, 0o600), os.Symlink("precious", at("own")), os.Mkdir(at("tmp"), 0o755), os.Chmod(at("tmp"), 0o777|os.ModeSticky),
		os.Symlink(at("precious"), at("tmp/log")), os.Lchown(at("tmp/log"), mallory, mallory), os.Symlink(dir, at("tmp/folder")), os.Lchown(at("tmp/folder"), mallory, mallory))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{at("tmp/log"), at("tmp/folder/precious"), at("tmp/folder/new")} {
		if file, err := OpenToCheck(path); err == nil {
			t.Errorf("%s was opened: %v", path, file.Close())
		}
		if err := WriteNote(path, "x"); err == nil {
			t.Errorf("a line was written into %s", path)
		}
		if log, err := ResumeCopy(path, "pod"); err == nil {
			t.Errorf("%s is gone on with: %v", path, log.Close())
		}
	}
	if err := WriteNote(at("own"), "mine"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(at("precious")); err != nil || string(text) != "mine\n" {
		t.Errorf("it has %q, %v", text, err)
	}
}
