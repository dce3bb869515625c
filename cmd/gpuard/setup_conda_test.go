package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runSetup is a gpuard setup conda that may fail.
func (c *condaFixture) runSetup(env []string, args ...string) runResult {
	c.Helper()
	cmd := setupCommand(c, c.dir, c.bin, append([]string{"conda"}, args...)...)
	cmd.Env = append(cmd.Env, append([]string{"CONDA_EXE=" + filepath.Join(c.dir, "mf/bin/conda"), "CONDA_PREFIX=", "MAMBA_ROOT_PREFIX="}, env...)...)
	return runCommand(c, cmd)
}

// TestCondaLeavesNothing: after --remove every byte is as it was, next to hooks of packages and in files of all kinds.
func TestCondaLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	files := map[string]string{
		"plain.yml":     "name: a\ndependencies:\n  - python=3.12\n",
		"comments.yml":  "# ours\nname: a\nvariables: # of the team\n    # keep\n    A: \"b c\"\n    TWO: |\n      x\n      y\n\n# the end\n",
		"windows.yml":   "name: a\r\nvariables:\r\n  A: b\r\ndependencies:\r\n- pip\r\n",
		"no-end.yml":    "name: a\ndependencies: [python]",
		"no-value.yml":  "name: a\nvariables:",
		"text.yml":      "name: a\ndescription: |+\n  long\n\n",
		"deep/link.yml": "->../plain.yml",
	}
	for name, text := range files {
		file := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		to, link := strings.CutPrefix(text, "->")
		var err error
		if link {
			err = os.Symlink(to, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o640) //nolint:gosec // a mode that is not the usual one
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	targets := [][]string{{"train", "--ask"}, {"other", "--device", "1,2"}, {filepath.Join(c.dir, "mf"), "--cpu"}}
	before := readTree(t, c.dir)
	for name := range files {
		if name != "deep/link.yml" { // the same file as plain.yml
			targets = append(targets, []string{"--environment-yml", filepath.Join(c.dir, name), "--device", "0", "--ids", "uuid"})
		}
	}
	for _, words := range targets {
		now := readTree(t, c.dir)
		if got := c.mustSetup(append(words, "--dry-run")...); !strings.Contains(got.out, "would ") {
			t.Errorf("%+v", got)
		}
		checkSameTree(t, fmt.Sprint("after --dry-run of ", words), now, readTree(t, c.dir))
		c.mustSetup(words...)
		once := readTree(t, c.dir)
		if maps.Equal(now, once) {
			t.Fatalf("%q wrote nothing", words)
		}
		c.mustSetup(words...)
		checkSameTree(t, fmt.Sprint("the second time ", words), once, readTree(t, c.dir))
	}
	for name := range files {
		if got := runCommand(t, gpuardCommand(t, c.state, nil, "lint", filepath.Join(c.dir, name))); got.code != 0 {
			t.Errorf("lint %s: %+v", name, got)
		}
	}
	for _, words := range targets {
		remove := words[:1]
		if strings.HasPrefix(words[0], "-") {
			remove = words[:2]
		}
		for range 2 {
			c.mustSetup(append(remove[:len(remove):len(remove)], "--remove")...)
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, c.dir))

	c.mustSetup("--environment-yml", filepath.Join(c.dir, "deep/link.yml"), "--lease")
	if text, _ := os.ReadFile(filepath.Join(c.dir, "plain.yml")); !strings.Contains(string(text), "variables: {GPUARD_CONDA: \"--lease\"}\n") {
		t.Errorf("behind the link: %s", text)
	}
	c.mustSetup("--environment-yml", filepath.Join(c.dir, "deep/link.yml"), "--remove")
	checkSameTree(t, "after --remove behind a link", before, readTree(t, c.dir))
}

// TestCondaBoth: one command writes the hooks of an environment and the choice into its file, in few lines; --dry-run
// shows all of them, and where the file cannot be changed nothing is written.
func TestCondaBoth(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	file := filepath.Join(c.dir, "env.yml")
	putText(t, file, "name: train\n")
	before := readTree(t, c.dir)
	both := []string{"train", "--environment-yml", file, "--lease"}
	dry := c.runSetup(nil, append(both, "--dry-run")...)
	checkContains(t, dry.out, "  + variables: {GPUARD_CONDA: \"--lease\"}", "activate.d/~~gpuard.sh", "deactivate.d/~~gpuard.fish", "  + unset _gpuard\n")
	checkSameTree(t, "after --dry-run", before, readTree(t, c.dir))
	got := c.runSetup(nil, both...)
	next, _, ok := strings.Cut(got.out, "try it:")
	if lines := strings.Count(got.out, "  + "); got.code != 0 || !ok || lines > 3 || strings.Count(next, "\n") > 8 {
		t.Errorf("%d lines of files: %+v", lines, got)
	}
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), "GPUARD_CONDA: \"--lease\"") {
		t.Errorf("the file is %s", text)
	}
	if again := c.runSetup(nil, append(both, "--dry-run")...); !strings.Contains(again.out, "unchanged:") || !strings.Contains(again.out, "  + unset _gpuard\n") {
		t.Errorf("--dry-run of what is set up: %+v", again)
	}
	c.mustSetup("train", "--environment-yml", file, "--remove")
	checkSameTree(t, "after --remove", before, readTree(t, c.dir))
	putText(t, file, "name: [\n")
	before = readTree(t, c.dir)
	if got := c.runSetup(nil, both...); got.code != 2 || got.out != "" {
		t.Errorf("with a file that is not YAML: %+v", got)
	}
	checkSameTree(t, "after a refusal", before, readTree(t, c.dir))
}

// TestCondaFileEdited: variables that a user adds to a file stay, or --remove says what to do.
func TestCondaFileEdited(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	file := filepath.Join(c.dir, "env.yml")
	putText(t, file, "name: a\nvariables:\n  A: b\n")
	c.mustSetup("--environment-yml", file, "--lease")
	addLine(t, file, "  C: d")
	c.mustSetup("--environment-yml", file, "--remove")
	if text, _ := os.ReadFile(file); string(text) != "name: a\nvariables:\n  A: b\n  C: d\n" {
		t.Errorf("left is %q", text)
	}
	putText(t, file, "name: a\n")
	c.mustSetup("--environment-yml", file, "--lease")
	text, _ := os.ReadFile(file)
	twice := string(text) + "variables:\n  A: b\n"
	putText(t, file, twice)
	if got := c.runSetup(nil, "--environment-yml", file, "--cpu"); got.code != 2 || !strings.Contains(got.err, "cannot add to "+file) {
		t.Errorf("beside other variables: %+v", got)
	}
	if now, _ := os.ReadFile(file); string(now) != twice {
		t.Errorf("what somebody wrote is now %s", now)
	}
	edited := strings.Replace(string(text), "}", ", C: d}", 1)
	putText(t, file, edited)
	for _, words := range [][]string{{"--remove"}, {"--cpu"}} {
		got := c.runSetup(nil, append([]string{"--environment-yml", file}, words...)...)
		if text, _ := os.ReadFile(file); got.code != 1 || !strings.Contains(got.err, "changed") || string(text) != edited || edited == "name: a\n" {
			t.Errorf("%q: %+v, left is %q", words, got, text)
		}
	}
}

// TestCondaEdited: a changed hook is neither overwritten nor removed, and a new choice replaces the old one.
func TestCondaEdited(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	hook := filepath.Join(c.envPath("other"), "etc/conda/activate.d/~~gpuard.sh")
	c.mustSetup("other", "--device", "0")
	first, _ := os.ReadFile(hook)
	c.mustSetup("other", "--lease")
	second, err := os.ReadFile(hook)
	if err != nil || string(first) == string(second) || !strings.Contains(string(second), "reserve --shell --no-wait") {
		t.Fatalf("%v: %s", err, second)
	}
	edited := string(second) + "echo mine\n"
	if err := os.WriteFile(hook, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.runSetup(nil, "other", "--device", "1"); got.code != 1 || !strings.Contains(got.err, "it was changed since gpuard wrote it") {
		t.Errorf("%+v", got)
	}
	if got := c.runSetup(nil, "other", "--remove"); got.code != 1 || !strings.Contains(got.err, "it was changed") {
		t.Errorf("%+v", got)
	}
	if text, _ := os.ReadFile(hook); string(text) != edited {
		t.Errorf("what somebody wrote is now %s", text)
	}
	if _, err := os.Stat(strings.Replace(hook, "gpuard.sh", "gpuard.fish", 1)); err == nil {
		t.Error("what nobody changed is still there")
	}
}

// TestCondaFinds: environments by name, by folder, by being active, and what is said where there is none.
func TestCondaFinds(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	away := filepath.Join(t.TempDir(), "far away", "env'1")
	if err := os.MkdirAll(filepath.Join(away, "conda-meta"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, ".conda"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, ".conda", "environments.txt"), []byte(away+"\n/gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := []string{"CONDA_EXE="}
	for _, w := range []struct {
		env  []string
		args []string
		key  string
	}{
		{nil, []string{"train"}, c.envPath("train")},
		{nil, []string{"base"}, filepath.Join(c.dir, "mf")},
		{none, []string{"env'1"}, away},
		{none, []string{away}, away},
		{none, []string{"./mf/envs/train/"}, c.envPath("train")},
		{append(none, "CONDA_PREFIX="+c.envPath("train")), nil, c.envPath("train")},
		{append(none, "CONDA_PREFIX="+c.envPath("train")), []string{"other"}, c.envPath("other")},
		{append(none, "CONDA_ENVS_PATH=/nowhere:"+filepath.Dir(away)), []string{"env'1"}, away},
		{append(none, "MAMBA_ROOT_PREFIX="+filepath.Join(c.dir, "mf")), []string{"third"}, c.envPath("third")},
	} {
		got := c.runSetup(w.env, append(w.args, "--device", "0", "--dry-run", "--json")...)
		if got.code != 0 || !strings.Contains(got.out, fmt.Sprintf("%q", "conda "+w.key)) {
			t.Errorf("%q %q: %+v", w.env, w.args, got)
		}
	}
	for _, w := range []struct {
		args []string
		want string
	}{
		{[]string{"nope", "--device", "0"}, "there is none of that name; name one, or its folder: " + filepath.Join(c.dir, "mf") + ", "},
		{[]string{"--device", "0"}, "no environment is active"},
		{[]string{"./.conda", "--device", "0"}, "it has no folder conda-meta"},
		{[]string{"train"}, "say which GPUs the environment is for, such as --device 0, --ask or --lease"},
		{[]string{"train", "--ask", "--lease"}, "cannot use --ask with --lease"},
		{[]string{"train", "--lease", "--cpu"}, "cannot use --lease with --cpu"},
		{[]string{"train", "--environment-yml", "x.yml", "--cpu"}, "cannot add to x.yml"},
		{[]string{"--environment-yml", "x.yml", "--cpu"}, "cannot add to x.yml"},
		{[]string{"--environment-yml", "x.yml"}, "say which GPUs"},
		{[]string{"--environment-yml", "x.yml", "--model", "A B"}, "write ? for it"},
	} {
		if got := c.runSetup(nil, w.args...); got.code != 2 || !strings.Contains(got.err, w.want) || got.out != "" {
			t.Errorf("%q: %+v, want %q", w.args, got, w.want)
		}
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "miniforge3/envs/usual/conda-meta"), 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	if got := c.runSetup(nil, "usual", "--device", "0", "--dry-run"); got.code != 0 || !strings.Contains(got.out, "miniforge3/envs/usual/etc/conda") {
		t.Errorf("in the folder that an installer takes: %+v", got)
	}
	twin := filepath.Join(t.TempDir(), "train")
	if err := os.MkdirAll(filepath.Join(twin, "conda-meta"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := c.runSetup([]string{"CONDA_ENVS_PATH=" + filepath.Dir(twin)}, "train", "--cpu"); got.code != 2 || !strings.Contains(got.err, "there are 2 of that name; write the folder of one: "+twin+", "+c.envPath("train")) {
		t.Errorf("two of one name: %+v", got)
	}
	c.mustSetup(away, "--device", "0")
	if err := os.Symlink(away, c.envPath("x")); err != nil {
		t.Fatal(err)
	}
	if got := c.runSetup(nil, "x", "--device", "0", "--json"); !strings.Contains(got.out, fmt.Sprintf("%q", "conda "+away)) || strings.Contains(got.out, `"create"`) {
		t.Errorf("by the name of a link: %+v", got)
	}
	for _, shell := range []string{"bash", "fish"} {
		lines := strings.Join([]string{saveEnvCommand("before"), c.activateLine("x", shell), printVariableCommand(shell, "CUDA_VISIBLE_DEVICES"), c.deactivateLine("x", shell), saveEnvCommand("after")}, "\n")
		if got := c.runScript(t, shell, lines); got.out != "<0>\n" {
			t.Errorf("%s: a folder with a blank and a quote: %+v", shell, got)
		}
		c.checkEnvUnchanged(t)
	}
	if err := os.RemoveAll(away); err != nil {
		t.Fatal(err)
	}
	if got := c.runSetup(none, "env'1", "--remove"); got.code != 0 || !strings.Contains(got.out, "already gone:") {
		t.Errorf("of an environment that is gone: %+v", got)
	}
}

// TestCondaFromFile: the choice in an environment.yml comes to the environment that conda makes of it, and what is left
// of the variable in a shell does no harm.
func TestCondaFromFile(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	state := filepath.Join(c.envPath("other"), "conda-meta", "state")
	for text, want := range map[string]string{
		`{"env_vars": {"GPUARD_CONDA": "--device 3 --ids uuid", "X": 1}}`: "env --device=3 --ids=uuid --save",
		`{"env_vars": {"GPUARD_CONDA": "--lease"}}`:                       "reserve --shell --no-wait --save",
		`{"env_vars": {"GPUARD_CONDA": "--remove"}}`:                      "",
		`{"env_vars": {"GPUARD_CONDA": "three"}}`:                         "",
		`{"env_vars": {"GPUARD_CONDA": "--device 1 --cpu"}}`:              "",
		`{"env_vars": {"GPUARD_CONDA": ""}}`:                              "",
		`{"env_vars": {}}`:                                                "", `{}`: "", `{`: "",
	} {
		if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := c.runSetup(nil, "other", "--dry-run")
		if want == "" && (got.code == 0 || got.out != "" || !strings.Contains(got.err, "cannot ")) || want != "" && (got.code != 0 || !strings.Contains(got.out, want)) {
			t.Errorf("%s: %+v, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"name: a\nvariables: {A: b}\n":             `below variables: GPUARD_CONDA: "--cpu"`,
		"name: a\nvariables:\n  GPUARD_CONDA: x\n": "has GPUARD_CONDA already",
		"- a\n": "not one map", "": "not one map", "a: [\n": "cannot add to",
	} {
		file := filepath.Join(c.dir, "no.yml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := c.runSetup(nil, "--environment-yml", file, "--cpu")
		after, _ := os.ReadFile(file)
		if got.code == 0 || !strings.Contains(got.err, want) || string(after) != text {
			t.Errorf("%q: %+v, want %q; the file is %q", text, got, want, after)
		}
	}
	c.mustSetup("other", "--device", "2")
	if got := c.runScript(t, "bash", c.activateLine("other", "bash")+"; export GPUARD_CONDA=; "+printVariableCommand("bash", "CUDA_VISIBLE_DEVICES"), "GPUARD_CONDA=--device 0"); got.out != "<2>\n" {
		t.Errorf("%+v", got)
	}
}

// TestCondaMaskBeside: a hook that sets a mask, as many pages show it, is named: the choice of gpuard is one among its GPUs.
func TestCondaMaskBeside(t *testing.T) {
	t.Parallel()
	c := newCondaFixture(t)
	hooks := filepath.Join(c.envPath("train"), "etc/conda/activate.d")
	writeFile(t, filepath.Join(hooks, "env_vars.sh"), "export CUDA_VISIBLE_DEVICES=1\n", 0)
	writeFile(t, filepath.Join(hooks, "other.sh"), "# export CUDA_VISIBLE_DEVICES=1\nexport MY_CUDA_VISIBLE_DEVICES=1\necho CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES\n", 0)
	got := c.mustSetup("train", "--device", "0")
	flat := strings.Join(strings.Fields(got.out+got.err), " ")
	checkContains(t, flat, "env_vars.sh sets CUDA_VISIBLE_DEVICES too, so that gpuard chooses only among those GPUs: take the line out")
	if strings.Contains(flat, "other.sh") {
		t.Error(flat)
	}
}
