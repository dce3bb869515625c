package sys_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/sys"
)

const appended = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT

// TestOpenFile: links of one's own lead where they lead, also to what is not there yet; a pipe is not waited for, and
// nothing but a file, a pipe or a device is written into.
func TestOpenFile(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.MkdirAll(at("dotfiles"), 0o755), os.WriteFile(at("dotfiles/bashrc"), nil, 0o600), os.Symlink("dotfiles/bashrc", at(".bashrc")),
		os.Symlink("dotfiles", at("folder")), os.Symlink("folder/new", at("dangling")), os.Symlink("round", at("round")), unix.Mkfifo(at("pipe"), 0o600))
	for path, where := range map[string]string{
		"plain": "plain", ".bashrc": "dotfiles/bashrc", "folder/../x": "x", "dangling": "dotfiles/new", "folder/./y": "dotfiles/y",
	} {
		file, err := sys.OpenFile(top+"/"+path, appended, 0o600)
		must(t, err)
		_, err = io.WriteString(file, path)
		must(t, err, file.Close())
		if text, err := os.ReadFile(at(where)); err != nil || string(text) != path {
			t.Errorf("%s: %q, %v", where, text, err)
		}
	}
	for path, want := range map[string]error{
		"pipe": unix.ENXIO, "round": unix.ELOOP, "none/x": unix.ENOENT, "plain/x": unix.ENOTDIR, "dotfiles": unix.EISDIR, "new/": unix.EISDIR, "..": unix.EISDIR,
	} {
		if _, err := sys.OpenFile(top+"/"+path, appended, 0o600); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}

	t.Chdir(top)
	file, err := sys.OpenFile("plain", unix.O_WRONLY|unix.O_TRUNC, 0)
	must(t, err, file.Close())
	if text, err := os.ReadFile("plain"); err != nil || len(text) > 0 {
		t.Errorf("emptied: %q, %v", text, err)
	}
	for _, path := range []string{"plain", "dangling"} {
		if _, err := sys.OpenFile(path, appended|unix.O_EXCL, 0o600); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s made anew: %v", path, err)
		}
	}
	read, write, err := os.Pipe()
	must(t, err)
	for _, path := range []string{"/dev/null", "/dev/fd/" + strconv.Itoa(int(write.Fd())), "/proc/self/fd/" + strconv.Itoa(int(write.Fd()))} {
		file, err := sys.OpenFile(path, appended, 0o600)
		must(t, err)
		_, err = file.WriteString("x")
		must(t, err, file.Close())
	}
	must(t, write.Close())
	if text, err := io.ReadAll(read); err != nil || string(text) != "xx" {
		t.Errorf("the pipe has %q, %v", text, err)
	}
}

// TestOpenFileOfOthers: nobody can lead the caller to another file by what lies in a folder, whoever may write there.
func TestOpenFileOfOthers(t *testing.T) {
	gate.Need(t, "root")
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.WriteFile(at("precious"), []byte("old"), 0o600), os.Mkdir(at("etc"), 0o755))
	for name, mode := range map[string]uint32{"home": 0o755, "tmp": 0o1777, "team": 0o2775} {
		must(t, os.Mkdir(at(name), 0o755), unix.Chmod(at(name), mode))
	}
	must(t, os.Chown(at("home"), mallory, mallory), os.Chown(at("team"), 0, 4100))
	for _, where := range []string{"home", "tmp", "team"} {
		for what, lay := range map[string]func(path string) error{
			"a symbolic link": func(path string) error {
				return errors.Join(os.Symlink(at("precious"), path), os.Lchown(path, mallory, mallory))
			},
			"to what is not": func(path string) error {
				return errors.Join(os.Symlink(at("etc/new"), path), os.Lchown(path, mallory, mallory))
			},
			"another name": func(path string) error { return os.Link(at("precious"), path) },
			"a file of others": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o666), os.Chown(path, alice, alice))
			},
			"a pipe of others": func(path string) error { return errors.Join(unix.Mkfifo(path, 0o666), os.Chown(path, alice, alice)) },
		} {
			path := filepath.Join(at(where), "log")
			must(t, lay(path))
			for _, flags := range []int{appended, appended | unix.O_TRUNC, unix.O_RDWR} {
				if file, err := sys.OpenFile(path, flags|unix.O_CREAT, 0o600); err == nil {
					t.Errorf("%s in %s was opened: %v", what, where, file.Close())
				}
			}
			must(t, os.Remove(path))
		}
		led := filepath.Join(at(where), "led")
		must(t, os.Symlink(at("etc"), led), os.Lchown(led, mallory, mallory))
		if _, err := sys.OpenFile(led+"/new", appended, 0o600); err == nil || !strings.Contains(err.Error(), led+" is a symbolic link of uid 4003, which is not followed") {
			t.Errorf("through a folder's link: %v", err)
		}
		if err := sys.MkdirAll(led+"/new", 0o700); err == nil {
			t.Error("a folder was made through a link")
		}
		if where, err := sys.ResolvePath(led); err == nil {
			t.Errorf("it leads to %s", where)
		}
	}
	if text, err := os.ReadFile(at("precious")); err != nil || string(text) != "old" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if made, err := os.ReadDir(at("etc")); err != nil || len(made) > 0 {
		t.Errorf("made there: %v, %v", made, err)
	}
}

// TestOpenFileOfTheOwner: root writes into the files of a user in that user's folder, and a group into those of each
// other.
func TestOpenFileOfTheOwner(t *testing.T) {
	gate.Need(t, "root")
	top := t.TempDir()
	home, own := filepath.Join(top, "home"), filepath.Join(top, "own")
	must(t, os.Mkdir(home, 0o700), os.Mkdir(own, 0o755), os.Chown(home, alice, alice))
	must(t, os.WriteFile(filepath.Join(home, "of alice"), nil, 0o600), os.Chown(filepath.Join(home, "of alice"), alice, alice),
		os.WriteFile(filepath.Join(home, "of root"), nil, 0o600), os.WriteFile(filepath.Join(own, "of others"), nil, 0o600),
		os.Chown(filepath.Join(own, "of others"), mallory, mallory))
	for _, path := range []string{home + "/of alice", home + "/of root", home + "/new", own + "/of others"} {
		file, err := sys.OpenFile(path, appended, 0o600)
		must(t, err, file.Close())
	}
}

// TestOpenFileOfAGroup: whether others may write in a folder has the answer that a queue's folder has: also of a
// group that has the number of the folder's owner, which says nothing of its members.
func TestOpenFileOfAGroup(t *testing.T) {
	gate.Need(t, "root")
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	must(t, os.Mkdir(at("team"), 0o755), os.Mkdir(at("home"), 0o700), os.Mkdir(at("home/log"), 0o755))
	for path, fine := range map[string]bool{"team": false, "home/log": true} {
		must(t, os.WriteFile(at("file"), nil, 0o600), os.Chown(at(path), 0, 4077), unix.Chmod(at(path), 0o775), os.Link(at("file"), at(path+"/x")), os.Remove(at("file")),
			os.Link(at(path+"/x"), at(path+"/y")))
		if err := closed(sys.OpenFile(at(path+"/x"), appended, 0o600)); (err == nil) != fine {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestLinkUndone: where users can link files of others, one that is the caller's may have had its name in a folder that
// others write only as a second one, which is gone when it is counted. So it is taken only as this process made it.
func TestLinkUndone(t *testing.T) {
	gate.Need(t, "root")
	sys.LinkAll(t)
	top := reachable(t)
	at := func(name string) string { return filepath.Join(top, name) }
	for _, folder := range []struct {
		name string
		mode uint32
		uid  int
		fine bool
	}{{"home", 0o700, alice, false}, {"tmp", 0o1777, 0, true}, {"theirs", 0o1777, alice, false}, {"team", 0o777, 0, false}, {"own", 0o755, 0, true}} {
		must(t, os.Mkdir(at(folder.name), 0o755), unix.Chmod(at(folder.name), folder.mode), os.Chown(at(folder.name), folder.uid, -1))
		path := at(folder.name + "/log")
		if err := closed(sys.OpenFile(path, appended, 0o600)); err != nil {
			t.Errorf("%s, a new file: %v", folder.name, err)
		}
		err := closed(sys.OpenFile(path, appended, 0o600))
		if (err == nil) != folder.fine || err != nil && !strings.Contains(err.Error(), "sysctl fs.protected_hardlinks=1") {
			t.Errorf("%s, a file that was there: %v", folder.name, err)
		}
	}
	path := at("home/hers")
	must(t, os.WriteFile(path, nil, 0o600), os.Chown(path, alice, alice), closed(sys.OpenFile(path, appended, 0)))
}

// TestMountedAtFirstUse: a folder of an automounter has what belongs there, because each place on the way is asked for as
// a folder. The automounter is pretended: it fills the folder as autofs does, for open(2) with O_DIRECTORY alone.
func TestMountedAtFirstUse(t *testing.T) {
	for name, use := range map[string]func(path string) error{
		"a file":    func(path string) error { return closed(sys.OpenFile(path+"/x.log", unix.O_WRONLY, 0)) },
		"a new one": func(path string) error { return closed(sys.OpenFile(path+"/sub/x.log", appended, 0o600)) },
		"its place": func(path string) error { _, err := sys.ResolvePath(path + "/x.log"); return err },
		"a folder":  func(path string) error { return closed(sys.OpenOwnFolder(path+"/sub", 0)) },
		"a link":    func(path string) error { return closed(sys.OpenOwnFolder(path+"/link", 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "me")
			must(t, os.Mkdir(folder, 0o755))
			sys.SetOpenat(t, func(at int, name string, flags int, mode uint32) (int, error) {
				if name == "me" && flags&unix.O_DIRECTORY != 0 {
					err := errors.Join(os.MkdirAll(folder+"/sub", 0o755), os.WriteFile(folder+"/x.log", nil, 0o600))
					if err = errors.Join(err, os.Symlink("sub", folder+"/link")); err != nil && !errors.Is(err, os.ErrExist) {
						t.Error(err)
					}
				}
				return unix.Openat(at, name, flags, mode)
			})
			if err := use(folder); err != nil {
				t.Error(err)
			}
		})
	}
}

// closed closes what was opened.
func closed[C io.Closer](file C, err error) error {
	if err != nil {
		return err
	}
	return file.Close()
}
