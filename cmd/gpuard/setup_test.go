package main

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// readTree is everything below a folder: kind, mode and content of each path.
func readTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		what := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what = string(data)
		case info.Mode().Type() == fs.ModeSymlink:
			if what, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, err := filepath.Rel(dir, path)
		all[rel] = info.Mode().String() + " " + what
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkSameTree fails where two trees differ, with the paths that do.
func checkSameTree(t testing.TB, when string, before, after map[string]string) {
	t.Helper()
	for path := range before {
		if now, there := after[path]; !there {
			t.Errorf("%s: %s is gone", when, path)
		} else if now != before[path] {
			t.Errorf("%s: %s was %q and is %q", when, path, before[path], now)
		}
	}
	for path := range after {
		if _, there := before[path]; !there {
			t.Errorf("%s: %s is new: %q", when, path, after[path])
		}
	}
}

// makeProgramFolder is a folder with the program under its name, for PATH: what setup writes names it.
func makeProgramFolder(t testing.TB) string {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "gpuard"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// setupCommand prepares gpuard setup with that home, on an invented machine.
func setupCommand(t testing.TB, home, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := gpuardCommand(t, filepath.Join(home, "..", "state"), []string{"GPUARD_MACHINE=demo", "HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"),
		"XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "XDG_DATA_HOME="}, append([]string{"setup"}, args...)...)
	cmd.Dir = home
	return cmd
}

// makeEditedHome is a home with edited files.
func makeEditedHome(t testing.TB) string {
	t.Helper()
	home := filepath.Join(quietDir(t), "home")
	for path, text := range map[string]string{".envrc": "export A=1\nexport B=2", "dots/envrc": "layout python\n", "empty/.keep": "", ".local/state/other": ""} {
		file := filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o640); err != nil { //nolint:gosec // a mode that is not the usual one
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "linked"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dots/envrc", filepath.Join(home, "linked", ".envrc")); err != nil {
		t.Fatal(err)
	}
	return home
}

// TestSetupLeavesNothing: --remove removes everything that setup wrote, and every byte is as it was: in a user's file,
// at the target of a symbolic link, and where there was none.
func TestSetupLeavesNothing(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	before := readTree(t, home)
	for _, folder := range []string{"", "linked", "empty"} {
		now := readTree(t, home)
		if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--cpu", "--dry-run", filepath.Join(home, folder))); got.code != 0 || !strings.Contains(got.out, "would ") {
			t.Fatalf("%+v", got)
		}
		checkSameTree(t, "after --dry-run", now, readTree(t, home))
		for range 2 {
			if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--device", "1", filepath.Join(home, folder))); got.code != 0 {
				t.Fatalf("%+v", got)
			}
		}
		if maps.Equal(now, readTree(t, home)) {
			t.Fatal("nothing was written")
		}
		if text, err := os.ReadFile(filepath.Join(home, folder, ".envrc")); err != nil || strings.Count(string(text), " env --device=1)") != 1 {
			t.Fatalf("%s: %v: %s", folder, err, text)
		}
		if got := runCommand(t, setupCommand(t, home, bin)); !strings.Contains(got.out, "direnv "+filepath.Join(home, folder)) {
			t.Errorf("the list of what is set up: %+v", got)
		}
	}
	for _, folder := range []string{"linked", "", "empty"} {
		for range 2 {
			if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--remove", filepath.Join(home, folder))); got.code != 0 {
				t.Fatalf("%+v", got)
			}
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, home))
}

// TestSetupKilled: a setup that is killed at any moment leaves what the next one completes, and what --remove takes
// away wholly.
func TestSetupKilled(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	before := readTree(t, home)
	for round := range soakCount(200, 12) {
		for _, args := range [][]string{{"direnv", "--device", "0"}, {"direnv", "--device", "1,2"}, {"direnv", "--remove"}} {
			runAndKill(t, setupCommand(t, home, bin, args...), time.Duration(1+rand.IntN(30000))*time.Microsecond)
		}
		if round%4 == 0 {
			if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--device", "3")); got.code != 0 {
				t.Fatalf("round %d: %+v", round, got)
			}
		}
		if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--remove")); got.code != 0 {
			t.Fatalf("round %d: %+v", round, got)
		}
		checkSameTree(t, "after a kill", before, readTree(t, home))
		if t.Failed() {
			return
		}
	}
}

// TestSetupAtOnce: of several at the same moment none loses what another wrote.
func TestSetupAtOnce(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	before := readTree(t, home)
	folders := []string{"", "linked", "empty", "dots"}
	for _, flag := range []string{"--device=0", "--remove"} {
		var all sync.WaitGroup
		for _, folder := range append(folders, folders...) {
			cmd := setupCommand(t, home, bin, "direnv", flag, filepath.Join(home, folder))
			all.Go(func() {
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", flag, err, out)
				}
			})
		}
		all.Wait()
		if got := runCommand(t, setupCommand(t, home, bin)); flag != "--remove" && strings.Count(got.out, "direnv ") != len(folders) {
			t.Errorf("%+v", got)
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, home))
}

// TestSetupRefuses: a user's text is not overwritten, and then nothing at all is written.
func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--device", "0")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	file := filepath.Join(home, ".envrc")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), "--device=0", "--device=3", 1)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	before := readTree(t, home)
	if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--device", "1")); got.code != 1 || !strings.Contains(got.err, "cannot write "+file+": the lines of gpuard's block") {
		t.Errorf("%+v", got)
	}
	if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--remove")); got.code != 1 || !strings.Contains(got.err, "cannot take "+file+" away") {
		t.Errorf("%+v", got)
	}
	if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--remove", "empty")); got.code != 0 || !strings.Contains(got.out, "there is nothing to take away\nnote: set up: direnv "+home+"\n") {
		t.Errorf("another folder: %+v", got)
	}
	checkSameTree(t, "after refusals", before, readTree(t, home))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(t, setupCommand(t, home, bin, "direnv", "--remove")); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestSetupDoubts: what this machine can never give is written and said; what a mask hides from this shell, or is busy,
// is not.
func TestSetupDoubts(t *testing.T) {
	t.Parallel()
	home, bin := newDesktopHome(t)
	writeFilesBelow(t, home, map[string]string{"env/conda-meta/history": "", ".local/share/jupyter/kernels/mine/kernel.json": `{"argv": ["x", "{connection_file}"], "display_name": "X"}`})
	for _, words := range [][]string{{"conda", "./env"}, {"direnv"}, {"jupyter", "--kernel", "mine"}, {"desktop", "org.x.MTools"}, {"systemd", "--user", "x", "--", "true"}} {
		for _, c := range []struct{ flag, env, want string }{
			{"--device=9", "GPUARD_MACHINE=demo", "note: as this machine is now, there will be no GPU: cannot find device 9: this machine has 0-3; "},
			{"--device=0", "CUDA_VISIBLE_DEVICES=1", ""},
			{"--device=99", "GPUARD_MACHINE=", "note: no GPU can be seen here now: cannot "},
			{"--cpu", "GPUARD_MACHINE=", ""},
		} {
			cmd := desktopSetupCommand(t, home, bin, append([]string{"--dry-run", c.flag}, words[1:]...)...)
			cmd.Args[slices.Index(cmd.Args, "desktop")] = words[0]
			cmd.Env = append(cmd.Env, c.env)
			got := runCommand(t, cmd)
			doubt := regexp.MustCompile("note: (as this machine is now|no GPU can be seen).*").FindString(got.out)
			hardware := strings.Contains(doubt, "cannot find device 99")
			if got.code != 0 || !strings.HasPrefix(doubt, c.want) && !hardware || c.want == "" && doubt != "" {
				t.Errorf("%q %s: %+v, want %s", words, c.flag, got, c.want)
			}
		}
	}
}
