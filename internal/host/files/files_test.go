package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plain")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil || string(got.Content) != "text" || got.Modified.IsZero() {
		t.Errorf("Read = %q, %v, %v", got.Content, got.Modified, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(link); err != nil || string(got.Content) != "text" {
		t.Errorf("through a link: %q, %v", got.Content, err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, "/dev/zero"} {
		if got, err := ReadFile(path); err == nil || len(got.Content) > 0 {
			t.Errorf("%s: %d bytes, %v", path, len(got.Content), err)
		}
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxFileSize+1); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(large); err == nil || len(got.Content) > 0 {
		t.Errorf("a file of %d bytes was read", len(got.Content))
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.json", "c.txt", "d.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ListNames(dir, ".yaml", ".json"); err != nil || !slices.Equal(got, []string{"a.json", "b.yaml", "d.yaml"}) {
		t.Errorf("Names = %v, %v", got, err)
	}
	if got, err := ListNames(dir); err != nil || len(got) != 4 {
		t.Errorf("Names of all = %v, %v", got, err)
	}
	if got, err := ListNames(filepath.Join(dir, "none")); err != nil || got != nil {
		t.Errorf("a folder that is not there: %v, %v", got, err)
	}
	if !Exists(dir) || Exists(filepath.Join(dir, "none")) {
		t.Error("Is does not tell what is there")
	}
}
