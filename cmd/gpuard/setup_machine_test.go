package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/setup"
	"gpuard/internal/gate"
	"gpuard/internal/host/store"
)

// runSetupMachine is gpuard setup machine on a machine with its files below a folder.
func runSetupMachine(t *testing.T, root string, flags ...string) (got runResult, files map[string]string) {
	t.Helper()
	cmd := gpuardCommand(t, "", []string{"SITE=" + root, "PATH=" + filepath.Join(root, "usr/local/bin") + ":" + os.Getenv("PATH")}, append([]string{"setup", "machine", "--json"}, flags...)...)
	cmd.Args[0] = "surveyed"
	got = runCommand(t, cmd)
	var r setup.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil && got.code != 1 {
		t.Errorf("%v: %s%s", err, got.out, got.err)
	}
	files = map[string]string{}
	for _, f := range r.Files {
		name, below := strings.CutPrefix(f.Path, root+"/")
		if !below {
			t.Errorf("%s is not below %s", f.Path, root)
		}
		files[name] = string(f.Action)
	}
	return got, files
}

// makeMachineRoot is a machine that is in use already.
func makeMachineRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"etc/tmpfiles.d/other.conf": "d /run/other\n", "usr/bin/systemd-tmpfiles": "", "run/utmp": "", "usr/local/share/man/man1/else.1": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "usr/local/bin"), 0o755)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(root, "usr/local/bin/gpuard"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	policyPath         = "etc/gpuard/config.yaml"
	tmpfilesPath       = "etc/tmpfiles.d/gpuard.conf"
	runManualPath      = "usr/local/share/man/man1/gpuard-run.1"
	zshCompletionPath  = "usr/local/share/zsh/site-functions/_gpuard"
	fishCompletionPath = "etc/fish/completions/gpuard.fish"
	bashCompletionPath = "usr/local/share/bash-completion/completions/gpuard"
)

// TestSetupMachine: it is all there, twice changes nothing, and taken away the machine is as before but for the folder
// of the leases.
func TestSetupMachine(t *testing.T) {
	t.Parallel()
	root := makeMachineRoot(t)
	before := readTree(t, root)
	if got, files := runSetupMachine(t, root, "--dry-run"); got.code != 0 || files[policyPath] != "create" || files["run/gpuard"] != "create" {
		t.Errorf("--dry-run: exit %d, %v", got.code, files)
	}
	checkSameTree(t, "after --dry-run", before, readTree(t, root))
	got, files := runSetupMachine(t, root)
	for _, name := range []string{policyPath, tmpfilesPath, runManualPath, bashCompletionPath, zshCompletionPath, fishCompletionPath, "run/gpuard"} {
		if files[name] != "create" {
			t.Errorf("%s: %q in %s%s", name, files[name], got.out, got.err)
		}
	}
	for line := range strings.Lines(readTree(t, root)[policyPath][len("-rw-r--r-- "):]) {
		if line != "\n" && line[0] != '#' {
			t.Errorf("the policy says something: %s", line)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "var/lib/gpuard/users")); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("the folders of the users: %v, %v", info, err)
	}
	whole := readTree(t, root)
	if _, files := runSetupMachine(t, root); files[policyPath] != "same" || files[runManualPath] != "same" || files["run/gpuard"] != "same" {
		t.Errorf("the second time: %v", files)
	}
	checkSameTree(t, "the second time", whole, readTree(t, root))
	if got, files := runSetupMachine(t, root, "--remove"); got.code != 0 || files[policyPath] != "delete" {
		t.Errorf("--remove: exit %d, %v %s", got.code, files, got.err)
	}
	after := readTree(t, root)
	if err := os.RemoveAll(filepath.Join(root, "run/gpuard")); err != nil {
		t.Fatal(err)
	}
	if len(after) == len(readTree(t, root)) {
		t.Error("the folder of the leases is gone, in which there could be some")
	}
	checkSameTree(t, "after --remove", before, readTree(t, root))
}

// TestSetupMachinePolicy: edits of the policy stay, whether gpuard wrote the file first or not.
func TestSetupMachinePolicy(t *testing.T) {
	t.Parallel()
	const mine = "login: none\n"
	for _, first := range []bool{true, false} {
		root := makeMachineRoot(t)
		file := filepath.Join(root, policyPath)
		if first {
			runSetupMachine(t, root)
		} else if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(mine), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, files := runSetupMachine(t, root); got.code != 0 || files[policyPath] != "" && files[policyPath] != "left" || files[runManualPath] == "" || !strings.Contains(got.out, "stays as it is") {
				t.Errorf("exit %d, %v %s%s", got.code, files, got.out, got.err)
			}
		}
		got, _ := runSetupMachine(t, root, "--remove")
		if now, err := os.ReadFile(file); string(now) != mine {
			t.Errorf("the policy is %q now: %v", now, err)
		}
		if _, err := os.Lstat(filepath.Join(root, tmpfilesPath)); err == nil {
			t.Errorf("something else stayed: %s%s", got.out, got.err)
		}
		if first != (got.code == 1 && strings.Contains(got.out+got.err, "config.yaml")) {
			t.Errorf("--remove: exit %d, %s%s", got.code, got.out, got.err)
		}
	}
}

// TestSetupMachinePackaged: what a package has installed is not there a second time.
func TestSetupMachinePackaged(t *testing.T) {
	t.Parallel()
	root := makeMachineRoot(t)
	for _, name := range []string{"usr/lib/tmpfiles.d/gpuard.conf", "usr/share/man/man1/gpuard.1.gz", "usr/share/bash-completion/completions/gpuard", "usr/share/zsh/vendor-completions/_gpuard", "usr/share/fish/vendor_completions.d/gpuard.fish"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, files := runSetupMachine(t, root)
	delete(files, "etc/profile.d/gpuard.sh") // where the folder of the tests is root's alone
	delete(files, "etc/fish/conf.d/gpuard.fish")
	if len(files) != 2 || files[policyPath] != "create" || files["run/gpuard"] != "create" {
		t.Errorf("%v %s%s", files, got.out, got.err)
	}
	checkContains(t, got.out, "a package has installed tmpfiles.d/gpuard.conf, the manual, the completion for bash, the completion for zsh, the completion for fish already")
}

// TestSetupMachineShells: each shell finds its completion in the file that is made for it.
func TestSetupMachineShells(t *testing.T) {
	t.Parallel()
	gate.Need(t, "zsh", "fish")
	root := makeMachineRoot(t)
	runSetupMachine(t, root)
	for shell, c := range map[string]struct{ script, want string }{
		"bash": {`. "$ROOT/` + bashCompletionPath + `"; complete -p gpuard`, "-F __start_gpuard gpuard"},
		"zsh":  {`fpath=("${ROOT}/` + filepath.Dir(zshCompletionPath) + `" $fpath); autoload -U compinit; compinit -u -D; print $_comps[gpuard]`, "_gpuard\n"},
		"fish": {`set fish_complete_path "$ROOT/` + filepath.Dir(fishCompletionPath) + `"; complete -C "gpuard undr"`, "undrain\t"},
	} {
		cmd := gpuardCommand(t, stateFolder(t), []string{"ROOT=" + root, "PATH=" + makeProgramFolder(t) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()})
		found, err := exec.LookPath(shell)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args = found, []string{shell, "-c", c.script}
		if got := runCommand(t, cmd); got.code != 0 || !strings.Contains(got.out, c.want) {
			t.Errorf("%s: exit %d, %q%s", shell, got.code, got.out, got.err)
		}
	}
}

// TestSetupMachineNotRoot: only root can, and is told how.
func TestSetupMachineNotRoot(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	for flag, more := range map[string]string{"--json=false": "\n", "--remove": " --remove\n"} {
		got := runCommand(t, asUser(aliceUID, gpuardCommand(t, "", nil, "setup", "machine", flag)))
		if got.code != 1 {
			t.Errorf("%s: exit %d", flag, got.code)
		}
		checkContains(t, got.err, `only root can; type: sudo "$(command -v gpuard)" setup machine`+more)
	}
	if got := runCommand(t, asUser(aliceUID, gpuardCommand(t, "", nil, "setup", "machine", "--dry-run"))); got.code != 0 {
		t.Errorf("--dry-run: exit %d, %s", got.code, got.err)
	}
}

// TestSetupMachineAtBoot: systemd-tmpfiles makes the folder that gpuard makes, and two users lease in it without being
// able to harm each other.
func TestSetupMachineAtBoot(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "systemd")
	root := makeMachineRoot(t)
	runSetupMachine(t, root)
	made := filepath.Join(root, "run/gpuard")
	own := readTree(t, made)
	if err := os.RemoveAll(made); err != nil { // the machine was started anew
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-tmpfiles", "--create", "--root="+root, filepath.Join(root, tmpfilesPath)).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	checkSameTree(t, "by systemd-tmpfiles", own, readTree(t, made))
	for name := range own {
		if info, err := os.Lstat(filepath.Join(made, name)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s is not root's: %v", name, err)
		}
	}
	r := newSharedDemoMachine(t, "demo:1xL4")
	place := r.leaseFolder()
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, place); err != nil {
		t.Fatal(err)
	}
	first := asUser(aliceUID, r.jobCommand("sh", "-c", "echo $GPUARD_LEASE; read line"))
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	id := startToFirstLine(t, first)
	if got := runCommand(t, asUser(bobUID, r.jobCommand("true"))); got.code != 120 || !strings.Contains(got.err, "leased as "+id) {
		t.Errorf("bob beside alice: exit %d, %s", got.code, got.err)
	}
	for _, part := range store.FolderParts()[1:] {
		theft := exec.Command("/bin/sh", "-c", `mv "$0" "$0".mine`, filepath.Join(place, part.Name))
		theft.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bobUID, Gid: bobUID}}
		if out, err := theft.CombinedOutput(); err == nil {
			t.Errorf("bob took %s away: %s", part.Name, out)
		}
	}
	_ = in.Close()
	_ = first.Wait()
	if got := runCommand(t, asUser(bobUID, r.jobCommand("true"))); got.code != 0 {
		t.Errorf("bob after alice: exit %d, %s", got.code, got.err)
	}
}
