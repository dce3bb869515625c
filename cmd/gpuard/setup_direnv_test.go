package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestDirenv: direnv itself sets the variables on the way into a folder, and puts everything back on the way out: what
// was not set is not set, and what was empty is empty.
func TestDirenv(t *testing.T) {
	t.Parallel()
	gate.Need(t, "direnv")
	hooks := map[string]string{"bash": `eval "$(direnv hook bash)"`, "zsh": `eval "$(direnv hook zsh)"`, "fish": "direnv hook fish | source"}
	for shell, hook := range hooks {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home, rc := withRC(t, shell)
			addLine(t, rc, hook)
			bin := onPath(t)
			folder := filepath.Join(home, "train")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			putText(t, filepath.Join(folder, ".envrc"), "export MINE=yes")
			before := tree(t, folder)
			cmd := setupIn(t, home, bin, "direnv", "--device", "2", "train")
			cmd.Env = append(cmd.Env, "SHELL=/bin/"+shell)
			if said := succeeds(t, cmd); strings.Contains(said, "direnv does nothing") {
				t.Errorf("the hook is there, and setup says %s", said)
			}
			for name, env := range map[string][]string{"unset": nil, "empty": {"CUDA_VISIBLE_DEVICES="}, "set": {"CUDA_VISIBLE_DEVICES=2,3"}, "without it": {"CUDA_VISIBLE_DEVICES=1"}} {
				cmd := shellIn(t, home, bin, shell, "-i")
				cmd.Env = append(append(cmd.Env, "DIRENV_LOG_FORMAT="), env...)
				s := onTerminal(t, cmd)
				s.until("early> ")
				s.enter("direnv allow train; echo \"<$MINE>\"", "<>")
				const show = `sh -c 'echo "<$MINE,${CUDA_VISIBLE_DEVICES-unset},${CUDA_DEVICE_ORDER-unset},${GPUARD_GPUS-unset}>"'`
				was := map[string]string{"unset": "<,unset,unset,unset>", "empty": "<,,unset,unset>", "set": "<,2,3,unset,unset>", "without it": "<,1,unset,unset>"}[name]
				s.enter(show, was)
				s.enter("cd train", "early> ")
				if name == "empty" || name == "without it" { // a mask that is there is obeyed: the device cannot be had
					s.enter(show, "<yes,-1,unset,>")
				} else {
					s.enter(show, "<yes,2,PCI_BUS_ID,GPU-[0-9a-f-]+>")
				}
				s.enter("cd ..", "early> ")
				s.enter(show, was)
				s.press("exit\r")
			}
			succeeds(t, setupIn(t, home, bin, "direnv", "--remove", "train"))
			sameTree(t, "--remove", before, tree(t, folder))
		})
	}
}

// TestDirenvWords: what direnv lacks here is said, and what the setup lacks.
func TestDirenvWords(t *testing.T) {
	t.Parallel()
	home, bin := person(t), onPath(t)
	if got := run(t, setupIn(t, home, bin, "direnv")); got.code != 2 || !strings.Contains(got.err, "write --device 0") {
		t.Errorf("without a choice: exit %d, %s", got.code, got.err)
	}
	cmd := setupIn(t, home, bin, "direnv", "--cpu", "--dry-run")
	cmd.Env = append(cmd.Env, "PATH="+bin)
	contains(t, succeeds(t, cmd), "direnv is not installed here")
	gate.Need(t, "direnv")
	putText(t, filepath.Join(home, ".bashrc"), "alias ll='ls -l'\n")
	cmd = setupIn(t, home, bin, "direnv", "--cpu", "--dry-run")
	cmd.Env = append(cmd.Env, "SHELL=/bin/bash")
	said := succeeds(t, cmd)
	contains(t, said, "does nothing before your shell calls it", ".bashrc: eval \"$(direnv hook bash)\"")
	const shared = "who gets .envrc by git and has no gpuard sees no GPU"
	if strings.Contains(said, shared) {
		t.Errorf("in no repository: %s", said)
	}
	if err := os.Mkdir(filepath.Join(home, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	contains(t, succeeds(t, setupIn(t, home, bin, "direnv", "--cpu", "--dry-run", "empty")), shared)
}

// TestDirenvWithoutGpuard: if the choice fails the folder sees no GPU, and variables of the user's own count. So does a
// gpuard at another path: the file may come from another user.
func TestDirenvWithoutGpuard(t *testing.T) {
	t.Parallel()
	gate.Need(t, "direnv")
	home, bin := person(t), onPath(t)
	succeeds(t, setupIn(t, home, bin, "direnv", "--device", "2"))
	inside := func(want, said string) {
		t.Helper()
		shell := shellIn(t, home, bin, "sh", "-c", `direnv allow && direnv exec . sh -c 'echo "<$A,$CUDA_VISIBLE_DEVICES,$ROCR_VISIBLE_DEVICES>"'`)
		shell.Env = append(shell.Env, "PATH="+bin+":"+filepath.Join(home, "mine")+":/usr/bin:/bin")
		got := run(t, shell)
		if got.out != want+"\n" || strings.Contains(got.err, "sees NO GPU") != (said != "") || !strings.Contains(got.err, said) {
			t.Errorf("%+v, want %s, and %q", got, want, said)
		}
	}
	inside("<1,2,>", "")
	if err := os.Rename(bin, filepath.Join(home, "mine")); err != nil {
		t.Fatal(err)
	}
	inside("<1,2,>", "")
	if err := os.RemoveAll(filepath.Join(home, "mine")); err != nil {
		t.Fatal(err)
	}
	inside("<1,-1,-1>", "gpuard: this folder sees NO GPU; what .envrc exports below this block counts")
	addLine(t, filepath.Join(home, ".envrc"), "export CUDA_VISIBLE_DEVICES=3")
	inside("<1,3,-1>", "gpuard: this folder sees NO GPU")
}
