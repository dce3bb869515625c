package lint

import (
	"path"
	"strings"
)

// ShellText returns the script that a command passes to a shell, as in sh -c "python train.py", as a Script step. It
// skips env and its assignments. False if there is none, or if it is computed.
func ShellText(command Step) (Step, bool) {
	words := command.Words
	for len(words) > 1 && (path.Base(words[0].Text) == "env" || path.Base(words[0].Text) == "exec" || strings.Contains(words[0].Text, "=")) {
		words = words[1:]
	}
	if len(words) == 0 || !isShell(words[0].Text) {
		return Step{}, false
	}
	for i, w := range words[1:] {
		switch {
		case !strings.HasPrefix(w.Text, "-"):
			return Step{}, false // a script's file
		case !strings.HasPrefix(w.Text, "--") && strings.HasSuffix(w.Text, "c"):
			if i+2 >= len(words) {
				return Step{}, false
			}
			return scriptOf(command, words[i+2])
		}
	}
	return Step{}, false
}

// isShell reports whether a program reads POSIX or bash scripts.
func isShell(program string) bool {
	switch path.Base(program) {
	case "sh", "bash", "dash", "ash", "ksh", "zsh":
		return true
	}
	return false
}

func scriptOf(command Step, text Word) (Step, bool) {
	s := Step{At: text.At, Do: Script, Value: text, In: command.In, Maybe: command.Maybe, Indent: -1}
	if i := strings.Index(text.Raw, text.Text); i >= 0 && !strings.Contains(text.Text, "\n") && text.At.Line == text.At.EndLine {
		s.Indent = 0
		s.At.Column += i
		s.At.EndColumn = s.At.Column + len(text.Text)
	}
	return s, text.Text != "" && (text.Known || s.Indent == 0)
}
