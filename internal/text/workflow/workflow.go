// Package workflow reads GitHub workflow files: which variables and commands their jobs run with. It runs nothing.
package workflow

import (
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/text/yamltree"
)

// maxSteps is how many steps a file may have: aliases can make a small file name a great many.
const maxSteps = 20000

// ReadSteps returns what a workflow, or a composite action, does
// (https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax). A job's steps are in the
// section "JOB", those of one step in "JOB.steps[2]", counted from 0. Variables of env are Set steps; a run for a POSIX
// shell is a Script; the options of a container are a Command: docker create.
func ReadSteps(path string, src []byte) (lint.File, error) {
	f := lint.File{Path: path, Kind: lint.Workflow}
	docs, err := yamltree.Parse(src)
	if err != nil {
		return f, err
	}

	for _, doc := range docs {
		var r reader
		r.readEnv("", "env", doc.Find("env"))
		shell := doc.Find("defaults", "run", "shell").ScalarText()
		for _, j := range doc.Find("jobs").Entries() {
			r.readJob(j.Key.Text, j.Value, shell)
			if len(r.steps) > maxSteps {
				return f, fmt.Errorf("cannot read the file: its jobs come to more than %d settings", maxSteps)
			}
		}

		r.readSteps("", doc.Find("runs", "steps"), shell)
		f.Steps = append(f.Steps, r.steps...)
	}

	return f, nil
}

type reader struct{ steps []lint.Step }

func (r *reader) readJob(name string, n *yamltree.Node, shell string) {
	if own := n.Find("defaults", "run", "shell").ScalarText(); own != "" {
		shell = own
	}

	if on := n.Find("runs-on"); shell == "" && on != nil && isWindows(on) {
		shell = "pwsh"
	}

	r.readEnv(name, "env", n.Find("env"))
	r.readContainer(name, n.Find("container"))

	for _, s := range n.Find("services").Entries() {
		r.readContainer(name+".services."+s.Key.Text, s.Value)
	}

	r.readSteps(name, n.Find("steps"), shell)
}

func isWindows(on *yamltree.Node) bool {
	found := strings.HasPrefix(strings.ToLower(on.Text), "windows")
	for _, item := range on.Items {
		found = found || strings.HasPrefix(strings.ToLower(item.Text), "windows")
	}
	return found
}

func (r *reader) readSteps(job string, steps *yamltree.Node, shell string) {
	if steps == nil {
		return
	}
	for i, s := range steps.Items {
		in := strings.TrimPrefix(fmt.Sprintf("%s.steps[%d]", job, i), ".")
		r.readEnv(in, "env", s.Find("env"))
		own := shell
		if given := s.Find("shell").ScalarText(); given != "" {
			own = given
		}

		run := s.Find("run")
		if run == nil || run.Kind != yamltree.Scalar || run.Null || !isPOSIX(own) || own == "" && strings.Contains(s.Find("if").ScalarText(), "== 'Windows'") {
			continue
		}

		text, at, indent := run.ScriptText()
		r.steps = append(r.steps, lint.Step{At: at, Do: lint.Script, In: in, Indent: indent, Maybe: s.Find("if") != nil,
			Value: lint.Value{Text: maskExpressions(text), Known: true, At: run.At, Raw: text}})
	}
}

// isPOSIX reports whether a step's shell is one that reads POSIX or bash scripts. The default is bash
// (https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstepsshell).
func isPOSIX(shell string) bool {
	name, _, _ := strings.Cut(strings.TrimSpace(shell), " ")
	switch name[strings.LastIndexByte(name, '/')+1:] {
	case "", "bash", "sh", "dash", "zsh":
		return true
	}
	return false
}

// maskExpressions writes ${{ expressions }}, which GitHub replaces before the shell sees them, as variables of the same length, so
// that a shell's grammar holds and every place stays right. Different expressions get different names.
func maskExpressions(text string) string {
	names := map[string]string{}
	at := 0
	for {
		begin := strings.Index(text[at:], "${{")
		if begin < 0 {
			return text
		}

		begin += at
		length := strings.Index(text[begin:], "}}")
		if length < 0 {
			return text
		}

		at = begin + length + len("}}")
		source := text[begin+2 : at-1]
		inner := []byte(source)
		for i, c := range inner {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				inner[i] = '_'
			}
		}

		for n := 0; n < 1000 && names[string(inner)] != "" && names[string(inner)] != source; n++ {
			copy(inner[1:], fmt.Sprint(n))
		}

		names[string(inner)] = source
		text = text[:begin] + "${" + string(inner) + "}" + text[at:]
	}
}

func (r *reader) readEnv(in, how string, n *yamltree.Node) {
	for _, p := range n.Entries() {
		if p.Value.Kind != yamltree.Scalar {
			continue
		}

		s := lint.Step{At: yamltree.JoinPlaces(p.Key.At, p.Value.At), Do: lint.Set, Name: p.Key.Text, In: in, How: how, Exported: true, Value: p.Value.Value()}
		s.Value.Known = !strings.Contains(s.Value.Text, "${{")
		if p.Value.Null {
			// GitHub reads null as the empty string.
			s.Value.Text = ""
		}

		if p.Bare {
			// The rest of a value that was split at its comma.
			s.How = how + ", cut"
		}

		r.steps = append(r.steps, s)
	}
}

// readContainer reads an image with its variables and options, which are those of docker create.
func (r *reader) readContainer(in string, n *yamltree.Node) {
	if n == nil {
		return
	}

	r.readEnv(in, "container.env", n.Find("env"))
	image := n.Find("image")
	if n.Kind == yamltree.Scalar && !n.Null {
		image = n
	}

	if image != nil {
		v := image.Value()
		v.Known = !strings.Contains(v.Text, "${{")
		r.steps = append(r.steps, lint.Step{At: image.At, Do: lint.Setting, Name: "container.image", In: in, Value: v})
	}

	options := n.Find("options")
	if options == nil || options.Kind != yamltree.Scalar || image == nil {
		return
	}

	text, at, indent := options.ScriptText()
	words := []lint.Word{{Text: "docker", Known: true, At: options.At}, {Text: "create", Known: true, At: options.At}}
	words = append(words, splitOptions(text, at, indent)...)
	words = append(words, image.Value())
	r.steps = append(r.steps, lint.Step{At: options.At, Do: lint.Command, Name: "container.options", Words: words, In: in})
}

// splitOptions cuts options into words as GitHub's runner hands them to docker: quotes protect blanks.
func splitOptions(text string, at lint.Place, indent int) []lint.Word {
	var words []lint.Word
	for i := 0; i < len(text); {
		if strings.IndexByte(" \t\r\n", text[i]) >= 0 {
			i++
			continue
		}

		begin, quote := i, byte(0)
		var out strings.Builder

		for ; i < len(text) && (quote != 0 || strings.IndexByte(" \t\r\n", text[i]) < 0); i++ {
			switch c := text[i]; {
			case c == quote:
				quote = 0
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case c == '\\' && quote != '\'' && i+1 < len(text):
				i++
				out.WriteByte(text[i])
			default:
				out.WriteByte(c)
			}
		}

		w := lint.Word{Text: out.String(), Raw: text[begin:i], At: at}
		w.Known = !strings.Contains(w.Raw, "${{")
		if indent >= 0 && at.Line == at.EndLine {
			w.At.Column, w.At.EndColumn = at.Column+begin, at.Column+i
		}

		words = append(words, w)
	}
	return words
}
