package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/test/apart"
)

// sudoCommandIn takes the command out of a message, which ends at a bracket or with the line.
func sudoCommandIn(t *testing.T, message string) []string {
	t.Helper()
	_, rest, found := strings.Cut(message, "sudo ")
	command, _, _ := strings.Cut(rest, ")")
	if !found {
		t.Fatalf("there is nothing to type in %q", message)
	}
	return strings.Fields(strings.TrimSpace(command))
}

// TestSquatted: if another user has taken the name of one of our folders, the error names the user, and the command
// that it suggests works.
func TestSquatted(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	name := proc.New("/proc").User(bobUID)
	folder := func(g *projectFolders, path string) {
		g.t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			g.t.Fatal(err)
		}
		g.setOwner(path, bobUID, bobUID, 0o755)
	}
	file := func(g *projectFolders, path string) {
		g.t.Helper()
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			g.t.Fatal(err)
		}
		g.setOwner(path, bobUID, bobUID, 0o644)
	}
	for title, c := range map[string]struct {
		place func(g *projectFolders, path string)
		up    bool
		home  bool // the state is in the home folder
		says  []string
	}{
		"projects, a folder":       {folder, true, false, []string{" belongs to " + name + ", not to you; ask them or root to remove it (sudo rm -r ", "or set GPUARD_STATE to a folder of your own, or unset it"}},
		"projects, a file":         {file, true, false, []string{" belongs to " + name}},
		"projects, at home":        {folder, true, true, []string{" belongs to " + name, "or set XDG_STATE_HOME to a folder of your own"}},
		"leases of a machine":      {file, false, false, []string{"it is not a folder (it belongs to uid 1); ask its owner or root to remove it: sudo rm -r "}},
		"leases, a strange folder": {folder, false, false, []string{"it is not a gpuard state folder (it belongs to uid 1); ask its owner or root to remove it when it is not needed any more: sudo rm -r "}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			g := newProjectFolders(t)
			here := g.makeFolder("a", aliceUID, aliceUID, 0o755)
			g.writeProject(here, tracePath(here), aliceUID, aliceUID, 0o644)
			home := g.makeFolder("home", aliceUID, aliceUID, 0o755)
			env := []string{"HOME=" + home}
			path := filepath.Join(g.state, fmt.Sprintf("user-%d", aliceUID))
			ask := func() runResult { return g.runUp(aliceUID, here, env) }
			switch {
			case c.home:
				env = append(env, "GPUARD_STATE=", "XDG_STATE_HOME="+home)
				path = filepath.Join(g.makeFolder("home/gpuard", aliceUID, aliceUID, 0o755), "hosts")
			case !c.up:
				ask = func() runResult {
					cmd := asUser(aliceUID, gpuardCommand(t, g.state, env, "run", "--machine", "demo:1xL4", "--no-wait", "--", "true"))
					cmd.Dir = here
					return runCommand(t, cmd)
				}
				if got := ask(); got.code != 0 {
					t.Fatalf("exit %d, %s", got.code, got.err)
				}
				found, _ := filepath.Glob(filepath.Join(g.state, "machines", "*"))
				if len(found) != 1 {
					t.Fatal(found)
				}
				path = found[0]
				waitUntil(t, "the first run is over", func() bool { return len(apart.ProcessesNaming(path)) == 0 })
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			c.place(g, path)
			got := ask()
			if got.code == 0 {
				t.Fatalf("it was used: %s%s", got.out, got.err)
			}
			checkContains(t, got.err, append(c.says, path)...)
			words := sudoCommandIn(t, got.err)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil { //nolint:gosec // what the message says
				t.Fatalf("%q: %v, %s", words, err, out)
			}
			if got := ask(); got.code != 0 {
				t.Errorf("after %q: exit %d, %s", words, got.code, got.err)
			}
		})
	}
}
