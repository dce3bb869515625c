package handoff_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"gpuard/internal/core/handoff"
	"gpuard/test/works"
)

// TestScriptRuns: bash, given the script, starts the command that is meant, in the folder and with the variables that are
// meant, whatever words they are made of; sbatch would read no directive but ours.
func TestScriptRuns(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a 'b' $(c)\n#SBATCH --x\r")
	program := filepath.Join(folder, "stub $(x)'\n")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	stub := "#!/bin/sh\nprintf '%s\\0' \"$PWD\" \"$@\"\nexec env -0\n"
	if err := os.WriteFile(program, []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		w := works.Named(random, program)
		w.Folder = folder
		if i == 0 {
			w.Spec.Command = append([]string{program}, works.HostileWords()...)
		}
		if i == 1 {
			w.Env = []handoff.Variable{{Name: "LARGE", Value: strings.Repeat("x'\n", 100<<10/3)}}
		}
		out, err := handoff.Write(handoff.Slurm, w, works.Site())
		if err != nil {
			t.Fatal(err)
		}
		checkDirectives(t, out.Text)
		cmd := exec.Command("bash")
		cmd.Stdin, cmd.Env = strings.NewReader(out.Text), []string{"PATH=" + os.Getenv("PATH"), "SLURM_EXPORT_ENV=NONE"}
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Text)
		}
		got := strings.Split(strings.TrimSuffix(string(said), "\x00"), "\x00")
		want := append([]string{folder}, w.Spec.Command[1:]...)
		if !slices.Equal(got[:len(want)], want) {
			t.Fatalf("the arguments are %q, want %q\n%s", got[:len(want)], want, out.Text)
		}
		for _, v := range w.Env {
			if !slices.Contains(got[len(want):], v.Name+"="+v.Value) {
				t.Fatalf("%s is not %q\n%s", v.Name, v.Value, out.Text)
			}
		}
		if slices.Contains(got, "SLURM_EXPORT_ENV=NONE") || !slices.Contains(got, "CUDA_DEVICE_ORDER=PCI_BUS_ID") || strings.Contains(out.Text, "CUDA_VISIBLE_DEVICES") {
			t.Fatalf("the variables of the engine: %q", got[len(want):])
		}
	}
}

// checkDirectives: sbatch reads lines that begin with #SBATCH, #PBS or #BSUB, up to the first that is no remark, and
// refuses a script with \r\n.
func checkDirectives(t *testing.T, script string) {
	t.Helper()
	if strings.ContainsAny(script, "\r\x00") {
		t.Fatalf("sbatch refuses this script: %q", script)
	}
	lines := strings.Split(script, "\n")
	if lines[0] != "#!/bin/bash" {
		t.Fatal(lines[0])
	}
	commands := false
	for _, line := range lines[1:] {
		switch name, _, _ := strings.Cut(strings.TrimPrefix(line, "#SBATCH --"), "="); {
		case strings.HasPrefix(line, "#SBATCH") && (commands || strings.ContainsAny(line[8:], " \t'\"\\#") ||
			!slices.Contains([]string{"job-name", "nodes", "ntasks", "gpus-per-node", "no-requeue", "export", "comment"}, name)):
			t.Fatalf("a directive that nobody asked for: %q", line)
		case strings.HasPrefix(line, "#PBS"), strings.HasPrefix(line, "#BSUB"):
			t.Fatalf("a directive of another engine: %q", line)
		case !strings.HasPrefix(line, "#"):
			commands = true
		}
	}
}

// expand is what Kubernetes makes of a text without variables of that name: $$ is $, and everything else stays
// (kubernetes/kubernetes: third_party/forked/golang/expansion/expand.go).
func expand(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		b.WriteByte(text[i])
		if text[i] == '$' && i+1 < len(text) && text[i+1] == '$' {
			i++
		}
	}
	return b.String()
}

// references reports whether Kubernetes would look for a variable in a text.
func references(text string) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '$' {
			continue
		}
		if text[i+1] == '(' {
			return true
		}
		if text[i+1] == '$' {
			i++
		}
	}
	return false
}

// TestManifestsReadBack: what a YAML parser reads out of the texts is what was meant.
func TestManifestsReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		w := works.Named(random, "./run")
		if i == 0 {
			w.Spec.Command = append([]string{"./run"}, works.HostileWords()...)
		}
		out, err := handoff.Write(handoff.Kubernetes, w, works.Site())
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Command []string
							Env     []handoff.Variable
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(out.Text), &m); err != nil {
			t.Fatalf("%v\n%s", err, out.Text)
		}
		c := m.Spec.Template.Spec.Containers[0]
		if want := w.Spec.Command; len(c.Command) != len(want) || m.Metadata.Annotations["gpuard/note"] != w.Note {
			t.Fatalf("%q, want %q; %q", c.Command, want, m.Metadata.Annotations)
		}
		for i, word := range c.Command {
			if expand(word) != w.Spec.Command[i] || references(word) {
				t.Fatalf("%q means %q, want %q", word, expand(word), w.Spec.Command[i])
			}
		}
		for i, v := range c.Env[1:] {
			if v.Name != w.Env[i].Name || expand(v.Value) != w.Env[i].Value || references(v.Value) {
				t.Fatalf("%+v, want %+v", v, w.Env[i])
			}
		}
	}
}
