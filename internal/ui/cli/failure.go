package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prompt"
)

// failure carries an error together with the exit code that its command gives it.
type failure struct {
	err  error
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// silent is an error that was shown already.
type silent struct{ err error }

func (s *silent) Error() string { return s.err.Error() }
func (s *silent) Unwrap() error { return s.err }

// failed is the JSON answer of a command that cannot do what it was asked for.
type failed struct {
	Schema string `json:"schema"` // of the command, such as "gpuard.run/1"
	Error  string `json:"error"`  // what failed and why: "cannot …"
	Remedy string `json:"remedy"` // what to type or change; "" where the error says it
	Exit   int    `json:"exit"`   // the exit code
}

// refused is the same for a request that no device can serve now, or ever.
type refused struct {
	failed
	Never   bool         `json:"never"`   // this machine can never satisfy the request
	Reasons []job.Reason `json:"reasons"` // one per device
}

// complain shows an error: as JSON where that was asked for, else as text on standard error.
func (p *Program) showError(cmd *cobra.Command, f *failure) {
	var shown *silent
	var refusal *job.Refusal
	isRefusal := errors.As(f.err, &refusal)
	switch {
	case errors.As(f.err, &shown):
	case p.wantsJSON(cmd):
		answer := failed{schema(cmd), f.err.Error(), app.Remedy(f.err), f.code}
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
		text, r := safe(f.err.Error()), safe(app.Remedy(f.err))
		fmt.Fprintln(p.Err, "gpuard: "+text)
		if r != "" {
			fmt.Fprintln(p.Err, "gpuard: "+r)
		}
		p.alert(cmd, f.err, strings.TrimSuffix(text+"\n"+r, "\n"))
	}
}

// refuse shows a refusal, and the defaults that may be behind it.
func (p *Program) refuse(w io.Writer, r *job.Refusal) {
	Refusal(w, r, p.term(w))
	for _, d := range p.filling.used {
		fmt.Fprintln(w, "gpuard: "+d.String())
	}
}

// safe is text without what moves the cursor of a terminal, but for tabs and the ends of lines: some of the names and files that
// it speaks of are somebody else's.
func safe(text string) string {
	var b strings.Builder
	for {
		end := strings.IndexAny(text, "\t\n")
		if end < 0 {
			return b.String() + gpu.Clean(text)
		}
		b.WriteString(gpu.Clean(text[:end]) + text[end:end+1])
		text = text[end+1:]
	}
}

// alert is the flag of what may be started by an icon.
const alert = "alert"

// alert shows why nothing starts in a window, where that was asked for. Who closed a window knows.
func (p *Program) alert(cmd *cobra.Command, err error, text string) {
	if flag := cmd.Flags().Lookup(alert); flag != nil && flag.Value.String() == "true" && !errors.Is(err, prompt.ErrCancelled) {
		p.App.Alert(cmd.Context(), text)
	}
}

// failJSON writes where the command's JSON answer would have gone.
func (p *Program) failJSON(cmd *cobra.Command, answer any) error {
	dry := cmd.Flags().Lookup("dry-run")
	if becomes(cmd) && (dry == nil || dry.Value.String() != "true") || cmd.Name() == "verify" && cmd.ArgsLenAtDash() == 0 {
		return lineJSON(p.Err, answer)
	}
	return writeJSON(p.Out, answer)
}

// lineJSON writes the answer on one line: standard error belongs to the command too.
func lineJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}

// schema names the form of a command's JSON answer; plain gpuard is gpuard status.
func schema(cmd *cobra.Command) string {
	for ; cmd.HasParent() && cmd.Parent().HasParent(); cmd = cmd.Parent() { // of a group the group's own
	}
	if cmd.HasParent() {
		return "gpuard." + cmd.Name() + "/1"
	}
	return "gpuard.status/1"
}

// wantsJSON looks at the flags and, where the parser stopped at a mistake, at the words behind it.
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
		case strings.HasPrefix(word, "-") || word == cmd.Name():
		case takesCommand(cmd):
			return false // here its command begins
		}
	}
	return false
}

// written remembers that an answer could not be written, so that a full disk does not look like success.
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
