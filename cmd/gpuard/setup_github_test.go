package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"gpuard/test/executable"
)

// workflowFile is what a test needs of one.
type workflowFile struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Timeout  int `yaml:"timeout-minutes"`
		Strategy struct {
			Matrix struct {
				Include []struct{ Mode, Flags string }
			}
		}
		Steps []struct {
			Name, Run string
			Env       map[string]string
		}
	}
}

// TestGitHubWorkflow: the scripts of the workflow install a package and run the command, in both modes by the same
// line.
func TestGitHubWorkflow(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	repo := filepath.Join(home, "empty")
	if err := os.Mkdir(filepath.Join(repo, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := readTree(t, home)
	call := func(args ...string) string {
		cmd := setupCommand(t, home, bin, append([]string{"github"}, args...)...)
		cmd.Dir = repo
		return mustRun(t, cmd)
	}
	empty := setupCommand(t, home, bin, "github", "--", "")
	empty.Dir = repo
	if got := runCommand(t, empty); got.code != 2 || !strings.Contains(got.err, `cannot put "" into a workflow`) {
		t.Errorf("no command: %+v", got)
	}
	checkSameTree(t, "no command", before, readTree(t, home))
	show := []string{"--", "sh", "-c", `echo "<$CUDA_VISIBLE_DEVICES> $1"`, "sh", "it's"}
	call(show...)
	once := readTree(t, home)
	call(show...)
	checkSameTree(t, "twice", once, readTree(t, home))

	file := filepath.Join(repo, ".github", "workflows", "gpuard.yml")
	checkContains(t, mustRun(t, gpuardCommand(t, filepath.Join(home, "state"), nil, "lint", file)), "no findings")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var w workflowFile
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	job := w.Jobs["test"]
	if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" || job.Timeout == 0 {
		t.Errorf("permissions %v, timeout %d", w.Permissions, job.Timeout)
	}
	installed := filepath.Join(t.TempDir(), "bin")
	for _, step := range job.Steps {
		if strings.Contains(step.Run, "${{") {
			t.Errorf("an expression in the script of %q", step.Name)
		}
		if step.Name == "Install gpuard" {
			checkInstallStep(t, step.Run, installed)
		}
		if step.Name != "Run" {
			continue
		}
		for _, m := range job.Strategy.Matrix.Include {
			got := runCommand(t, workflowStepCommand(t, step.Run, installed, filepath.Join(home, "leases"), "GPUARD_MACHINE=demo", "GPUARD_FLAGS="+m.Flags))
			want := map[string]string{"cpu": "<-1> it's\n", "gpu": "<3> it's\n"}[m.Mode]
			if got.code != 0 || got.out != want {
				t.Errorf("%s: exit %d, %q, want %q; %s", m.Mode, got.code, got.out, want, got.err)
			}
		}
	}
	leases := filepath.Join(home, "leases")
	waitForWriters(t, leases) // the last lease has its line
	if err := os.RemoveAll(leases); err != nil {
		t.Fatal(err)
	}
	call("--remove")
	checkSameTree(t, "--remove", before, readTree(t, home))
}

// workflowStepCommand is the script of a step as GitHub runs it, with the programs of bin first.
func workflowStepCommand(t *testing.T, script, bin, state string, env ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "step.sh")
	putText(t, file, script)
	cmd := gpuardCommand(t, state, append(env, "PATH="+bin+":"+os.Getenv("PATH")))
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = path, []string{"bash", "-e", file}
	return cmd
}

// checkInstallStep runs the first step where curl fetches a file of ours and dpkg puts the program into a folder.
func checkInstallStep(t *testing.T, script, bin string) {
	t.Helper()
	temp, tools := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(bin, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(tools, "curl"), []byte("#!/bin/sh\nwhile [ \"$1\" != --output ]; do shift; done\n[ \"$3\" = https://example.org/gpuard.deb ] && echo package >\"$2\"\n"))
	executable.Write(t, filepath.Join(tools, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"))
	executable.Write(t, filepath.Join(tools, "dpkg"), []byte("#!/bin/sh\n[ \"$(cat \"$2\")\" = package ] && ln -s '"+self+"' '"+bin+"/gpuard'\n"))
	sum := sha256.Sum256([]byte("package\n"))
	right := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		name, url, sum, want string
		code                 int
	}{
		{"no variables", "", "", "set the variables GPUARD_URL and GPUARD_SHA256", 1},
		{"another sum", "https://example.org/gpuard.deb", strings.Repeat("0", 64), "did NOT match", 1},
		{"no such page", "https://example.org/other", right, "", 1},
		{"all well", "https://example.org/gpuard.deb", right, "", 0},
	} {
		got := runCommand(t, workflowStepCommand(t, script, tools, temp, "RUNNER_TEMP="+temp, "GPUARD_URL="+c.url, "GPUARD_SHA256="+c.sum))
		if got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exit %d, want %d: %s%s", c.name, got.code, c.code, got.out, got.err)
		}
		if _, err := os.Lstat(filepath.Join(bin, "gpuard")); (err == nil) != (c.code == 0) {
			t.Errorf("%s: installed: %v", c.name, err)
		}
	}
}
