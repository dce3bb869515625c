package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestUpwards: the folders come from the current one upwards, and what is read of one comes from that very folder, also
// when another one has its name by then.
func TestUpwards(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a/file", "the right one")
	write("a/folder/x", "")
	write("a/b/x", "")
	write("planted/file", "the wrong one")
	t.Chdir(filepath.Join(top, "a", "b"))
	var walked []string
	last, why, err := WalkUp(filepath.Join(top, "a"), func(d *Folder) bool {
		walked = append(walked, d.Path)
		if d.UID != uint32(os.Geteuid()) || d.Mode != 0o755 || d.CanOthersWrite() {
			t.Errorf("%s: %+v", d.Path, d.Access)
		}
		if len(walked) == 2 {
			if err := os.Rename(filepath.Join(top, "a"), filepath.Join(top, "moved")); err != nil {
				t.Error(err)
			}
			if err := os.Rename(filepath.Join(top, "planted"), filepath.Join(top, "a")); err != nil {
				t.Error(err)
			}
			if text, err := d.ReadFile("file"); err != nil || string(text.Content) != "the right one" {
				t.Errorf("%q, %v", text.Content, err)
			}
		}
		for _, name := range []string{"none", "folder"} {
			_, rerr := d.ReadFile(name)
			if _, lerr := d.EntryAccess(name); !errors.Is(rerr, os.ErrNotExist) || !errors.Is(lerr, os.ErrNotExist) {
				t.Errorf("%s in %s: %v, %v", name, d.Path, rerr, lerr)
			}
		}
		return len(walked) == 2
	})
	if want := []string{filepath.Join(top, "a", "b"), filepath.Join(top, "a")}; !slices.Equal(walked, want) || last != "" || why != "" || err != nil {
		t.Errorf("walked %v, %q, %q, %v", walked, last, why, err)
	}
}
