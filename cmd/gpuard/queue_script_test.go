package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/userqueue"
)

// TestQueueScript: a script's own flags count where the command line has none, and a mistake in them is one line with
// its place.
func TestQueueScript(t *testing.T) {
	t.Parallel()
	state, dir := stateFolder(t), t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text, 0o755)
		return path
	}
	submit := func(args ...string) runResult {
		return runCommand(t, gpuardCommand(t, state, nil, append([]string{"submit", "--machine", "demo", "-q"}, args...)...))
	}
	wide := script("wide.sh", "#!/bin/sh\n\n# what it is\n#GPUARD --gpus 2 --name 'my job' # why\n#GPUARD\n#GPUARDED --gpus 4\n#GPUARD --exclude 0 --exclude 1\ntrue\n#GPUARD --cpu\n")
	for _, words := range [][]string{{wide}, {"--gpus", "1", "--name", "narrow", "--", wide, "--cpu"}, {"--", script("plain", "#GPUARD --gpus 2\ntrue\n")}, {"sh", wide}} {
		checkEqual(t, strings.Join(words, " "), submit(words...).code, 0)
	}
	if got := runCommand(t, gpuardCommand(t, state, nil, "wait", "--machine", "demo", "1-4")); got.code != 0 {
		t.Errorf("wait: %d, want 0\n%s", got.code, got.err)
	}
	var a struct{ Jobs []userqueue.Entry }
	if err := json.Unmarshal([]byte(runCommand(t, gpuardCommand(t, state, nil, "history", "--json")).out), &a); err != nil || len(a.Jobs) != 4 {
		t.Fatalf("%v, %+v", err, a)
	}
	for i, want := range []struct {
		name string
		gpus int
	}{{"my job", 2}, {"narrow", 1}, {"plain", 2}, {"my job", 2}} {
		if e := a.Jobs[i]; e.Name != want.name || len(e.Devices) != want.gpus || want.gpus == 2 && e.Name == "my job" && e.Devices[0].Index != 2 {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"flag":    {"#GPUARD --gpu 2\n", "line 2: unknown flag: --gpu"},
		"value":   {"#GPUARD --gpus many\n", "line 2: "},
		"command": {"# x\n#GPUARD --gpus 1\n#GPUARD train.py\n", `line 4: "train.py" is no flag; the command is the script itself`},
		"zero":    {"#GPUARD --name 'a\x00b'\n", "line 2, column 18: there is a NUL character, which no argument can have"},
		"list":    {"#GPUARD --exclude '0\x0b1'\n", "line 2: invalid argument"},
		"quote":   {"#GPUARD --name 'x\n", "line 2: the quote ' is never closed"},
	} {
		path := script(name, "#!/bin/sh\n"+c.text)
		got := submit(path)
		if got.code != 125 || !strings.Contains(got.err, "cannot read "+path+", "+c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: exit %d\n%s", name, got.code, got.err)
		}
	}
}

// TestScriptLinesInSweep: so does sweep, for all of its jobs at once.
func TestScriptLinesInSweep(t *testing.T) {
	t.Parallel()
	state, dir := stateFolder(t), t.TempDir()
	path := filepath.Join(dir, "job.sh")
	writeFile(t, path, "#!/bin/sh\n#GPUARD --gpus 2\ntrue\n", 0o755)
	says := "the lines with #GPUARD in " + path + " (--gpus 2) count for gpuard submit, not for gpuard sweep\n"
	for _, quiet := range []bool{false, true} {
		words := []string{"sweep", "--machine", "demo", "--dry-run", "--over", "seed=1..3"}
		if quiet {
			words = append(words, "-q")
		}
		got := runCommand(t, gpuardCommand(t, state, nil, append(words, "--", path, "{{.seed}}")...))
		if got.code != 0 || strings.Count(got.err, says) != map[bool]int{false: 1}[quiet] {
			t.Errorf("quiet %v: exit %d, %q", quiet, got.code, got.err)
		}
	}
}

// TestScriptLinesInRun: run says that the flags in a script are those of gpuard submit.
func TestScriptLinesInRun(t *testing.T) {
	t.Parallel()
	state, dir := stateFolder(t), t.TempDir()
	path := filepath.Join(dir, "job.sh")
	writeFile(t, path, "#!/bin/sh\n#GPUARD --gpus 2 # why\n#GPUARD --name 'my job'\ntrue\n", 0o755)
	says := "the lines with #GPUARD in " + path + " (--gpus 2 --name 'my job') count for gpuard submit, not for gpuard run\n"
	for _, c := range []struct {
		words []string
		want  bool
	}{{[]string{"--", path}, true}, {[]string{"--", "sh", path}, true}, {[]string{"--dry-run", "--", path}, true}, {[]string{"-q", "--", path}, false}, {[]string{"--", "cat", path}, false},
		{[]string{"--", "env", "A=b", "sh", "-e", path}, true}, {[]string{"--", "sh", "-c", "true", path}, false}, {[]string{"--gpus", "1", "--name", "x", "--", path}, false}, {[]string{"--gpus", "1", "--", path}, true}} {
		got := runCommand(t, gpuardCommand(t, state, nil, append([]string{"run", "--machine", "demo"}, c.words...)...))
		if got.code != 0 || strings.Contains(got.err, says) != c.want {
			t.Errorf("%q: exit %d, %q", c.words, got.code, got.err)
		}
	}
}

// TestQueueInvented: jobs on an invented machine share one folder of leases in one runner, and none of them meets another
// on its device. With a lock for each job, leases vanished while they were written.
func TestQueueInvented(t *testing.T) {
	t.Parallel()
	state, held := stateFolder(t), t.TempDir()
	script := `mkdir "$1/$CUDA_VISIBLE_DEVICES" && sleep 0.01 && rmdir "$1/$CUDA_VISIBLE_DEVICES"`
	checkEqual(t, "submit", runCommand(t, gpuardCommand(t, state, nil, "submit", "--machine", "demo", "-q", "--array", "1-150", "--", "sh", "-c", script, "sh", held)).out, "1\n")
	if got := runCommand(t, gpuardCommand(t, state, nil, "wait", "1-150")); got.code != 0 {
		t.Errorf("wait: %d, want 0\n%s", got.code, got.err)
	}
}

// TestQueueScriptHints: a line that was meant as flags and is none is named; a script needs no first line for its flags.
func TestQueueScriptHints(t *testing.T) {
	t.Parallel()
	state, dir := stateFolder(t), t.TempDir()
	for text, hint := range map[string]string{
		"#!/bin/sh\n# GPUARD --gpus 2\n":         "line 2 is not read",
		"#!/bin/sh\n#SBATCH --gres=gpu:2 -p x\n": " count as --gpus=2; these have no effect: --partition=x\n",
		"#!/bin/sh\n#GPUARD --cpu\n# gpuards\n":  "",
		"#!/bin/sh\nset -e\n#GPUARD --gpus 9\n":  "line 3 is not read: lines with #GPUARD stand before the first command",
		"#GPUARD --cpu\ntrue\n":                  "",
	} {
		file, err := os.CreateTemp(dir, "job") // each its own: one that runs cannot be written
		if err != nil {
			t.Fatal(err)
		}
		path := file.Name()
		if err := errors.Join(file.Close(), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o755)); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		got := runCommand(t, gpuardCommand(t, state, nil, "submit", "--machine", "demo", "-q", path))
		if got.code != 0 || hint == "" && got.err != "" || !strings.Contains(got.err, hint) {
			t.Errorf("%q: exit %d, %q, want %q", text, got.code, got.err, hint)
		}
	}
	checkEqual(t, "wait", runCommand(t, gpuardCommand(t, state, nil, "wait", "--machine", "demo", "1-5")).code, 0)
}
