package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// projectFolders are folders in which projects' files are planted.
type projectFolders struct {
	t     *testing.T
	top   string // belongs to the test's user, and no other user can write it
	state string
}

func newProjectFolders(t *testing.T) *projectFolders {
	t.Helper()
	g := &projectFolders{t: t, top: quietDir(t), state: stateFolder(t)}
	for dir, mode := range map[string]fs.FileMode{g.top: 0o755, filepath.Dir(g.top): 0o755, filepath.Dir(g.state): 0o755} {
		if err := os.Chmod(dir, mode); err != nil { // else other users could not enter
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(g.state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(g.state, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return g
}

// setOwner gives a file or folder its owner, group and mode.
func (g *projectFolders) setOwner(path string, uid, gid int, mode fs.FileMode) string {
	g.t.Helper()
	err := os.Lchown(path, uid, gid)
	if info, lerr := os.Lstat(path); err == nil && lerr == nil && info.Mode()&fs.ModeSymlink == 0 {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return path
}

func (g *projectFolders) makeFolder(name string, uid, gid int, mode fs.FileMode) string {
	g.t.Helper()
	path := filepath.Join(g.top, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		g.t.Fatal(err)
	}
	return g.setOwner(path, uid, gid, mode)
}

// tracePath is what the planted file of a folder writes when it is run.
func tracePath(dir string) string { return filepath.Join(dir, "ran") }

// writeProject writes a project's file with a service that leaves a trace in /tmp of the test.
func (g *projectFolders) writeProject(dir, trace string, uid, gid int, mode fs.FileMode) string {
	g.t.Helper()
	path := filepath.Join(dir, "gpuard.yaml")
	text := fmt.Sprintf("services:\n  a:\n    cpu: true\n    workdir: /\n    command: [sh, -c, 'echo >> %s']\n", trace)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return g.setOwner(path, uid, gid, mode)
}

// runUp brings up what is found in a folder, as a user.
func (g *projectFolders) runUp(uid int, dir string, env []string, args ...string) runResult {
	g.t.Helper()
	cmd := gpuardCommand(g.t, g.state, append([]string{"HOME=/nonexistent", "SUDO_UID="}, env...), append([]string{"--machine", "demo:1xL4", "up"}, args...)...)
	if uid != os.Geteuid() {
		asUser(uint32(uid), cmd)
	}
	cmd.Dir = dir
	return runCommand(g.t, cmd)
}

// TestProjectOfAnotherUser: a gpuard.yaml that was found runs nothing unless it, and each folder up to it, belongs to
// the caller or to root and no other user can write it. It is named in the error, and named on the command line it is
// run.
func TestProjectOfAnotherUser(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	name := proc.New("/proc").User(bobUID)
	cases := map[string]struct {
		uid    int
		make   func(g *projectFolders, trace string) (here string)
		env    []string
		refuse string // "" it is run
	}{
		"root in bob's folder": {0, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("b", bobUID, bobUID, 0o755)
			g.writeProject(dir, trace, bobUID, bobUID, 0o644)
			return dir
		}, nil, "it belongs to " + name + ", and what it says would be run; name it if you trust it: --file "},
		"sudo in bob's own folder": {0, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("b", bobUID, bobUID, 0o755)
			g.writeProject(dir, trace, bobUID, bobUID, 0o644)
			return dir
		}, []string{"SUDO_UID=1"}, "would be run by root; leave out sudo, which gpuard does not need, or name it if you trust it: --file "},
		"planted in a shared folder": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("pub", 0, 0, 0o777|fs.ModeSticky)
			g.writeProject(dir, trace, bobUID, bobUID, 0o644)
			return dir
		}, nil, "it belongs to " + name},
		"planted above": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("pub", 0, 0, 0o777|fs.ModeSticky)
			g.writeProject(dir, trace, bobUID, bobUID, 0o644)
			return g.makeFolder("pub/a/deep", aliceUID, aliceUID, 0o755)
		}, nil, "it belongs to " + name},
		"own file in a shared folder": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("pub", 0, 0, 0o777|fs.ModeSticky)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o644)
			return dir
		}, nil, "others than root can write its folder "},
		"own file above a shared folder": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, aliceUID, 0o755)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o644)
			return g.makeFolder("a/pub", aliceUID, aliceUID, 0o777)
		}, nil, "others than you can write its folder "},
		"own file in another's folder": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("b", bobUID, bobUID, 0o755)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o644)
			return dir
		}, nil, "its folder "},
		"everybody may write it": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, aliceUID, 0o755)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o666)
			return dir
		}, nil, "others than you can write it (mode 0666; chmod go-w "},
		"a group may write it": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, aliceUID, 0o755)
			g.writeProject(dir, trace, aliceUID, bobUID, 0o664)
			return dir
		}, nil, "others than you can write it (mode 0664; chmod go-w "},
		"a group may write the folder": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, bobUID, 0o775)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o644)
			return dir
		}, nil, "others than you can write its folder "},
		"a link to another's file": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, aliceUID, 0o755)
			target := g.writeProject(g.makeFolder("b", bobUID, bobUID, 0o755), trace, bobUID, bobUID, 0o644)
			link := filepath.Join(dir, "gpuard.yaml")
			if err := os.Symlink(target, link); err != nil {
				g.t.Fatal(err)
			}
			g.setOwner(link, aliceUID, aliceUID, 0)
			return dir
		}, nil, "it belongs to " + name},
		"a link of another": {aliceUID, func(g *projectFolders, trace string) string {
			target := g.writeProject(g.makeFolder("a", aliceUID, aliceUID, 0o755), trace, aliceUID, aliceUID, 0o644)
			dir := g.makeFolder("pub", 0, 0, 0o777|fs.ModeSticky)
			link := filepath.Join(dir, "gpuard.yaml")
			if err := os.Symlink(target, link); err != nil {
				g.t.Fatal(err)
			}
			g.setOwner(link, bobUID, bobUID, 0)
			return dir
		}, nil, "it belongs to " + name},
		"own": {aliceUID, func(g *projectFolders, trace string) string {
			g.writeProject(g.makeFolder("a", aliceUID, aliceUID, 0o755), trace, aliceUID, aliceUID, 0o644)
			return g.makeFolder("a/src/deep", aliceUID, aliceUID, 0o755)
		}, nil, ""},
		"own, of a group of the user's own": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("a", aliceUID, aliceUID, 0o775)
			g.writeProject(dir, trace, aliceUID, aliceUID, 0o664)
			return dir
		}, nil, ""},
		"of root": {aliceUID, func(g *projectFolders, trace string) string {
			dir := g.makeFolder("r", 0, 0, 0o755)
			g.writeProject(dir, trace, 0, 0, 0o644)
			return dir
		}, nil, ""},
		"a link of one's own": {aliceUID, func(g *projectFolders, trace string) string {
			target := g.writeProject(g.makeFolder("a", aliceUID, aliceUID, 0o755), trace, aliceUID, aliceUID, 0o644)
			dir := g.makeFolder("c", aliceUID, aliceUID, 0o755)
			link := filepath.Join(dir, "gpuard.yaml")
			if err := os.Symlink(target, link); err != nil {
				g.t.Fatal(err)
			}
			g.setOwner(link, aliceUID, aliceUID, 0)
			return dir
		}, nil, ""},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			g := newProjectFolders(t)
			trace := tracePath(g.makeFolder("traces", 0, 0, 0o777))
			here := c.make(g, trace)
			got := g.runUp(c.uid, here, c.env)
			_, err := os.Stat(trace)
			if c.refuse == "" {
				if got.code != 0 || err != nil {
					t.Errorf("it was not run: exit %d, %s; %v", got.code, got.err, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("it was run: exit %d, %s", got.code, got.err)
			}
			if got.code != 2 || !strings.HasPrefix(got.err, "gpuard: cannot use "+g.top) || !strings.Contains(got.err, c.refuse) {
				t.Errorf("exit %d, %q; want %q", got.code, got.err, c.refuse)
			}
			_, file, _ := strings.Cut(strings.TrimSpace(got.err), "--file ")
			if got := g.runUp(c.uid, here, c.env, "--file", file); got.code != 0 {
				t.Errorf("--file %q: exit %d, %s", file, got.code, got.err)
			}
			if _, err := os.Stat(trace); err != nil {
				t.Errorf("named, it was not run: %v", err)
			}
		})
	}
}

// TestProjectFoundWhere: the search for a gpuard.yaml ends with the home folder, with the root of a git repository and
// at the border of the file system; what others can write is refused without any other user.
func TestProjectFoundWhere(t *testing.T) {
	t.Parallel()
	me := os.Geteuid()
	g := newProjectFolders(t)
	trace := tracePath(g.top)
	g.writeProject(g.top, trace, me, os.Getegid(), 0o644)
	home := g.makeFolder("home", me, os.Getegid(), 0o755)
	repository := g.makeFolder("repository", me, os.Getegid(), 0o755)
	worktree := g.makeFolder("worktree", me, os.Getegid(), 0o755)
	g.makeFolder("repository/.git", me, os.Getegid(), 0o755)
	if err := os.WriteFile(filepath.Join(worktree, ".git"), []byte("gitdir: elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, why := range map[string]string{
		g.makeFolder("home/a/b", me, os.Getegid(), 0o755):     home + " (your home folder)",
		g.makeFolder("repository/a", me, os.Getegid(), 0o755): repository + " (the root of a git repository)",
		g.makeFolder("worktree/a", me, os.Getegid(), 0o755):   worktree + " (the root of a git repository)",
		"/proc/sys/kernel": "/proc (where its file system begins)",
		filepath.Join(g.makeFolder("x", me, os.Getegid(), 0o755)): "",
	} {
		got := g.runUp(me, dir, []string{"HOME=" + home})
		if why == "" {
			if _, err := os.Stat(trace); got.code != 0 || err != nil {
				t.Errorf("above %s: exit %d, %s; %v", dir, got.code, got.err, err)
			}
			_ = os.Remove(trace)
			continue
		}
		want := "gpuard: cannot find a project: there is no gpuard.yaml in " + dir + " or above, up to " + why + "; write one, or name it: --file FILE\n"
		if got.code != 2 || got.err != want {
			t.Errorf("%s: exit %d, %q; want %q", dir, got.code, got.err, want)
		}
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("what lies beyond the border was run")
	}
	for _, dir := range []string{home, repository} { // itself it belongs to what is looked at
		g.writeProject(dir, trace, me, os.Getegid(), 0o644)
		if got := g.runUp(me, filepath.Join(dir, "a"), []string{"HOME=" + home}); got.code != 0 {
			t.Errorf("in %s: exit %d, %s", dir, got.code, got.err)
		}
	}
	g.setOwner(filepath.Join(home, "gpuard.yaml"), me, os.Getegid(), 0o666)
	if got := g.runUp(me, home, nil); got.code != 2 || !strings.Contains(got.err, "others than you can write it (mode 0666; chmod go-w "+home+"/gpuard.yaml)") {
		t.Errorf("a file that everybody can write: exit %d, %s", got.code, got.err)
	}
}

// TestProjectKnown: a project that was brought up by its name is found by its place after that, for what reads no file.
func TestProjectKnown(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	g := newProjectFolders(t)
	dir := g.makeFolder("b", bobUID, bobUID, 0o755)
	file := g.writeProject(dir, tracePath(g.top), bobUID, bobUID, 0o644)
	ask := func(args ...string) runResult {
		cmd := gpuardCommand(t, g.state, nil, append([]string{"--machine", "demo:1xL4"}, args...)...)
		cmd.Dir = dir
		return runCommand(t, cmd)
	}
	for _, command := range []string{"ps", "down", "logs", "restart"} {
		if got := ask(command); got.code == 0 || !strings.Contains(got.err, "cannot use "+file) {
			t.Errorf("%s before it was up: exit %d, %s%s", command, got.code, got.out, got.err)
		}
	}
	if got := ask("up", "-d", "--file", file); got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.err)
	}
	for _, command := range []string{"ps", "down"} {
		if got := ask(command); got.code != 0 {
			t.Errorf("%s: exit %d, %s", command, got.code, got.err)
		}
	}
}
