package atomicfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

func file(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.sh")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// holds fails unless the file has the text, and nothing else lies in its folder.
func holds(t *testing.T, path, want string) {
	t.Helper()
	have, err := os.ReadFile(path)
	if err != nil || string(have) != want {
		t.Errorf("%s holds %q, %v; want %q", path, have, err, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".gpuard") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestReplace(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o755, 0o600, 0o664, 0o755 | os.ModeSetuid} {
		path := file(t, "old\n", mode)
		marked := unix.Setxattr(path, "user.note", []byte("mine"), 0) == nil
		if err := ReplaceText(path, []byte("old\n"), []byte("new\n")); err != nil {
			t.Fatal(err)
		}
		holds(t, path, "new\n")
		info, err := os.Stat(path)
		if err != nil || info.Mode() != mode {
			t.Errorf("mode %v, want %v (%v)", info.Mode(), mode, err)
		}
		value := make([]byte, 16)
		if n, err := unix.Getxattr(path, "user.note", value); marked && (err != nil || !bytes.Equal(value[:n], []byte("mine"))) {
			t.Errorf("the extended attribute is %q, %v", value[:max(n, 0)], err)
		}
	}
}

func TestReplaceRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		prepare    func(t *testing.T, path string) string
	}{
		{"a symbolic link", "symbolic link", func(t *testing.T, path string) string {
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			return link
		}},
		{"a file with two names", "hard links", func(t *testing.T, path string) string {
			if err := os.Link(path, path+"2"); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"another text", "changed meanwhile", func(t *testing.T, path string) string {
			if err := os.WriteFile(path, []byte("edited\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"a file that its mode protects, although its folder would allow it", "read-only", func(t *testing.T, path string) string {
			if err := os.Chmod(path, 0o444); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"no file", "no such file", func(_ *testing.T, path string) string { return path + ".gone" }},
		{"a folder", "not a regular file", func(_ *testing.T, path string) string { return filepath.Dir(path) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, "old\n", 0o644)
			target := c.prepare(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := ReplaceText(target, []byte("old\n"), []byte("new\n")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a refusal with %q", err, c.want)
			}
			holds(t, path, string(before))
		})
	}
}

// TestCreate: a file gets its mode whatever the umask, replaces no other file, and is removed only if unchanged.
func TestCreate(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	for _, mode := range []os.FileMode{0o644, 0o755, 0o600} {
		path := filepath.Join(t.TempDir(), "new")
		for _, want := range []error{nil, os.ErrExist} {
			if err := Create(path, []byte("new\n"), mode); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		holds(t, path, "new\n")
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("mode %v, want %v (%v)", info.Mode(), mode, err)
		}
		if err := Remove(path, []byte("other\n")); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
			t.Errorf("what somebody changed is removed: %v", err)
		}
		holds(t, path, "new\n")
		if err := Remove(path, []byte("new\n")); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// TestFree: a folder takes files, even one that does not exist yet; a file does not, nor does another user's folder.
func TestFree(t *testing.T) {
	path := file(t, "", 0o755)
	if err := CheckWritable(filepath.Join(filepath.Dir(path), "a/b/c")); err != nil {
		t.Error(err)
	}
	if err := CheckWritable(filepath.Join(path, "a")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
	for dir, mode := range map[string]os.FileMode{filepath.Dir(path): 0o555, filepath.Dir(filepath.Dir(path)): 0o755} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) //nolint:gosec // else only root can remove what lies in it
	}
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the user that it has
		if os.Getuid() == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534)
		}
		refused <- CheckWritable(path)
	}()
	if err := <-refused; !errors.Is(err, unix.EACCES) {
		t.Errorf("in a folder that is not to be written: %v", err)
	}
}

// TestRootFollowsNoLinkOfOthers: the owner of a folder in which root changes a file cannot redirect that change by a
// link, made before or meanwhile.
func TestRootFollowsNoLinkOfOthers(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	home, etc := t.TempDir(), t.TempDir()
	link, target := filepath.Join(home, "link"), filepath.Join(etc, "file")
	if err := errors.Join(os.WriteFile(target, []byte("old\n"), 0o644), os.Symlink(etc, link), os.Lchown(link, mallory, mallory)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"created":  Create(filepath.Join(link, "new"), []byte("new\n"), 0o644),
		"replaced": ReplaceText(filepath.Join(link, "file"), []byte("old\n"), []byte("new\n")),
		"removed":  Remove(filepath.Join(link, "file"), []byte("old\n")),
	} {
		if err == nil || !strings.Contains(err.Error(), "symbolic link of uid 4003") {
			t.Errorf("%s through a link: %v", what, err)
		}
	}
	holds(t, target, "old\n")
	if names, err := os.ReadDir(etc); err != nil || len(names) != 1 {
		t.Errorf("there is %v now, %v", names, err)
	}

	dir := filepath.Join(home, "dir")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("old\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p, err := openFolderOf(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	old, err := p.checkReplaceable()
	if err := errors.Join(err, os.Rename(dir, dir+"2"), os.Symlink(etc, dir), replaceOld(p, old, []byte("old\n"), []byte("new\n"))); err != nil {
		t.Error(err)
	}
	holds(t, target, "old\n")
	holds(t, filepath.Join(dir+"2", "file"), "new\n")
}
