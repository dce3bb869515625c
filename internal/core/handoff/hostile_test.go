package handoff

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"gpuard/internal/core/job"
)

// hostile are words that a shell, sbatch, YAML, Kubernetes or Compose could take for something else.
func hostile() []string {
	return []string{"", " ", "a b", "it's", `"`, `\`, "$HOME", "$(id)", "$$(id)", "$$", "$", "${X:-y}", "`id`", "a\nb", "\n", "\r\n", "\t", "a\r\nb", "#", " #x", "#SBATCH --gpus=9", "x\n#SBATCH --gpus=9\ny",
		"- a", "a: b", "a:", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "~", "null", "yes", "on", "NO", "1", "1e3", "0x1f", "012", "1:30", ".inf", "2001-01-01", "=", "<<", "---", "...", "'", "''", "\\n", "\x01", "\x1b[31m", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "ü", "训练", "🎉", "e\u0301", "-n", "--", "~/x", "a;b", "a&b", "!x", "?", "x*", "{{.A}}", "%", "a=b", strings.Repeat("long ", 400)}
}

// randomWord joins some of them.
func randomWord(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(4) {
		b.WriteString(hostile()[random.IntN(len(hostile()))])
	}
	return b.String()
}

// hostileWork has such words wherever its owner writes some.
func hostileWork(random *rand.Rand, program string) Work {
	w := Work{Spec: job.Spec{Command: []string{program}, GPUs: 1, Name: randomWord(random)}, Image: "i", Note: randomWord(random)}
	for range random.IntN(6) {
		w.Spec.Command = append(w.Spec.Command, randomWord(random))
	}
	for i := range random.IntN(6) {
		w.Env = append(w.Env, Variable{fmt.Sprintf("HOSTILE_%d", i), randomWord(random)})
	}
	return w
}

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
		w := hostileWork(random, program)
		w.Folder = folder
		if i == 0 {
			w.Spec.Command = append([]string{program}, hostile()...)
		}
		if i == 1 {
			w.Env = []Variable{{"LARGE", strings.Repeat("x'\n", 100<<10/3)}}
		}
		out, err := Write(Slurm, w, site())
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
		w := hostileWork(random, "./run")
		if i == 0 {
			w.Spec.Command = append([]string{"./run"}, hostile()...)
		}
		out, err := Write(Kubernetes, w, site())
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
							Env     []Variable
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

// FuzzScalar: a YAML parser reads every text as itself.
func FuzzScalar(f *testing.F) {
	for _, word := range hostile() {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if odd(text) {
			t.Skip()
		}
		var back map[string][]string
		doc := object{{"a", []string{text, "end"}}}.document()
		if err := yaml.Unmarshal([]byte(doc), &back); err != nil || len(back["a"]) != 2 || back["a"][0] != text {
			t.Errorf("%q: %v, %q", doc, err, back["a"])
		}
		if strings.ContainsAny(quote(text), "\r\n") {
			t.Errorf("%q is on several lines of a script", text)
		}
	})
}
