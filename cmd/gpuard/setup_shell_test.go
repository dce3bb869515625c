package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/test/executable"
)

// shellStartFile is what an interactive shell reads, and how it says what its prompt is.
func shellStartFile(shell string) (file, prompt string) {
	switch shell {
	case "bash":
		return ".bashrc", "stty echo 2>/dev/null\nPS1='%s'" // readline shows nothing without it
	case "zsh":
		return ".zshrc", "autoload -Uz compinit && compinit -D -u\nPROMPT='%s'"
	}
	return ".config/fish/config.fish", "function fish_prompt; echo -n '%s'; end"
}

// makeLinkedRCHome is a home in which the file of the shell is a link, lies elsewhere, and ends without a line end.
func makeLinkedRCHome(t *testing.T, shell string) (home, rc string) {
	t.Helper()
	needShell(t, shell)
	home = filepath.Join(quietDir(t), "home")
	name, prompt := shellStartFile(shell)
	link := filepath.Join(home, name)
	rc = filepath.Join(home, "dots", shell)
	for _, dir := range []string{filepath.Dir(link), filepath.Dir(rc)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	putText(t, rc, "# mine\n"+fmt.Sprintf(prompt, "early> "))
	if shell == "fish" { // else its first start fills it, in the background
		if err := os.MkdirAll(filepath.Join(home, ".local/share/fish/generated_completions"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(rc, link); err != nil {
		t.Fatal(err)
	}
	return home, rc
}

func putText(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // as such files are
		t.Fatal(err)
	}
}

// addLine appends a line to a file, as a user's editor would.
func addLine(t testing.TB, path, line string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
		line = "\n" + line
	}
	putText(t, path, string(text)+line+"\n")
}

// homeShellCommand prepares a shell with that home, on an invented machine.
func homeShellCommand(t testing.TB, home, bin, shell string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Fatal(err)
	}
	cmd := setupCommand(t, home, bin)
	cmd.Path, cmd.Args = path, append([]string{shell}, args...)
	cmd.Env = append(cmd.Env, "SHELL="+path, "TERM=xterm", "ZDOTDIR="+home, "LC_ALL=C.UTF-8", "PS1=", "PROMPT_COMMAND=", "INPUTRC=/dev/null")
	return cmd
}

// mustRun runs a command and fails unless it succeeds.
func mustRun(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	got := runCommand(t, cmd)
	if got.code != 0 {
		t.Fatalf("%q ended with %d: %s%s", cmd.Args, got.code, got.out, got.err)
	}
	return got.out
}

// typeLineUntil types a line and returns what was shown up to pattern.
func (s *terminal) typeLineUntil(line, pattern string) string {
	s.t.Helper()
	s.typeKeys(line + "\r")
	return s.waitForScreen(pattern)
}

// TestShellSetup: in a real shell on a terminal Tab completes, and the prompt shows the lease, also if the prompt is
// set after gpuard's lines.
func TestShellSetup(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home, rc := makeLinkedRCHome(t, shell)
			bin := makeProgramFolder(t)
			mustRun(t, setupCommand(t, home, bin, "shell", shell))
			_, set := shellStartFile(shell)
			addLine(t, rc, fmt.Sprintf(set, "ready> "))

			s := startOnTerminal(t, homeShellCommand(t, home, bin, shell, "-i"))
			if shown := s.waitForScreen("ready> "); strings.Contains(shown, "gpu") {
				t.Errorf("without a lease the prompt is %q", shown)
			}
			s.typeKeys("gpuard run --dev\t")
			s.waitForScreen("--device")
			s.typeKeys(" \t\t")
			s.waitForScreen("A100")
			if shown := s.typeLineUntil("\x15"+"echo \"<$GPUARD_LEASE>\"", "<>[^$]*ready> "); strings.Contains(shown, "[gpu") {
				t.Errorf("without a lease the prompt is %q", shown)
			}
			s.typeLineUntil("gpuard run -q --device 2", `\[gpu 2 [a-z][a-z0-9]{3}\] ready> `)
			s.typeLineUntil("echo \"<$CUDA_VISIBLE_DEVICES>\"", `<2>[^$]*\[gpu 2 [a-z][a-z0-9]{3}\] ready> `)
			if shown := s.typeLineUntil("exit", "ready> "); strings.Contains(shown, "[gpu 2 ") && !strings.Contains(shown, "exit") {
				t.Errorf("after the lease the prompt is %q", shown)
			}
			s.typeLineUntil("gpuard run -q --gpus 2 --device 0,3 --ids uuid", `\[gpu GPU-[0-9a-f]{8}… [a-z][a-z0-9]{3}\] ready> `)
			s.typeLineUntil("exit", "ready> ")
			s.typeLineUntil("gpuard run -q --cpu", `\[no gpu\] ready> `)
			s.typeLineUntil("exit", "ready> ")
			choose := `eval "$(gpuard env --device 1)"`
			if shell == "fish" {
				choose = "gpuard env --device 1 --format fish | source"
			}
			s.typeLineUntil(choose, `\[gpu 1\] ready> `)
			s.typeLineUntil("false", `\[gpu 1\] ready> `)
			if shell == "fish" {
				s.typeLineUntil("function fish_prompt; echo -n \"was $status> \"; end", `\[gpu 1\] was 0> `)
				s.typeLineUntil("false", `\[gpu 1\] was 1> `)
				s.typeLineUntil("echo \"<$__gpuard_around>\"", `<2>`) // once around each
				s.typeLineUntil("function fish_prompt; echo -n 'ready> '; end", `\[gpu 1\] ready> `)
			} else { // as conda does
				s.typeLineUntil("PS1=\"(env) $PS1\"", `\r\n?(\x1b\S*|\r)*\[gpu 1\] \(env\) ready> `)
				s.typeLineUntil("PS1=${PS1#*'(env) '}", `\[gpu 1\] ready> `)
			}
			back := "unset GPUARD_GPUS; echo \"<gone>\""
			if shell == "fish" {
				back = "set -e GPUARD_GPUS; echo \"<gone>\""
			}
			if shown := s.typeLineUntil(back, "<gone>[^\"]*ready> "); strings.Contains(shown[strings.LastIndex(shown, "<gone>"):], "[gpu") {
				t.Errorf("after all the prompt is %q", shown)
			}
		})
	}
}

// TestShellPromptCommand: the user's prompt command stays, in each form that bash has for it, and gpuard's comes once,
// after it.
func TestShellPromptCommand(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	mustRun(t, setupCommand(t, home, bin, "shell", "bash"))
	for before, want := range map[string]string{
		"unset PROMPT_COMMAND": "[__gpuard_prompt]", "PROMPT_COMMAND=()": "[__gpuard_prompt]", "PROMPT_COMMAND=a": "[a\n__gpuard_prompt]",
		"PROMPT_COMMAND=(a)": "[a\n__gpuard_prompt]", "PROMPT_COMMAND=(a b)": "[a][b][__gpuard_prompt]",
	} {
		cmd := homeShellCommand(t, home, bin, "bash", "--norc", "-ic", before+"; set -u; . ~/.bashrc; __gpuard_prompt; printf '[%s]' \"${PROMPT_COMMAND[@]}\"; set +u")
		if got := mustRun(t, cmd); got != want {
			t.Errorf("after %s it is %q, want %q", before, got, want)
		}
	}
}

// TestShellPrompt: of a prompt that was inherited the part is taken out, a mask that hides everything is no device, and
// what the last command said is not lost.
func TestShellPrompt(t *testing.T) {
	t.Parallel()
	for shell, flags := range map[string][]string{"bash": {"--norc", "-ic"}, "zsh": {"-fic"}} {
		home, rc := makeLinkedRCHome(t, shell)
		bin := makeProgramFolder(t)
		mustRun(t, setupCommand(t, home, bin, "shell", shell))
		cmd := homeShellCommand(t, home, bin, shell, append(flags, `. "$0"; PS1='[gpu 9] x> '; ZE_AFFINITY_MASK=65535; false; __gpuard_prompt; echo "$? <$PS1>"`, rc)...)
		cmd.Env = append(cmd.Env, "GPUARD_GPUS=GPU-1", "CUDA_VISIBLE_DEVICES=1")
		if got := mustRun(t, cmd); got != map[string]string{"bash": "1 <[gpu 1] x> >\n", "zsh": "0 <[gpu 1] x> >\n"}[shell] {
			t.Errorf("%s: %q", shell, got)
		}
	}
}

// TestShellLogin: a shell without a lease sees no GPU, what gpuard starts sees its own, and the shell is as before
// after it.
func TestShellLogin(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home, _ := makeLinkedRCHome(t, shell)
			bin := makeProgramFolder(t)
			mustRun(t, setupCommand(t, home, bin, "shell", shell, "--login"))
			s := startOnTerminal(t, homeShellCommand(t, home, bin, shell, "-i"))
			s.waitForScreen("early> ")
			const show = `echo "<$CUDA_VISIBLE_DEVICES>"`
			s.typeLineUntil(show, "<-1>")
			s.typeLineUntil("gpuard run -q --device 1 -- sh -c 'echo \"<$CUDA_VISIBLE_DEVICES,${GPUARD_LOGIN-gone}>\"'", "<1,gone>")
			s.typeLineUntil(show, "<-1>")
			s.typeLineUntil("gpuard run -q --device 3", `\[gpu 3 `)
			s.typeLineUntil(show, "<3>") // its own rc does not hide what was leased
			s.typeLineUntil("exit", "early> ")
			s.typeLineUntil(show, "<-1>")
		})
	}
}

// TestShellSetupGoes: set up twice and removed, every byte is as it was, also with the user's text before and after.
func TestShellSetupGoes(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home, rc := makeLinkedRCHome(t, shell)
			bin := makeProgramFolder(t)
			before := readTree(t, home)
			mustRun(t, setupCommand(t, home, bin, "shell", shell, "--dry-run"))
			checkSameTree(t, "--dry-run", before, readTree(t, home))
			mustRun(t, setupCommand(t, home, bin, "shell", shell))
			once := readTree(t, home)
			mustRun(t, setupCommand(t, home, bin, "shell", shell))
			checkSameTree(t, "twice", once, readTree(t, home))
			mustRun(t, setupCommand(t, home, bin, "shell", shell, "--login=allowed", "--no-prompt"))
			mustRun(t, setupCommand(t, home, bin, "shell", shell, "--remove"))
			checkSameTree(t, "--remove", before, readTree(t, home))

			mustRun(t, setupCommand(t, home, bin, "shell", shell))
			addLine(t, rc, "# behind it")
			mustRun(t, setupCommand(t, home, bin, "shell", shell, "--remove"))
			text, err := os.ReadFile(rc)
			_, set := shellStartFile(shell)
			if want := "# mine\n" + fmt.Sprintf(set, "early> ") + "\n# behind it\n"; err != nil || string(text) != want {
				t.Errorf("%v: %q is left, want %q", err, text, want)
			}
		})
	}
}

// TestShellStartsNothing: gpuard runs neither at the start of a shell nor for a prompt, and a gpuard that is gone or
// fails breaks no shell and prints nothing on standard output.
func TestShellStartsNothing(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			home, _ := makeLinkedRCHome(t, shell)
			bin := makeProgramFolder(t)
			mustRun(t, setupCommand(t, home, bin, "shell", shell))
			program := filepath.Join(bin, "gpuard")
			called := filepath.Join(bin, "called")
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			executable.Write(t, program, []byte("#!/bin/sh\necho called >>"+called+"\necho some error >&2\nexit 1\n"))
			s := startOnTerminal(t, homeShellCommand(t, home, bin, shell, "-i"))
			s.waitForScreen("early> ")
			s.typeLineUntil("echo \"<$GPUARD_GPUS>\"", "<>[^$]*early> ")
			if text, err := os.ReadFile(called); err == nil {
				t.Errorf("gpuard was started: %s", text)
			}
			s.typeKeys("gpuard run --dev\t")
			s.typeLineUntil("\x15echo \"<$GPUARD_GPUS>\"", "<>[^$]*early> ") // Tab found nothing, and that is all
			if text, _ := os.ReadFile(called); shell != "fish" && string(text) != "called\n" {
				t.Errorf("for one Tab gpuard was started: %q", text)
			}

			mustRun(t, restoredSetupCommand(t, home, bin, "shell", shell, "--login"))
			for _, kind := range []string{"broken", "gone"} {
				if err := os.Remove(program); err != nil {
					t.Fatal(err)
				}
				if kind == "broken" {
					executable.Write(t, program, []byte("#!/bin/sh\necho some error >&2\nexit 1\n"))
				}
				for _, flags := range [][]string{{"-ic", "echo fine"}, {"-lic", "echo fine"}, {"-eic", "echo fine"}} {
					if shell == "fish" && flags[0] == "-eic" {
						continue
					}
					got := runCommand(t, homeShellCommand(t, home, bin, shell, flags...))
					if got.out != "fine\n" || got.code != 0 || strings.Count(got.err, "some error") > 1 {
						t.Errorf("with gpuard %s, %s %s ended with %d: %q, %q", kind, shell, flags[0], got.code, got.out, got.err)
					}
				}
			}
		})
	}
}

// restoredSetupCommand puts the program back and prepares a setup with it.
func restoredSetupCommand(t testing.TB, home, bin string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Remove(filepath.Join(bin, "gpuard"))
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "gpuard"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return setupCommand(t, home, bin, args...)
}

// TestShellSetupWords: what cannot be set up, and what else there is to know.
func TestShellSetupWords(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	for _, c := range []struct {
		env, want string
		args      []string
	}{
		{"SHELL=/bin/dash", `cannot set up the shell "dash": write gpuard setup shell and one of bash, zsh, fish`, nil},
		{"SHELL=", `cannot tell your login shell, because SHELL is not set: write gpuard setup shell and one of bash, zsh, fish`, nil},
		{"SHELL=/bin/bash", `cannot read --login=all: write one of none, allowed`, []string{"--login=all"}},
	} {
		cmd := setupCommand(t, home, bin, append([]string{"shell"}, c.args...)...)
		cmd.Env = append(cmd.Env, c.env)
		if got := runCommand(t, cmd); got.code != 2 || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exit %d, %s; want %q", c.env, got.code, got.err, c.want)
		}
	}
	putText(t, filepath.Join(home, ".profile"), "PATH=$PATH:~/bin\n")
	cmd := setupCommand(t, home, bin, "shell", "--dry-run")
	cmd.Env = append(cmd.Env, "SHELL=/usr/bin/bash")
	checkContains(t, mustRun(t, cmd), "would write ~/.bashrc", ".profile, which does not read .bashrc")
	cmd = setupCommand(t, home, bin, "shell", "zsh", "--dry-run")
	cmd.Env = append(cmd.Env, "ZDOTDIR="+filepath.Join(home, "dots"))
	checkContains(t, mustRun(t, cmd), "would write ~/dots/.zshrc", "after compinit")
}
