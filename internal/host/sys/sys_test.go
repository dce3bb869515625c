package sys_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/sys"
)

const (
	alice   = 4001
	mallory = 4003
)

// opened is a new folder of the caller's, open.
func opened(t *testing.T) *sys.Dir {
	t.Helper()
	d, err := sys.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// must fails the test on the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Mode & 0o7777
}

// TestNoLinkIsFollowed: not as the last part of a path, nor on the way, nor does a path lead out of the folder; with
// openat2 and without.
func TestNoLinkIsFollowed(t *testing.T) {
	d := opened(t)
	at := func(name string) string { return filepath.Join(d.Name(), name) }
	must(t, os.MkdirAll(at("a/b"), 0o755), os.WriteFile(at("a/b/file"), nil, 0o600), os.Symlink("a", at("link")), os.Symlink("b", at("a/link")),
		os.Symlink("file", at("a/b/link")), unix.Mkfifo(at("fifo"), 0o600))
	for path, want := range map[string]error{
		"a/b/file": nil, "a/b": nil, "a": nil, ".": nil, "fifo": nil, // a reader must not wait for its writer
		"link": unix.ELOOP, "link/b/file": unix.ELOOP, "a/link/file": unix.ELOOP, "a/b/link": unix.ELOOP,
		"none": unix.ENOENT, "a/none/file": unix.ENOENT, "a/b/file/x": unix.ENOTDIR, "../x": unix.EXDEV, "a/../../x": unix.EXDEV, "/etc": unix.EXDEV,
	} {
		for _, by := range []struct {
			name string
			open func(dirFD int, path string, flags int) (int, error)
		}{{"openat2", sys.OpenAt}, {"openat", sys.OpenAtParts}} {
			fd, err := by.open(int(d.Fd()), path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK)
			if err == nil {
				_ = unix.Close(fd)
			}
			if onTheWay := errors.Is(err, unix.ENOTDIR) && want == unix.ELOOP; !errors.Is(err, want) && !onTheWay { //nolint:errorlint // an errno
				t.Errorf("%s by %s: %v, want %v", path, by.name, err, want)
			}
		}
	}
	for _, name := range []string{"", "..", "a/b", "/etc"} {
		if err := d.Mkdir(name, 0o755); !errors.Is(err, unix.EINVAL) {
			t.Errorf("mkdir %q: %v", name, err)
		}
	}
}

// TestMovedAway: what happens to the path of an open folder does not matter to what is done in it.
func TestMovedAway(t *testing.T) {
	top := t.TempDir()
	path, decoy := filepath.Join(top, "state"), filepath.Join(top, "decoy")
	must(t, os.Mkdir(path, 0o755), os.Mkdir(decoy, 0o700), os.WriteFile(filepath.Join(decoy, "old"), []byte("mine"), 0o600))
	d, err := sys.OpenDir(path)
	must(t, err)
	defer d.Close() //nolint:errcheck // of a test
	dir, err := d.Dir(".")
	must(t, err)
	defer dir.Close() //nolint:errcheck // of a test
	must(t, os.Rename(path, path+"2"), os.Symlink(decoy, path))
	must(t, dir.SetMode(0o1777), d.Write("old", []byte("new"), 0o644), d.Touch("old"), d.Rename("old", "older"), d.Mkfifo("pipe"), d.Remove("pipe"),
		d.Mkdir("dir", 0o755), d.Rmdir("dir"), d.Touch("."))
	if _, err := d.Create("older"); !errors.Is(err, os.ErrExist) {
		t.Errorf("create what is there: %v", err)
	}
	own, err := d.Own("own", 0o711)
	must(t, err)
	_ = own.Close()
	if text, err := os.ReadFile(filepath.Join(path+"2", "older")); string(text) != "new" || err != nil || mode(t, path+"2") != 0o1777 || mode(t, path+"2/own") != 0o711 {
		t.Errorf("%q, %v, %o", text, err, mode(t, path+"2"))
	}
	names, err := os.ReadDir(decoy)
	if text, _ := os.ReadFile(filepath.Join(decoy, "old")); err != nil || len(names) != 1 || string(text) != "mine" || mode(t, decoy) != 0o700 {
		t.Errorf("the decoy has %v, %q and mode %o", names, text, mode(t, decoy))
	}
}

// TestOwn: a folder of one's own has the mode that is asked for, whatever the umask, and never is what another user put
// there.
func TestOwn(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o777} {
		d := opened(t)
		old := unix.Umask(umask)
		for range 2 {
			own, err := d.Own("own", 0o755)
			if err == nil {
				err = own.Mkdir("inside", 0o700)
				_ = own.Close()
			}
			if err != nil && !errors.Is(err, os.ErrExist) || mode(t, filepath.Join(d.Name(), "own")) != 0o755 {
				t.Errorf("umask %o: %v, mode %o", umask, err, mode(t, filepath.Join(d.Name(), "own")))
			}
		}
		unix.Umask(old)
	}
	d := opened(t)
	must(t, os.Symlink("/tmp", filepath.Join(d.Name(), "link")), os.WriteFile(filepath.Join(d.Name(), "file"), nil, 0o600))
	for _, name := range []string{"link", "file"} {
		var foreign *sys.ForeignError
		if own, err := d.Own(name, 0o755); !errors.As(err, &foreign) || foreign.UID != uint32(os.Geteuid()) {
			t.Errorf("%s: %v, %v", name, own, err)
		}
	}
}

func TestOwnIsNotAnothers(t *testing.T) {
	gate.Need(t, "root")
	d := opened(t)
	must(t, d.Mkdir("theirs", 0o700), os.Chown(filepath.Join(d.Name(), "theirs"), alice, alice))
	var foreign *sys.ForeignError
	if _, err := d.Own("theirs", 0o755); !errors.As(err, &foreign) || foreign.UID != alice || mode(t, filepath.Join(d.Name(), "theirs")) != 0o700 {
		t.Errorf("%v, mode %o", err, mode(t, filepath.Join(d.Name(), "theirs")))
	}
}

// TestLinksOnTheWay: those of root and of the caller are followed on the way to a folder, those of others are not.
func TestLinksOnTheWay(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.MkdirAll(at("real/state"), 0o755), os.Symlink("real", at("link")), os.Symlink(at("link"), at("absolute")),
		os.Symlink("../link/../link", at("real/up")), os.Symlink("round", at("round")), os.WriteFile(at("file"), nil, 0o600))
	for path, want := range map[string]error{
		"real/state": nil, "link/state": nil, "absolute/state": nil, "real/up/state": nil, "link/../link/state/": nil,
		"round/state": unix.ELOOP, "none/state": unix.ENOENT, "file/state": unix.ENOTDIR, "link": unix.ELOOP, "file": unix.ENOTDIR,
	} {
		d, err := sys.OpenDir(at("") + "/" + path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err == nil {
			must(t, d.Mkdir("x", 0o755), d.Rmdir("x"), d.Close())
		}
	}
	t.Chdir(top)
	for _, path := range []string{"/proc/self/cwd/real/state", "/proc/self/root/" + at("real/state"), "/proc/self/cwd/link/state"} {
		d, err := sys.OpenDir(path)
		must(t, err)
		st, err := d.Status()
		var want unix.Stat_t
		must(t, err, unix.Stat(at("real/state"), &want), d.Close())
		if st.Ino != want.Ino || st.Dev != want.Dev {
			t.Errorf("%s leads elsewhere", path)
		}
	}
	d, err := sys.FollowDir(at("link"))
	must(t, err)
	must(t, d.Mkdir("here", 0o755), os.Remove(at("real/here")), d.Close())
	if _, err := sys.OpenDir("real"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a relative path: %v", err)
	}
	if !gate.Has(t, "root") {
		return
	}
	must(t, os.Lchown(at("link"), mallory, mallory))
	for _, path := range []string{"link/state", "absolute/state", "real/up/state"} {
		if d, err := sys.OpenDir(at(path)); err == nil || !strings.Contains(err.Error(), "is a symbolic link of uid 4003, which is not followed") {
			t.Errorf("%s: %v, %v", path, d, err)
		}
	}
	if d, err := sys.FollowDir(at("link")); err == nil {
		t.Errorf("%v was followed", d.Name())
	}
}

// TestMkdir: the folder has its mode or does not exist, and no temporary one is left.
func TestMkdir(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	top := t.TempDir()
	path := filepath.Join(top, "state")
	must(t, sys.Mkdir(path, 0o1777))
	if got := mode(t, path); got != 0o1777 {
		t.Errorf("mode %o", got)
	}
	if err := sys.Mkdir(path, 0o700); !errors.Is(err, os.ErrExist) || mode(t, path) != 0o1777 {
		t.Errorf("%v, mode %o", err, mode(t, path))
	}
	if err := sys.Mkdir(filepath.Join(top, "none", "state"), 0o700); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if names, err := os.ReadDir(top); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestExchangedWhileMade: a folder of the caller's that the owner of the one above puts in the place of the new one is
// none.
func TestExchangedWhileMade(t *testing.T) {
	d := opened(t)
	must(t, os.MkdirAll(filepath.Join(d.Name(), "data/thesis"), 0o700))
	data, err := d.Dir("data")
	must(t, err)
	defer data.Close() //nolint:errcheck // of a test
	if err := data.Fresh(); err == nil {
		t.Error("a folder with something in it is taken for a new one")
	}
	aside, err := d.MakeAside()
	must(t, err)
	must(t, aside.Mkdir("x", 0o700))
	if err := aside.Place("data"); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	must(t, os.Rename(filepath.Join(d.Name(), aside.Unplaced()), filepath.Join(d.Name(), "away")), os.Rename(filepath.Join(d.Name(), "data"), filepath.Join(d.Name(), aside.Unplaced())))
	aside.Discard()
	if _, err := os.Stat(filepath.Join(d.Name(), aside.Unplaced(), "thesis")); err != nil {
		t.Error(err)
	}
}

// TestWriteLeavesNothing: a file that cannot be written to its end is not there.
func TestWriteLeavesNothing(t *testing.T) {
	d := opened(t)
	must(t, d.Write("there", []byte("x"), 0o640))
	if got := mode(t, filepath.Join(d.Name(), "there")); got != 0o640 {
		t.Errorf("mode %o", got)
	}
	if err := d.Write("there", []byte("y"), 0o600); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if text, _ := os.ReadFile(filepath.Join(d.Name(), "there")); string(text) != "x" {
		t.Errorf("%q", text)
	}
}

// TestReplace: the file has all of its text and its mode, and no temporary file is left after an error.
func TestReplace(t *testing.T) {
	d := opened(t)
	for _, text := range []string{"one", "two"} {
		must(t, d.Replace("file", []byte(text), 0o644))
		if got, err := os.ReadFile(filepath.Join(d.Name(), "file")); string(got) != text || err != nil || mode(t, filepath.Join(d.Name(), "file")) != 0o644 {
			t.Errorf("%q, %v", got, err)
		}
	}
	must(t, d.Mkdir("dir", 0o700))
	if err := d.Replace("dir", []byte("x"), 0o644); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if names, err := os.ReadDir(d.Name()); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestPublish: an unnamed file gets a free name, and replaces no file.
func TestPublish(t *testing.T) {
	d := opened(t)
	file, err := d.CreateTemp()
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the file system has no files without a name")
	}
	must(t, err)
	defer file.Close() //nolint:errcheck // of a test
	_, err = file.WriteString("text")
	must(t, err, os.WriteFile(filepath.Join(d.Name(), "taken"), nil, 0o600))
	if err := d.LinkFile(file, "taken"); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	must(t, d.LinkFile(file, "file"))
	if got, err := os.ReadFile(filepath.Join(d.Name(), "file")); string(got) != "text" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestMkdirAll: missing folders are made one in the other, and root makes none at the target of another user's link.
func TestMkdirAll(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.Mkdir(at("real"), 0o755), os.Symlink("real", at("link")), os.WriteFile(at("file"), nil, 0o600))
	for range 2 {
		must(t, sys.MkdirAll(at("link/a/b"), 0o700))
	}
	if got := mode(t, at("real/a/b")); got != 0o700 {
		t.Errorf("mode %o", got)
	}
	if err := sys.MkdirAll(at("file/a"), 0o700); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
	t.Chdir(at("real"))
	must(t, sys.MkdirAll("c/d", 0o700))
	if got := mode(t, at("real/c/d")); got != 0o700 {
		t.Errorf("mode %o", got)
	}
	if gate.Has(t, "root") {
		must(t, os.Lchown(at("link"), mallory, mallory))
		if err := sys.MkdirAll(at("link/e/f"), 0o700); err == nil || !strings.Contains(err.Error(), "symbolic link of uid 4003") {
			t.Error(err)
		}
		if _, err := os.Lstat(at("real/e")); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestMake: the mode is the one that is asked for, and a folder that is there already is left alone.
func TestMake(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	d := opened(t)
	must(t, d.MakeFolder("dir", 0o755))
	if got := mode(t, filepath.Join(d.Name(), "dir")); got != 0o755 {
		t.Errorf("mode %o", got)
	}
	if err := d.MakeFolder("dir", 0o700); !errors.Is(err, os.ErrExist) || mode(t, filepath.Join(d.Name(), "dir")) != 0o755 {
		t.Errorf("%v", err)
	}
}
