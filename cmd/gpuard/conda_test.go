package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// condaFixture is a home with conda environments, and shells of its user.
type condaFixture struct {
	*commandPrefix
	bin string
}

// newCondaFixture has a base, and the environments train and other; train has hooks of packages, one of which changes a
// variable that gpuard changes too.
func newCondaFixture(t *testing.T) *condaFixture {
	t.Helper()
	c := &condaFixture{&commandPrefix{TB: t, dir: filepath.Join(quietDir(t), "home")}, makeProgramFolder(t)}
	c.state = filepath.Join(c.dir, "..", "state")
	for path, text := range map[string]string{
		"mf/conda-meta/history": "", "mf/envs/train/conda-meta/history": "", "mf/envs/other/conda-meta/history": "", "mf/envs/third/conda-meta/history": "",
		"mf/envs/train/etc/conda/activate.d/libblas_activate.sh":          "export BLAS=\"$(printf mkl)\"\n",
		"mf/envs/train/etc/conda/activate.d/~cuda-nvcc_activate.sh":       "export CUDA_DEVICE_ORDER=FASTEST_FIRST\n",
		"mf/envs/train/etc/conda/activate.d/~cuda-nvcc_activate.fish":     "set -gx CUDA_DEVICE_ORDER FASTEST_FIRST\n",
		"mf/envs/train/etc/conda/deactivate.d/libblas_deactivate.sh":      "unset BLAS\n",
		"mf/envs/train/etc/conda/deactivate.d/~cuda-nvcc_deactivate.sh":   "test \"$CUDA_DEVICE_ORDER\" = FASTEST_FIRST && unset CUDA_DEVICE_ORDER\n",
		"mf/envs/train/etc/conda/deactivate.d/~cuda-nvcc_deactivate.fish": "set -e CUDA_DEVICE_ORDER\n",
	} {
		file := filepath.Join(c.dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *condaFixture) envPath(name string) string { return filepath.Join(c.dir, "mf", "envs", name) }

// mustSetup is a gpuard setup conda that must succeed.
func (c *condaFixture) mustSetup(args ...string) runResult {
	c.Helper()
	cmd := setupCommand(c, c.dir, c.bin, append([]string{"conda"}, args...)...)
	cmd.Env = append(cmd.Env, "CONDA_EXE="+filepath.Join(c.dir, "mf/bin/conda"), "CONDA_PREFIX=", "MAMBA_ROOT_PREFIX=")
	got := runCommand(c, cmd)
	if got.code != 0 {
		c.Fatalf("gpuard setup conda %q: %+v", args, got)
	}
	return got
}

// activateLine and leave are the lines that conda has a shell evaluate (conda/conda: conda/activate.py).
func (c *condaFixture) activateLine(name, shell string) string {
	return c.hookLine(name, "activate.d", shell)
}
func (c *condaFixture) deactivateLine(name, shell string) string {
	return c.hookLine(name, "deactivate.d", shell)
}

func (c *condaFixture) hookLine(name, folder, shell string) string {
	c.Helper()
	ext, word := ".sh", "."
	if shell == "fish" {
		ext, word = ".fish", "source"
	}
	found, err := filepath.Glob(filepath.Join(c.envPath(name), "etc/conda", folder, "*"+ext))
	if err != nil || len(found) == 0 {
		c.Fatalf("no hooks of %s in %s: %v", shell, folder, err)
	}
	slices.Sort(found)
	if folder == "deactivate.d" {
		slices.Reverse(found)
	}
	line := ""
	for _, f := range found {
		line += word + ` "` + f + `"; `
	}
	return strings.TrimSuffix(line, "; ")
}

// plainShellWords start a shell that reads no start-up files.
func plainShellWords(t *testing.T, shell string) []string {
	t.Helper()
	needShell(t, shell)
	return map[string][]string{"bash": {"bash", "--norc"}, "zsh": {"zsh", "-f"}, "dash": {"dash"}, "fish": {"fish", "--no-config"}}[shell]
}

// runScript runs lines in a shell without a terminal; t is the test that needs this shell, which may be a part of the one
// that made c.
func (c *condaFixture) runScript(t *testing.T, shell, lines string, env ...string) runResult {
	t.Helper()
	cmd := c.cmd(append(plainShellWords(t, shell), "-c", lines)...)
	cmd.Env = append(cmd.Env, append([]string{"GPUARD_MACHINE=demo", "PATH=" + c.bin + ":" + os.Getenv("PATH")}, env...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	return runCommand(t, cmd)
}

// saveEnvCommand writes the whole environment into a file.
func saveEnvCommand(file string) string {
	return "env -0 | sort -z | grep -zv -e '^_=' -e '^SHLVL=' >" + file
}

// printVariableCommand prints a variable, also one that is not there.
func printVariableCommand(shell, name string) string {
	if shell == "fish" {
		return "set -q " + name + "; and echo \"<$" + name + ">\"; or echo '<unset>'"
	}
	return "echo \"<${" + name + "-unset}>\""
}

// printHookVariables prints the hooks' own variables.
func printHookVariables(shell string) string {
	return strings.Join([]string{printVariableCommand(shell, "_gpuard"), printVariableCommand(shell, "name"), printVariableCommand(shell, "ended")}, "\n")
}

// TestCondaShells: inside there is the choice, in whatever state of the shell; afterwards every variable is as it was.
func TestCondaShells(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	c.mustSetup("train", "--device", "2")
	strict := map[string]string{"bash": "set -euo pipefail; set -f; IFS='2_ U'; ", "dash": "set -eu; set -f; IFS='2_ U'; ",
		"zsh": "setopt nounset err_exit sh_word_split noglob ksh_arrays no_unset; IFS='2_ U'; ", "fish": ""}
	for shell, options := range strict {
		for _, before := range []struct{ name, env, inside string }{
			{"unset", "", "<2>"},
			{"empty", "CUDA_VISIBLE_DEVICES=", "<-1>"},
			{"a mask", "CUDA_VISIBLE_DEVICES=0,2", "<2>"},
			{"a mask without it", "CUDA_VISIBLE_DEVICES=1", "<-1>"},
			{"odd", "CUDA_VISIBLE_DEVICES=it's\n\"$(touch owned)\" `touch owned` \\ \xff", "<-1>"},
		} {
			for _, options := range []string{"", options} {
				t.Run(shell+"/"+before.name, func(t *testing.T) {
					lines := []string{options + saveEnvCommand("before"), c.activateLine("train", shell), printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"), printVariableCommand(shell, "CUDA_DEVICE_ORDER"), c.deactivateLine("train", shell), saveEnvCommand("after"), "echo end"}
					var env []string
					if before.env != "" {
						env = append(env, before.env)
					}
					got := c.runScript(t, shell, strings.Join(lines, "\n"), env...)
					checkContains(t, got.out, before.inside+"\n", "end\n")
					if before.inside == "<2>" && !strings.Contains(got.out, "<PCI_BUS_ID>") {
						t.Errorf("a hook of a package had the last word: %+v", got)
					}
					if blind := strings.Contains(got.err, "this environment sees NO GPU; to try again: "); blind != (before.inside == "<-1>") {
						t.Errorf("what is said: %s", got.err)
					}
					c.checkEnvUnchanged(t)
				})
			}
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "owned")); err == nil {
		t.Error("a value was run")
	}
}

// checkEnvUnchanged compares the environment before and after.
func (c *condaFixture) checkEnvUnchanged(t testing.TB) {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(c.dir, "before"))
	after, err2 := os.ReadFile(filepath.Join(c.dir, "after"))
	if err != nil || err2 != nil || len(before) == 0 {
		t.Fatalf("%v %v: %d bytes before", err, err2, len(before))
	}
	old, now := strings.Split(string(before), "\x00"), strings.Split(string(after), "\x00")
	for _, pair := range old {
		if !slices.Contains(now, pair) {
			t.Errorf("%q is gone", pair)
		}
	}
	for _, pair := range now {
		if !slices.Contains(old, pair) {
			t.Errorf("%q is left behind", pair)
		}
	}
}

// TestCondaTerminal: the same in a shell that a person types into, with a choice, and with a lease.
func TestCondaTerminal(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			c := newCondaFixture(t)
			c.mustSetup("train", "--ask")
			c.mustSetup("other", "--lease", "--model", "*A100*")
			s := startInteractive(t, c.commandPrefix, shell, "PATH="+c.bin+":"+os.Getenv("PATH"))
			for _, before := range []struct{ set, shown string }{
				{map[bool]string{true: "set -e CUDA_VISIBLE_DEVICES", false: "unset CUDA_VISIBLE_DEVICES"}[shell == "fish"], "<unset>"},
				{map[bool]string{true: "set -gx CUDA_VISIBLE_DEVICES 3,0", false: "export CUDA_VISIBLE_DEVICES=3,0"}[shell == "fish"], "<3,0>"},
			} {
				s.typeUntilEnd(before.set)
				s.typeUntilEnd(saveEnvCommand("before"))
				for _, answer := range []struct{ keys, inside string }{{"3\n", "<3>"}, {"c\n", "<-1>"}, {"\x03", "<-1>"}, {"\n", "<[0-3]>"}} {
					s.typeKeys(c.activateLine("train", shell) + "\n")
					s.waitForScreen(`Which GPU\? .*\] $`)
					s.typeKeys(answer.keys)
					s.typeKeys(printVariableCommand(shell, "CUDA_VISIBLE_DEVICES") + "\n")
					s.waitForScreen(answer.inside)
					s.typeUntilEnd(c.deactivateLine("train", shell))
					s.typeKeys(printVariableCommand(shell, "CUDA_VISIBLE_DEVICES") + "\n")
					s.waitForScreen(before.shown)
					s.typeUntilEnd(saveEnvCommand("after"))
					c.checkEnvUnchanged(t)
				}
			}
			s.typeUntilEnd(map[bool]string{true: "set -gx CUDA_VISIBLE_DEVICES ''", false: "export CUDA_VISIBLE_DEVICES="}[shell == "fish"])
			s.typeUntilEnd(saveEnvCommand("before"))
			s.typeKeys(c.activateLine("train", shell) + "\n")
			s.waitForScreen("this environment sees NO GPU")
			s.typeKeys(printVariableCommand(shell, "CUDA_VISIBLE_DEVICES") + "\n")
			s.waitForScreen("<-1>")
			s.typeUntilEnd(c.deactivateLine("train", shell))
			s.typeKeys(printVariableCommand(shell, "CUDA_VISIBLE_DEVICES") + "\n")
			s.waitForScreen("<>")
			s.typeUntilEnd(saveEnvCommand("after"))
			c.checkEnvUnchanged(t)

			s.typeUntilEnd(map[bool]string{true: "set -e CUDA_VISIBLE_DEVICES", false: "unset CUDA_VISIBLE_DEVICES"}[shell == "fish"])
			s.typeUntilEnd(saveEnvCommand("before"))
			s.typeKeys(c.activateLine("other", shell) + "\n")
			s.waitForScreen(`lease [a-z0-9]+, until this shell ends`)
			if c.countLeases() != 1 {
				t.Errorf("%d leases inside, want 1", c.countLeases())
			}
			s.typeUntilEnd(c.deactivateLine("other", shell))
			if c.countLeases() != 0 {
				t.Errorf("%d leases after it, want none", c.countLeases())
			}
			s.typeUntilEnd(saveEnvCommand("after"))
			c.checkEnvUnchanged(t)
			s.typeKeys(c.activateLine("other", shell) + "\n")
			s.waitForScreen(`until this shell ends`)
			if err := s.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			c.waitUntilFreed()
		})
	}
}

// TestCondaLease: the lease is the shell's that activated: a child that inherits the environment and leaves it ends
// nothing, and where nothing is free the environment sees no GPU.
func TestCondaLease(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "dash", "fish"} {
		t.Run(shell, func(t *testing.T) {
			c := newCondaFixture(t)
			c.mustSetup("other", "--lease", "--device", "1")
			in, out := c.activateLine("other", shell), c.deactivateLine("other", shell)
			const count = "gpuard status --json | grep -c '\"id\": '"
			inner := strings.Join(append(plainShellWords(t, shell), "-c"), " ")
			lines := []string{saveEnvCommand("before"), in, "echo a; " + count, inner + " '" + strings.ReplaceAll(out, `"`, ``) + "; env | grep CUDA_VISIBLE'", "echo b; " + count, out, "echo c; " + count, saveEnvCommand("after"), "echo end"}
			got := c.runScript(t, shell, strings.Join(lines, "\n"))
			if got.out != "a\n1\nb\n1\nc\n0\nend\n" {
				t.Errorf("%+v", got)
			}
			c.checkEnvUnchanged(t)

			if shell != "fish" { // it has no such copies of itself
				lines = []string{in, "(" + out + "); echo a; " + count, out + "; echo b; " + count, "(" + in + "; echo c; " + count + "; " + out + "); echo d; " + count, "true"}
				if got := c.runScript(t, shell, strings.Join(lines, "\n")); got.out != "a\n1\nb\n0\nc\n1\nd\n0\n" {
					t.Errorf("in parentheses: %+v", got)
				}
			}

			// conda install activates again: the lease is still the one that ends with the environment.
			lines = []string{in, in, "echo a; " + count, out, "echo b; " + count, "true"}
			if got := c.runScript(t, shell, strings.Join(lines, "\n")); got.out != "a\n1\nb\n0\n" {
				t.Errorf("entered again: %+v", got)
			}

			c.mustSetup("third", "--ask")
			lines = []string{c.activateLine("third", shell), printVariableCommand(shell, "GPUARD_GPUS"), c.deactivateLine("third", shell)}
			if got := c.runScript(t, shell, strings.Join(lines, "\n")); !strings.HasPrefix(got.out, "<GPU-") || got.err != "" {
				t.Errorf("a script is asked: %+v", got)
			}

			// conda run: a script activates, runs the command and ends.
			got = c.runScript(t, shell, in+"\n"+count+"\n"+printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"))
			if got.out != "1\n<1>\n" {
				t.Errorf("a script: %+v", got)
			}
			c.waitUntilFreed()

			held := c.cmd("gpuard", "run", "--machine", "demo", "--device", "1", "--", "sleep", "1000")
			held.Args[0] = "gpuard"
			if err := held.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Process.Kill(); _ = held.Wait() }()
			waitUntil(t, "somebody has the GPU", func() bool { return c.countLeases() == 1 })
			got = c.runScript(t, shell, strings.Join([]string{saveEnvCommand("before"), in, printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"), out, saveEnvCommand("after")}, "\n"))
			checkContains(t, got.out, "<-1>")
			checkContains(t, got.err, "this environment sees NO GPU; to try again: ", "gpuard reserve --shell", " --device=1 --save conda:"+c.envPath("other"))
			c.checkEnvUnchanged(t)
		})
	}
}

// TestCondaStacked: environments in one another, left in any order, and entered again without being left.
func TestCondaStacked(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	c.mustSetup("third", "--device", "0,1")
	c.mustSetup("other", "--device", "1")
	for _, shell := range []string{"bash", "zsh", "dash", "fish"} {
		a, b, offA, offB := c.activateLine("third", shell), c.activateLine("other", shell), c.deactivateLine("third", shell), c.deactivateLine("other", shell)
		show := printVariableCommand(shell, "CUDA_VISIBLE_DEVICES")
		choose := func(words ...string) string {
			if shell == "fish" {
				words = append(words, "--format", "fish | source")
			}
			line := "gpuard env " + strings.Join(words, " ")
			if shell == "fish" {
				return line
			}
			return `eval "$(` + line + `)"`
		}
		for name, steps := range map[string][]string{
			"in order":       {a, show, "echo '<0,1>'", b, show, "echo '<1>'", offB, show, "echo '<0,1>'", offA},
			"the outer one":  {a, b, offA, show, "echo '<1>'", offB},
			"again":          {a, a, show, "echo '<0,1>'", offA},
			"left too often": {a, offA, offA},
			"another choice": {choose("--cpu", "--save", "x"), choose("--device", "1", "--save", "x"), printVariableCommand(shell, "ROCR_VISIBLE_DEVICES"), "echo '<unset>'", choose("--restore", "x")},
			"changed inside": {a, map[bool]string{true: "set -gx CUDA_VISIBLE_DEVICES 3", false: "export CUDA_VISIBLE_DEVICES=3"}[shell == "fish"], offA},
		} {
			t.Run(shell+"/"+name, func(t *testing.T) {
				got := c.runScript(t, shell, strings.Join(slices.Concat([]string{saveEnvCommand("before")}, steps, []string{saveEnvCommand("after")}), "\n"))
				lines := strings.Fields(got.out)
				for i := 0; i+1 < len(lines); i += 2 {
					if lines[i] != lines[i+1] {
						t.Errorf("%s, want %s: %+v", lines[i], lines[i+1], got)
					}
				}
				if strings.Contains(got.err, "NO GPU") {
					t.Error(got.err)
				}
				c.checkEnvUnchanged(t)
			})
		}
	}
}

// TestCondaWithoutGpuard: where gpuard is gone, or its own variable is damaged, the environment becomes active without
// a GPU, and what was before comes back.
func TestCondaWithoutGpuard(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	c.mustSetup("train", "--device", "0")
	for _, shell := range []string{"bash", "zsh", "dash", "fish"} {
		in, out := c.activateLine("train", shell), c.deactivateLine("train", shell)
		lines := strings.Join([]string{saveEnvCommand("before"), in, in, printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"), printVariableCommand(shell, "NVIDIA_VISIBLE_DEVICES"), out, saveEnvCommand("after"), printHookVariables(shell), "echo end"}, "\n")
		options := map[string]string{"bash": "set -eu\n", "dash": "set -eu\n", "zsh": "setopt nounset err_exit\n"}[shell]
		t.Run(shell+"/damaged", func(t *testing.T) {
			got := c.runScript(t, shell, options+lines, "GPUARD_SAVED=[{", "CUDA_VISIBLE_DEVICES=")
			checkContains(t, got.out, "<-1>\n<void>\n<unset>\n<unset>\n<unset>\nend\n")
			checkContains(t, got.err, "unset GPUARD_SAVED", "sees NO GPU")
			c.checkEnvUnchanged(t)
		})
	}
	if err := os.Remove(filepath.Join(c.bin, "gpuard")); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "dash", "fish"} {
		in, out := c.activateLine("train", shell), c.deactivateLine("train", shell)
		lines := strings.Join([]string{saveEnvCommand("before"), in, printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"), printVariableCommand(shell, "VISIBLE_DEVICES"), out, saveEnvCommand("after"), printHookVariables(shell), "echo end"}, "\n")
		options := map[string]string{"bash": "set -eu\n", "dash": "set -eu\n", "zsh": "setopt nounset err_exit\n"}[shell]
		t.Run(shell+"/gone", func(t *testing.T) {
			for _, before := range [][]string{nil, {"CUDA_VISIBLE_DEVICES=", "VISIBLE_DEVICES=a 'b'\nc"}} {
				got := c.runScript(t, shell, options+lines, before...)
				checkContains(t, got.out, "<-1>\n<unset>\n<unset>\n<unset>\n<unset>\nend\n")
				if !strings.Contains(got.err, "cannot be used, so this environment sees NO GPU") || strings.Count(got.err, "\n") != 1 {
					t.Errorf("it says %s", got.err)
				}
				c.checkEnvUnchanged(t)
			}
			if got := c.runScript(t, shell, out); got.err != "" {
				t.Errorf("left where it was not entered: %s", got.err)
			}
		})
	}
}
