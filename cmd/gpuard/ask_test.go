package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/test/executable"
)

// startInteractive starts an interactive shell with the prompt of these tests. env comes last and wins.
func startInteractive(t *testing.T, f *commandPrefix, shell string, env ...string) *terminal {
	t.Helper()
	words := map[string][]string{
		"bash": {"bash", "--norc", "--noprofile", "--noediting", "-i"},
		"zsh":  {"zsh", "-fi", "+Z"},
		"fish": {"fish", "--no-config", "-i", "-C", "function fish_prompt; echo -n '" + shellPrompt + "'; end; function fish_title; end"},
		"dash": {"dash", "-i"},
	}[shell]
	needShell(t, shell)
	cmd := f.cmd(words...)
	cmd.Env = append(cmd.Env, append([]string{"TERM=dumb", "GPUARD_MACHINE=demo", "PROMPT=" + shellPrompt, "PROMPT_EOL_MARK="}, env...)...)
	s := startOnTerminal(t, cmd)
	s.waitForScreen(shellPrompt)
	return s
}

// typeUntilEnd types a line and waits until it is over, also in a shell that shows its prompt again while it is typed.
func (s *terminal) typeUntilEnd(line string) {
	s.t.Helper()
	s.typeKeys(line + "; echo 'it 'ended\n")
	s.waitForScreen("it ended(.|\n)*" + shellPrompt + "$")
}

// TestAsk: a user chooses in the middle of an eval. A wrong answer is asked for again, Ctrl-C reaches only gpuard, and
// the shell continues with its terminal as it was.
func TestAsk(t *testing.T) {
	t.Parallel()
	for name, get := range map[string]string{
		"bash": `eval "$(gpuard env --ask --any </dev/null)" && echo "<$CUDA_VISIBLE_DEVICES>" || echo "<failed>"`,
		"zsh":  `eval "$(gpuard env --ask --any </dev/null)" && echo "<$CUDA_VISIBLE_DEVICES>" || echo "<failed>"`,
		"dash": `eval "$(gpuard env --ask --any </dev/null)" && echo "<$CUDA_VISIBLE_DEVICES>" || echo "<failed>"`,
		"fish": `gpuard env --ask --any --format fish </dev/null | source; and echo "<$CUDA_VISIBLE_DEVICES>"; or echo "<failed>"`,
		// as mamba activates, when the terminal is that of a command which has ended
		"fish, what a pipe says": `sh -c 'echo gpuard env --ask --any --format fish \| source' | source; and echo "<$CUDA_VISIBLE_DEVICES>"; or echo "<failed>"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell, _, _ := strings.Cut(name, ",")
			f := &commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()}
			s := startInteractive(t, f, shell)
			const question = `Which GPU\? \[Enter: any free one, 0 1 2 3, c: none\] $`
			for _, c := range []struct{ keys, want string }{
				{"9\nno\n2\n", "<2>"},
				{"\x03", "<failed>"},
				{"1\x1c", "<failed>"},
				{"\x04", "<failed>"},
				{"c\n", "<-1>"},
			} {
				s.typeUntilEnd("stty -a >before")
				s.typeKeys(get + "\n")
				for key := range strings.Lines(c.keys) {
					s.waitForScreen(question)
					s.typeKeys(key)
				}
				s.waitForScreen(c.want)
				s.typeUntilEnd("stty -a >after")
				before, _ := os.ReadFile(filepath.Join(f.dir, "before"))
				after, _ := os.ReadFile(filepath.Join(f.dir, "after"))
				if len(before) == 0 || string(before) != string(after) {
					t.Errorf("%q: the terminal was\n%s\nand is\n%s", c.keys, before, after)
				}
			}
			if f.countLeases() != 0 {
				t.Error("something was leased")
			}
		})
	}
}

// TestAskRun: run asks before it leases; what is leased already is said, and what a mask hides is not offered.
func TestAskRun(t *testing.T) {
	t.Parallel()
	f := &commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()}
	s := startInteractive(t, f, "bash", "CUDA_VISIBLE_DEVICES=0,1,3")
	s.typeKeys("gpuard run --device 1 -- sleep 1000 &\n")
	s.waitForScreen(`GPU 1 .* is cuda:0.*\n`)
	s.typeKeys("gpuard run --ask -- sh -c 'echo \"<$CUDA_VISIBLE_DEVICES>\"'\n")
	s.waitForScreen(`Which GPU\? \[Enter: any free one, 0 1 3, c: none\] `)
	s.typeKeys("3\n")
	s.waitForScreen(`<3>`)
	waitUntil(t, "the shell is back", func() bool { return f.countLeases() == 1 })
	s.typeKeys("gpuard run --no-wait --ask true\n")
	s.waitForScreen(`1 +NVIDIA A100-SXM4-80GB +80.0 GiB +leased as .*`, `Which GPU\?`)
	s.typeKeys("\x03")
	s.waitForScreen(`cancelled: nothing was leased`)
	s.typeKeys("echo code $?\n")
	s.waitForScreen(`code 125`)
	for words, code := range map[string]string{"env --any": "1", "reserve --shell": "125"} {
		s.typeKeys("gpuard " + words + " --ask >out; echo code $?\n")
		s.waitForScreen(`Which GPU\?`)
		s.typeKeys("\x03")
		s.waitForScreen(`cancelled: nothing was leased[^:]*code ` + code + `\r?\n`)
		if out, _ := os.ReadFile(filepath.Join(f.dir, "out")); string(out) != "false # gpuard gave no GPU\n" {
			t.Errorf("a shell is given %q", out)
		}
	}
	s.typeKeys("kill %1\n")
	f.waitUntilFreed()
}

// TestAskWindow: without a terminal a window asks; without that either, it is said what to type.
func TestAskWindow(t *testing.T) {
	t.Parallel()
	const show = "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >>\"$LOG\"\n"
	ask := func(t *testing.T, name, script string, env []string, args ...string) (runResult, string) {
		t.Helper()
		dir := t.TempDir()
		if name != "" {
			executable.Write(t, filepath.Join(dir, name), []byte(show+script))
		}
		log := filepath.Join(dir, "log")
		cmd := gpuardCommand(t, stateFolder(t), append(env, "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+log, "ANSWERS="+filepath.Join(dir, "answers")), append([]string{"run", "--machine", "demo", "--ask", "-q"}, args...)...)
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		got := runCommand(t, cmd)
		said, _ := os.ReadFile(log)
		return got, string(said)
	}
	command := []string{"--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}
	x := []string{"DISPLAY=:7", "WAYLAND_DISPLAY="}
	got, said := ask(t, "zenity", "echo 2\n", x, command...)
	if got.code != 0 || got.out != "2\n" {
		t.Errorf("zenity: %+v", got)
	}
	checkContains(t, said, "--list\n", "--text=Which GPU?\n", "--column=GPU\n", "\n3\nNVIDIA A100-SXM4-80GB\n80.0 GiB\nfree\n", "\nc\nno GPU\n")
	if got, _ := ask(t, "zenity", "exit 1\n", x, command...); got.code != 125 || got.out != "" || !strings.Contains(got.err, "cancelled: nothing was leased") {
		t.Errorf("a window that was closed: %+v", got)
	}
	if got, _ := ask(t, "zenity", "echo\n", x, command...); got.code != 125 || got.out != "" || !strings.Contains(got.err, "cancelled: nothing was leased") {
		t.Errorf("a window where nothing was chosen: %+v", got)
	}
	if got, _ := ask(t, "zenity", "if test -e \"$ANSWERS\"; then echo 1; else echo 99; : >\"$ANSWERS\"; fi\n", x, command...); got.out != "1\n" {
		t.Errorf("a wrong answer first: %+v", got)
	}
	if got, _ := ask(t, "zenity", "echo '2 2'\n", x, command...); got.out != "2\n" {
		t.Errorf("a double click: %+v", got)
	}
	if got, _ := ask(t, "zenity", "echo c\n", x, "--timeout", "100ms", "--", "sleep", "1000"); got.code != 124 {
		t.Errorf("no GPU, and no more than a moment: %+v", got)
	}
	got, said = ask(t, "kdialog", "printf '0\\n3\\n'\n", []string{"DISPLAY=", "WAYLAND_DISPLAY=wayland-0"}, append([]string{"--gpus", "2"}, command...)...)
	if got.out != "0,3\n" {
		t.Errorf("kdialog: %+v", got)
	}
	checkContains(t, said, "--checklist\nWhich 2 GPUs?\n", "\n0\nNVIDIA A100-SXM4-80GB  80.0 GiB  free\noff\n")
	for name, env := range map[string][]string{"no program": x, "no desktop": {"DISPLAY=", "WAYLAND_DISPLAY="}} {
		if got, _ := ask(t, "", "", env, command...); got.code != 125 || !strings.Contains(got.err, "gpuard: cannot ask which GPU: there is no terminal") || !strings.Contains(got.err, "--device 0") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, _ := ask(t, "", "", x, append([]string{"--device", "1"}, command...)...); got.code != 125 || !strings.Contains(got.err, "cannot use --ask with --device") {
		t.Errorf("a device that is known: %+v", got)
	}
}

// TestAskKilled: a signal leaves the terminal as it was, also in a shell that does not restore it itself.
func TestAskKilled(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "dash"} {
		f := &commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()}
		s := startInteractive(t, f, shell)
		s.typeUntilEnd("stty -a >before")
		s.typeKeys("gpuard run --ask true; stty -a >after; echo code $?\n")
		s.waitForScreen(`Which GPU\?`)
		group := s.waitForForeground(s.cmd.Process.Pid)
		if err := unix.Kill(-group, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.waitForScreen("code 0")
		before, _ := os.ReadFile(filepath.Join(f.dir, "before"))
		after, _ := os.ReadFile(filepath.Join(f.dir, "after"))
		if len(before) == 0 || string(before) != string(after) {
			t.Errorf("%s: the terminal was\n%s\nand is\n%s", shell, before, after)
		}
	}
}

// TestAskBackground: a background job does not ask: it stops, as every reader of a terminal does there.
func TestAskBackground(t *testing.T) {
	t.Parallel()
	f := &commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()}
	s := startInteractive(t, f, "bash")
	for _, job := range []string{"gpuard run --ask true", "(gpuard run --ask true; true)"} {
		s.typeKeys(job + " & until [[ $(jobs) == *Stopped* ]]; do :; done; kill -9 %%; wait; echo 'it 'ended\n")
		if shown := s.waitForScreen("it ended(.|\n)*" + shellPrompt + "$"); strings.Contains(shown, "Which GPU?") {
			t.Errorf("%s asked: %s", job, shown)
		}
	}
}

// TestAskWindowGoes: a window goes when its answer is not wanted any more.
func TestAskWindowGoes(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"--ask", "--alert --device 9"} {
		dir := t.TempDir()
		executable.Write(t, filepath.Join(dir, "zenity"), []byte("#!/bin/sh\necho $$ >\"$LOG.new\"; mv \"$LOG.new\" \"$LOG\"; exec sleep 60\n"))
		cmd := gpuardCommand(t, stateFolder(t), []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "LOG=" + dir + "/log", "DISPLAY=:7"}, append(strings.Fields("run --machine demo "+words), "--", "true")...)
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var window []byte
		waitUntil(t, "a window", func() bool {
			window, _ = os.ReadFile(filepath.Join(dir, "log"))
			return len(window) > 0
		})
		_, _ = cmd.Process.Kill(), cmd.Wait()
		waitUntil(t, words+": the window is gone", func() bool { return isProcessGone(strings.TrimSpace(string(window))) })
	}
}
