package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/run"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prompt"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/planview"
)

// failEval makes the eval of a failed env or reserve --shell fail. An empty output would succeed, and the shell would
// continue with every GPU. The words after false are a comment, or arguments that false ignores.
func (p *Program) failEval(cmd *cobra.Command) {
	if cmd == nil || !p.isEvaluated(cmd) || p.Term(p.Out).TTY {
		return
	}
	fmt.Fprintln(p.Out, "false # gpuard gave no GPU")
}

// isEvaluated reports whether a shell evaluates the output of a command. It reads the arguments, because at an error
// the parser may have stopped before the flag.
func (p *Program) isEvaluated(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "env":
		dotenv := slices.Contains(p.Args, "--format=dotenv")
		for i, word := range p.Args {
			dotenv = dotenv || word == "dotenv" && i > 0 && p.Args[i-1] == "--format"
		}
		return !dotenv && !cmd.Flags().Changed("login") && !p.wantsJSON(cmd)
	case "reserve":
		// Where the word was forgotten or misspelt, too.
		return !p.wantsJSON(cmd) && !slices.ContainsFunc(p.Args, func(word string) bool {
			return strings.HasPrefix(word, "--for") || strings.HasPrefix(word, "--pid")
		})
	}
	return false
}

// WriteJSON writes an answer, indented.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)

	return enc.Encode(v)
}

// errorAnswer is the JSON answer of a command that failed.
type errorAnswer struct {
	// The schema of the command, such as "gpuard.run/1".
	Schema string `json:"schema"`
	// What failed and why: "cannot …".
	Error string `json:"error"`
	// What to type or change; "" if the error says it.
	Remedy string `json:"remedy"`
	Exit   int    `json:"exit"` // the exit code
}

// refusalAnswer is the JSON answer if no device can serve the request now, or ever.
type refusalAnswer struct {
	errorAnswer
	// This machine can never satisfy the request.
	Never   bool         `json:"never"`
	Reasons []job.Reason `json:"reasons"` // one per device
}

// showError writes an error, as JSON with --json, else as text on standard error.
func (p *Program) showError(cmd *cobra.Command, f *failure.CodedError) {
	var shown *failure.ShownError
	var refusal *job.Refusal
	isRefusal := errors.As(f.Err, &refusal)
	switch {
	case errors.As(f.Err, &shown):
	case p.wantsJSON(cmd):
		answer := errorAnswer{SchemaOf(cmd), f.Err.Error(), remedyFor(cmd, f.Err), f.Code}
		if isRefusal {
			_ = p.failJSON(cmd, refusalAnswer{answer, refusal.Never, append([]job.Reason{}, refusal.Reasons...)})
			return
		}
		_ = p.failJSON(cmd, answer)
	case isRefusal:
		p.PrintRefusal(p.Err, refusal)
		var text strings.Builder
		planview.WriteRefusal(&text, refusal, p.Term(&text))
		p.showAlert(cmd, f.Err, strings.ReplaceAll(text.String(), "gpuard: ", ""))
	default:
		say := p.language.Translate
		text, r := SafeText(say(f.Err.Error())), SafeText(say(remedyFor(cmd, f.Err)))
		fmt.Fprintln(p.Err, "gpuard: "+text)
		if r != "" {
			fmt.Fprintln(p.Err, "gpuard: "+r)
		}

		p.showAlert(cmd, f.Err, strings.TrimSuffix(text+"\n"+r, "\n"))
	}
}

// remedyFor is what to do about an error of a command. One that has flags for it can do without a GPU.
func remedyFor(cmd *cobra.Command, err error) string {
	text := exit.Remedy(err)
	var none *gpu.Unavailable
	if cpu := cmd.Flags().Lookup("cpu"); !errors.As(err, &none) || none.Cause != gpu.NoDevice || cpu == nil || cpu.Hidden {
		return text
	}
	if cmd.Flags().Lookup("fallback") == nil {
		return "run without one: --cpu; " + text
	}

	return "run without one: --cpu; or --fallback cpu, which takes a GPU where there is one; " + text
}

// PrintRefusal writes a refusal, and the defaults that may have caused it.
func (p *Program) PrintRefusal(w io.Writer, r *job.Refusal) {
	planview.WriteRefusal(w, r, p.Term(w))
	for _, d := range p.Defaults.Used {
		fmt.Fprintln(w, "gpuard: "+d.String())
	}
}

// SafeText removes control characters except tabs and newlines: names and paths in the text may come from other users.
func SafeText(text string) string {
	var b strings.Builder
	for {
		end := strings.IndexAny(text, "\t\n")
		if end < 0 {
			return b.String() + prose.Clean(text)
		}
		b.WriteString(prose.Clean(text[:end]) + text[end:end+1])
		text = text[end+1:]
	}
}

// AlertFlag is the flag of commands that an icon may start.
const AlertFlag = "alert"

// showAlert shows the error in a window if --alert is given, unless the user cancelled.
func (p *Program) showAlert(cmd *cobra.Command, err error, text string) {
	if flag := cmd.Flags().Lookup(AlertFlag); flag != nil && flag.Value.String() == "true" && !errors.Is(err, prompt.ErrCancelled) {
		run.AlertOnDesktop(cmd.Context(), p.Host, text)
	}
}

// failJSON writes to the stream of the command's JSON answer.
func (p *Program) failJSON(cmd *cobra.Command, answer any) error {
	dry := cmd.Flags().Lookup("dry-run")
	if cmdtable.KindOf(cmd) == cmdtable.KindBecome && (dry == nil || dry.Value.String() != "true") || cmd.Name() == "verify" && cmd.ArgsLenAtDash() == 0 {
		return LineJSON(p.Err, answer)
	}
	return WriteJSON(p.Out, answer)
}

// LineJSON writes the answer on one line, because standard error also has the output of the command.
func LineJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}

// SchemaOf is the schema of a command's JSON answer. Plain gpuard is gpuard status.
func SchemaOf(cmd *cobra.Command) string {
	for ; cmd.HasParent() && cmd.Parent().HasParent(); cmd = cmd.Parent() {
		// A command of a group has the schema of the group.
	}
	if cmd.HasParent() {
		return "gpuard." + cmd.Name() + "/1"
	}
	return "gpuard.status/1"
}

// wantsJSON reads the flags. If the parser stopped at an error it reads the arguments themselves.
func (p *Program) wantsJSON(cmd *cobra.Command) bool {
	flags := cmd.Flags()
	if flags.Lookup("json") == nil {
		return false
	}
	if format := flags.Lookup("format"); flags.Lookup("json").Value.String() == "true" || format != nil && format.Value.String() == "json" {
		return true
	}

	words := p.Args
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		switch {
		case word == "--":
			return false
		case word == "--json" || word == "--json=true":
			return true
		case strings.HasPrefix(word, "--"):
			if f := flags.Lookup(name); f != nil && f.NoOptDefVal == "" && !given && len(words) > 0 && !strings.HasPrefix(words[0], "--") {
				value, words = words[0], words[1:]
			}
			if name == "format" && value == "json" {
				return true
			}
		case strings.HasPrefix(word, "-") || word == cmd.Name() || cmd.HasParent() && word == cmd.Parent().Name():
		case cmdtable.StartsProgram(cmdtable.KindOf(cmd)):
			// The command begins here.
			return false
		}
	}

	return false
}

// checkedWriter keeps the error of a write, so that a full disk does not end as success.
type checkedWriter struct {
	io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	if err != nil {
		c.err = err
	}
	return n, err
}
