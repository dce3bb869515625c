package sys_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/sys"
)

// TestGuarded: a path that another user could exchange is not guarded, even if it is right now. Members of a group are
// other users.
func TestGuarded(t *testing.T) {
	top := filepath.Join(reachable(t), "top")
	state := filepath.Join(top, "state")
	must(t, os.MkdirAll(state, 0o755))
	opened := func(path string) error {
		dir, err := sys.OpenOwnFolder(path, 0)
		if err == nil {
			err = dir.Close()
		}
		return err
	}
	if err := opened(state); err != nil {
		t.Error(err)
	}
	const group = 4077 // of nobody
	if gate.Has(t, "root") {
		must(t, os.Chown(top, 0, group))
	}
	for bits, want := range map[uint32]string{0o777: "chmod +t " + top, 0o1777: "", 0o775: "chmod g-w " + top, 0o1775: "", 0o757: "chmod +t " + top, 0o700: ""} {
		if bits == 0o775 && !gate.Has(t, "root") { // the caller's group may be its own
			continue
		}
		must(t, unix.Chmod(top, bits))
		if err := opened(state); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %o: %v", bits, err)
		}
	}
	must(t, unix.Chmod(top, 0o755))
	if err := opened(state + "/none"); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	if gate.Has(t, "root") {
		must(t, os.Chown(top, mallory, mallory))
		if err := opened(state); err == nil || !strings.Contains(err.Error(), top+" belongs to uid 4003") {
			t.Error(err)
		}
	}
}

// TestOpenOwn: the folder belongs to the caller alone, with those above it, and nothing is made where it would not.
func TestOpenOwn(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	makeAt := func(path string) error {
		dir, err := sys.OpenOwnFolder(path, 0o700)
		if err == nil {
			err = errors.Join(dir.Write("file", nil, 0o600), dir.Remove("file"), dir.Close())
		}
		return err
	}
	must(t, makeAt(at("a/b/c")), makeAt(at("a/b/c")), os.Symlink("a", at("link")), makeAt(at("link/d")))
	for _, path := range []string{"a", "a/b", "a/b/c", "a/d"} {
		if got := mode(t, at(path)); got != 0o700 {
			t.Errorf("%s has mode %o", path, got)
		}
	}
	must(t, os.Mkdir(at("open"), 0o700), unix.Chmod(at("open"), 0o1777), makeAt(at("open/mine")))
	for path, want := range map[string]string{"open": "others may write in " + at("open"), "file/x": "not a directory"} {
		must(t, os.WriteFile(at("file"), nil, 0o600))
		if err := makeAt(at(path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	must(t, unix.Chmod(at("open"), 0o777))
	if err := makeAt(at("open/x/y")); err == nil || !strings.Contains(err.Error(), "all users may write in "+at("open")) {
		t.Error(err)
	}
	if _, err := os.Lstat(at("open/x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made all the same: %v", err)
	}
	if dir, err := sys.OpenOwnFolder(at("none"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", dir, err)
	}
}

// TestOpenOwnAmongOthers: not even root makes or opens anything behind a link or in a folder of another user, nor where
// a group may write.
func TestOpenOwnAmongOthers(t *testing.T) {
	gate.Need(t, "root")
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.Mkdir(at("home"), 0o755), os.Mkdir(at("sticky"), 0o755), unix.Chmod(at("sticky"), 0o1777), os.Mkdir(at("team"), 0o755), os.Chown(at("team"), 0, alice), unix.Chmod(at("team"), 0o2775),
		os.Symlink("../home", at("sticky/link")), os.Lchown(at("sticky/link"), mallory, mallory), os.Mkdir(at("sticky/theirs"), 0o755), os.Chown(at("sticky/theirs"), mallory, mallory))
	for path, want := range map[string]string{
		"sticky/link/queue": "is a symbolic link of uid 4003", "sticky/link": "is a symbolic link of uid 4003", "sticky/theirs/queue": "belongs to uid 4003", "sticky/theirs": "belongs to uid 4003",
		"team/queue": "the group 4001 may write in " + at("team"),
	} {
		for name, by := range map[string]func() (*sys.Dir, error){"make": func() (*sys.Dir, error) { return sys.OpenOwnFolder(at(path), 0o700) }, "open": func() (*sys.Dir, error) { return sys.OpenOwnFolder(at(path), 0) }} {
			if dir, err := by(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, %v", name, path, dir, err)
			}
		}
	}
	for _, path := range []string{"home", "sticky/theirs", "team"} {
		if made, err := os.ReadDir(at(path)); err != nil || len(made) > 0 {
			t.Errorf("%s has %v, %v", path, made, err)
		}
	}
}

// reachable is a new folder that other users can come to.
func reachable(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	must(t, unix.Chmod(filepath.Dir(top), 0o755))
	return top
}

// TestShutIn: what a group may write is the caller's alone below a folder that only the caller may enter; not where
// a link leads out of it, what is above it, nor what is mounted there, which others may reach elsewhere.
func TestShutIn(t *testing.T) {
	gate.Need(t, "root")
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	for _, path := range []string{"home", "home/.local", "home/.local/state", "home/all", "open", "open/team", "open/team/x", "closed by others"} {
		must(t, os.Mkdir(at(path), 0o755))
	}
	const group = 4077 // of nobody
	for _, path := range []string{"home/.local", "home/.local/state", "open/team"} {
		must(t, os.Chown(at(path), 0, group), unix.Chmod(at(path), 0o2775))
	}
	must(t, unix.Chmod(at("home/all"), 0o777), os.Symlink("../open", at("home/out")), os.Symlink(at("open"), at("home/away")),
		os.Symlink(".local", at("home/in")))
	for mode, shut := range map[uint32]bool{0o700: true, 0o744: true, 0o755: false, 0o710: false, 0o701: false} {
		must(t, unix.Chmod(at("home"), mode))
		for path, fine := range map[string]bool{
			"home/.local/state/queue": shut, "home/.local": shut, "home/in/state": shut, "open/../home/.local": shut,
			"home/all": false, "home/out/team/x": false, "home/away/team/x": false, "home/.local/../../open/team/x": false,
		} {
			path := top + "/" + path
			if err := closed(sys.OpenOwnFolder(path, 0o700)); (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "may write in ") {
				t.Errorf("mode %o, %s: %v", mode, path, err)
			}
		}
	}
	must(t, unix.Chmod(at("home"), 0o700), os.Chown(at("home"), mallory, mallory))
	if err := closed(sys.OpenOwnFolder(at("home/.local"), 0)); err == nil {
		t.Error("closed by another user")
	}
}

// TestShutInByMounts: a mount below a closed folder is not closed by it.
func TestShutInByMounts(t *testing.T) {
	gate.Need(t, "root")
	gate.Need(t, "mountns")
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.MkdirAll(at("home/lab"), 0o755), os.MkdirAll(at("lab/team"), 0o755), os.Chown(at("lab/team"), 0, 4077), unix.Chmod(at("lab/team"), 0o775))
	must(t, unix.Chmod(at("home"), 0o700))
	err := onThread(func() error {
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
			return err
		}
		if err := unix.Mount(at("lab"), at("home/lab"), "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return closed(sys.OpenOwnFolder(at("home/lab/team"), 0))
	})
	if err == nil || !strings.Contains(err.Error(), "the group 4077 may write") {
		t.Error(err)
	}
}

// onThread calls f on a thread that ends after it, so that f may change its namespaces. It is not the first one, whose
// folder is that of /proc/self.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			result <- f()
			return
		}
		err := onThread(f)
		runtime.UnlockOSThread()
		result <- err
	}()
	return <-result
}

// TestOwnGroup: a group counts as its user's own only where the machine's own files show nobody else in it.
func TestOwnGroup(t *testing.T) {
	const users, groups = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\ncem:x:1002:100::/:/bin/sh\ndan:x:1003:1003::/:\n",
		"root:x:0:\nusers:x:100:\nann:x:1000:\nstaff:x:50:ann\ndan:x:1003:ann\neve:x:1004:eve\n"
	for name, tt := range map[string]struct {
		users, groups string
		uid, gid      uint32
		want          bool
	}{
		"her own":                       {users, groups, 1000, 1000, true},
		"her own, with her as a member": {users, strings.Replace(groups, "ann:x:1000:", "ann:x:1000:ann", 1), 1000, 1000, true},
		"another is a member":           {users, strings.Replace(groups, "ann:x:1000:", "ann:x:1000:ann,bob", 1), 1000, 1000, false},
		"only another is a member":      {users, groups, 1003, 1003, false},
		"that of all users":             {users, groups, 1001, 100, false},
		"one that she is a member of":   {users, groups, 1000, 50, false},
		"of another user":               {users, groups, 1001, 1000, false},
		"a user of a directory service": {users, groups, 1004, 1004, false},
		"a group of one":                {users, "", 1000, 1000, false},
		"twice, and not the same":       {users, groups + "ann2:x:1000:bob\n", 1000, 1000, false},
		"root's":                        {users, groups, 0, 0, true},
	} {
		if got := sys.HasAlone(tt.users, tt.groups, tt.uid, tt.gid); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
