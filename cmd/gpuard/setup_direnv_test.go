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
			home, rc := makeLinkedRCHome(t, shell)
			addLine(t, rc, hook)
			bin := makeProgramFolder(t)
			folder := filepath.Join(home, "train")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			putText(t, filepath.Join(folder, ".envrc"), "export MINE=yes")
			before := readTree(t, folder)
			cmd := setupCommand(t, home, bin, "direnv", "--device", "2", "train")
			cmd.Env = append(cmd.Env, "SHELL=/bin/"+shell)
			if said := mustRun(t, cmd); strings.Contains(said, "direnv does nothing") {
				t.Errorf("the hook is there, and setup says %s", said)
			}
			for name, env := range map[string][]string{"unset": nil, "empty": {"CUDA_VISIBLE_DEVICES="}, "set": {"CUDA_VISIBLE_DEVICES=2,3"}, "without it": {"CUDA_VISIBLE_DEVICES=1"}} {
				cmd := homeShellCommand(t, home, bin, shell, "-i")
				cmd.Env = append(append(cmd.Env, "DIRENV_LOG_FORMAT="), env...)
				s := startOnTerminal(t, cmd)
				s.waitForScreen("early> ")
				s.typeLineUntil("direnv allow train; echo \"<$MINE>\"", "<>")
				const show = `sh -c 'echo "<$MINE,${CUDA_VISIBLE_DEVICES-unset},${CUDA_DEVICE_ORDER-unset},${GPUARD_GPUS-unset}>"'`
				was := map[string]string{"unset": "<,unset,unset,unset>", "empty": "<,,unset,unset>", "set": "<,2,3,unset,unset>", "without it": "<,1,unset,unset>"}[name]
				s.typeLineUntil(show, was)
				s.typeLineUntil("cd train", "early> ")
				if name == "empty" || name == "without it" { // a mask that is there is obeyed: the device cannot be had
					s.typeLineUntil(show, "<yes,-1,unset,>")
				} else {
					s.typeLineUntil(show, "<yes,2,PCI_BUS_ID,GPU-[0-9a-f-]+>")
				}
				s.typeLineUntil("cd ..", "early> ")
				s.typeLineUntil(show, was)
				s.typeKeys("exit\r")
			}
			mustRun(t, setupCommand(t, home, bin, "direnv", "--remove", "train"))
			checkSameTree(t, "--remove", before, readTree(t, folder))
		})
	}
}

// TestDirenvWords: what direnv lacks here is said, and what the setup lacks.
func TestDirenvWords(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	if got := runCommand(t, setupCommand(t, home, bin, "direnv")); got.code != 2 || !strings.Contains(got.err, "write --device 0") {
		t.Errorf("without a choice: exit %d, %s", got.code, got.err)
	}
	cmd := setupCommand(t, home, bin, "direnv", "--cpu", "--dry-run")
	cmd.Env = append(cmd.Env, "PATH="+bin)
	checkContains(t, mustRun(t, cmd), "direnv is not installed here")
	gate.Need(t, "direnv")
	putText(t, filepath.Join(home, ".bashrc"), "alias ll='ls -l'\n")
	cmd = setupCommand(t, home, bin, "direnv", "--cpu", "--dry-run")
	cmd.Env = append(cmd.Env, "SHELL=/bin/bash")
	said := mustRun(t, cmd)
	checkContains(t, said, "does nothing before your shell calls it", ".bashrc: eval \"$(direnv hook bash)\"")
	const shared = "who gets .envrc by git and has no gpuard sees no GPU"
	if strings.Contains(said, shared) {
		t.Errorf("in no repository: %s", said)
	}
	if err := os.Mkdir(filepath.Join(home, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	checkContains(t, mustRun(t, setupCommand(t, home, bin, "direnv", "--cpu", "--dry-run", "empty")), shared)
}

// TestDirenvWithoutGpuard: if the choice fails the folder sees no GPU, and variables of the user's own count. So does a
// gpuard at another path: the file may come from another user.
func TestDirenvWithoutGpuard(t *testing.T) {
	t.Parallel()
	gate.Need(t, "direnv")
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	mustRun(t, setupCommand(t, home, bin, "direnv", "--device", "2"))
	inside := func(want, said string) {
		t.Helper()
		shell := homeShellCommand(t, home, bin, "sh", "-c", `direnv allow && direnv exec . sh -c 'echo "<$A,$CUDA_VISIBLE_DEVICES,$ROCR_VISIBLE_DEVICES>"'`)
		shell.Env = append(shell.Env, "PATH="+bin+":"+filepath.Join(home, "mine")+":/usr/bin:/bin")
		got := runCommand(t, shell)
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
