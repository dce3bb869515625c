package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/run"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prompt"
	"gpuard/internal/core/prose"
)

// failure is an error with the exit code of its command.
type failure struct {
	err  error
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// withCode gives the error of a command that starts others the code that gpuard run would end with, unless it has one.
func withCode(err error) error {
	var own *failure
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &failure{err, exit.Run(err)}
}

// silent is an error whose text was shown already.
type silent struct{ err error }

func (s *silent) Error() string { return s.err.Error() }
func (s *silent) Unwrap() error { return s.err }

// failed is the JSON answer of a command that failed.
type failed struct {
	Schema string `json:"schema"` // of the command, such as "gpuard.run/1"
	Error  string `json:"error"`  // what failed and why: "cannot …"
	Remedy string `json:"remedy"` // what to type or change; "" if the error says it
	Exit   int    `json:"exit"`   // the exit code
}

// refused is the JSON answer if no device can serve the request now, or ever.
type refused struct {
	failed
	Never   bool         `json:"never"`   // this machine can never satisfy the request
	Reasons []job.Reason `json:"reasons"` // one per device
}

// showError writes an error, as JSON with --json, else as text on standard error.
func (p *Program) showError(cmd *cobra.Command, f *failure) {
	var shown *silent
	var refusal *job.Refusal
	isRefusal := errors.As(f.err, &refusal)
	switch {
	case errors.As(f.err, &shown):
	case p.wantsJSON(cmd):
		answer := failed{schema(cmd), f.err.Error(), exit.Remedy(f.err), f.code}
		if isRefusal {
			_ = p.failJSON(cmd, refused{answer, refusal.Never, append([]job.Reason{}, refusal.Reasons...)})
			return
		}
		_ = p.failJSON(cmd, answer)
	case isRefusal:
		p.refuse(p.Err, refusal)
		var text strings.Builder
		Refusal(&text, refusal, p.term(&text))
		p.alert(cmd, f.err, strings.ReplaceAll(text.String(), "gpuard: ", ""))
	default:
		text, r := safe(f.err.Error()), safe(exit.Remedy(f.err))
		fmt.Fprintln(p.Err, "gpuard: "+text)
		if r != "" {
			fmt.Fprintln(p.Err, "gpuard: "+r)
		}
		p.alert(cmd, f.err, strings.TrimSuffix(text+"\n"+r, "\n"))
	}
}

// refuse writes a refusal, and the defaults that may have caused it.
func (p *Program) refuse(w io.Writer, r *job.Refusal) {
	Refusal(w, r, p.term(w))
	for _, d := range p.filling.used {
		fmt.Fprintln(w, "gpuard: "+d.String())
	}
}

// safe removes control characters except tabs and newlines: names and paths in the text may come from other users.
func safe(text string) string {
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

// alert is the flag of commands that an icon may start.
const alert = "alert"

// alert shows the error in a window if --alert is given, unless the user cancelled.
func (p *Program) alert(cmd *cobra.Command, err error, text string) {
	if flag := cmd.Flags().Lookup(alert); flag != nil && flag.Value.String() == "true" && !errors.Is(err, prompt.ErrCancelled) {
		run.Alert(cmd.Context(), p.Host, text)
	}
}

// failJSON writes to the stream of the command's JSON answer.
func (p *Program) failJSON(cmd *cobra.Command, answer any) error {
	dry := cmd.Flags().Lookup("dry-run")
	if kindOf(cmd) == kindBecome && (dry == nil || dry.Value.String() != "true") || cmd.Name() == "verify" && cmd.ArgsLenAtDash() == 0 {
		return lineJSON(p.Err, answer)
	}
	return writeJSON(p.Out, answer)
}

// lineJSON writes the answer on one line, because standard error also has the output of the command.
func lineJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}

// schema is the schema of a command's JSON answer. Plain gpuard is gpuard status.
func schema(cmd *cobra.Command) string {
	for ; cmd.HasParent() && cmd.Parent().HasParent(); cmd = cmd.Parent() { // a command of a group has the schema of the group
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
		case kindOf(cmd) >= kindStart:
			return false // the command begins here
		}
	}
	return false
}

// checkedWriter keeps the error of a write, so that a full disk does not end as success.
type checkedWriter struct {
	io.Writer
	err error
}

func (w *checkedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}
