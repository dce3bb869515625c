package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/launchers"
)

// ShellText returns the script that a command passes to a shell, as in sh -c "python train.py" or ssh host "python
// train.py", as a Script step. It skips programs that only start another one. False if there is none, or if it is
// computed.
func ShellText(command Step) (Step, bool) {
	words, apart := command.Words, false
	for len(words) > 0 {
		name := path.Base(words[0].Text)
		if s, found := scriptArgument(command, name, words[1:]); found {
			s.Apart = s.Apart || apart
			return s, true
		}
		apart = apart || isOneOf(name, "docker", "podman", "nerdctl", "kubectl", "tmux", "sudo", "doas", "systemd-run")
		words = innerCommandWords(name, words)
	}
	return Step{}, false
}

// innerCommandWords is the rest of a command behind a program that starts it; nil for other programs.
func innerCommandWords(name string, words []Word) []Word {
	switch {
	case strings.Contains(words[0].Text, "="):
		return words[1:]
	case name == "env":
		return skipOptions(words[1:], []string{"-u", "-C"})
	case isOneOf(name, "docker", "podman", "nerdctl", "kubectl", "conda", "mamba") || launchers.IsSearched(name) || isOneOf(name, "sudo", "parallel"):
		i := slices.IndexFunc(words[1:], func(w Word) bool { return w.Known && launchers.IsShell(w.Text) })
		filled := slices.ContainsFunc(words, func(w Word) bool { return strings.Contains(w.Text, "{") })
		if i < 0 || filled && isOneOf(name, "xargs", "parallel") {
			// They write their input in the place of {}.
			return nil
		}

		return words[1+i:]
	}
	return words[launchers.SkipWrapper(wordTexts(words)):]
}

// skipOptions drops options, with the next word for those that take it.
func skipOptions(words []Word, takes []string) []Word {
	return words[launchers.SkipOptions(wordTexts(words), 0, takes):]
}

// scriptArgument is the script among the words of a program that has a shell read it. It is apart where that shell has another
// environment: on another machine, after a login, or under a server that runs already.
func scriptArgument(command Step, name string, args []Word) (Step, bool) {
	login := slices.ContainsFunc(args, func(w Word) bool { return isOneOf(w.Text, "-", "-l", "--login") })
	switch {
	case launchers.IsShell(name):
		return scriptStep(command, wordAfterDashC(args, false), false)
	case name == "su", name == "runuser":
		return scriptStep(command, wordAfterDashC(args, true), login)
	case name == "sbatch":
		text, _ := findOption(args, "wrap")
		return scriptStep(command, text, false)
	case name == "eval":
		// What it sets stays, and is not followed.
		return JoinWords(command, args)
	case name == "ssh":
		rest := skipOptions(args, strings.Fields("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"))
		if len(rest) > 1 {
			return JoinWords(command, rest[1:])
		}
	case name == "parallel":
		for _, w := range args {
			if strings.ContainsAny(w.Text, " \t") && !strings.ContainsAny(w.Text, "{:") {
				return scriptStep(command, w, false)
			}
		}
	case name == "tmux", name == "screen":
		starts := slices.ContainsFunc(args, func(w Word) bool {
			return isOneOf(w.Text, "new-session", "new", "new-window", "neww", "split-window", "splitw", "send-keys", "send", "respawn-pane", "stuff")
		})
		for _, w := range slices.Backward(args) {
			if starts && strings.ContainsAny(w.Text, " \t") {
				return scriptStep(command, w, true)
			}
		}
	}
	return Step{}, false
}

// wordAfterDashC is the word after -c, or after a bundle of options that ends in c; names: words without a dash may come before
// it, which are a script's file for a shell.
func wordAfterDashC(args []Word, names bool) Word {
	for i, w := range args {
		switch {
		case w.Text == "--command" && names, strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && strings.HasSuffix(w.Text, "c"):
			if i+1 < len(args) {
				return args[i+1]
			}
			return Word{}
		case !names && !strings.HasPrefix(w.Text, "-") && (i == 0 || !isOneOf(args[i-1].Text, "-o", "-O", "-eo", "-euo")):
			return Word{}
		}
	}
	return Word{}
}

// JoinWords is the script that several words of one line are, as ssh and echo put them together; apart.
func JoinWords(command Step, words []Word) (Step, bool) {
	if len(words) == 0 {
		return Step{}, false
	}
	whole := words[0]
	for _, w := range words[1:] {
		gap := w.At.Column - whole.At.EndColumn
		if w.At.Line != whole.At.EndLine || w.At.EndLine != w.At.Line || gap < 1 || whole.Raw != whole.Text || w.Raw != w.Text && w.Known {
			return Step{}, false
		}

		whole.Raw += strings.Repeat(" ", gap) + w.Raw
		whole.Text, whole.Known = whole.Raw, true
		whole.At.EndColumn = w.At.EndColumn
	}

	return scriptStep(command, whole, true)
}

// scriptStep makes a step of the text. The shell around it fills in what stands in double quotes; what it does not know
// stays a variable for the inner shell, too.
func scriptStep(command Step, text Word, apart bool) (Step, bool) {
	s := Step{At: text.At, Do: Script, Value: text, In: command.In, Process: command.Process, Maybe: command.Maybe, Beside: command.Beside, Asked: command.Asked, Indent: -1, Apart: apart}
	if n := len(text.Raw); !text.Known && n > 1 && text.Raw[0] == '"' && text.Raw[n-1] == '"' && text.Text == text.Raw {
		s.Value.Text = text.Raw[1 : n-1]
		if strings.Contains(s.Value.Text, `\`) {
			s.Value.Text = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\$`, `$`, "\\`", "`").Replace(s.Value.Text)
			return s, true
		}
	}
	if i := strings.Index(text.Raw, s.Value.Text); i >= 0 && !strings.Contains(s.Value.Text, "\n") && text.At.Line == text.At.EndLine {
		s.Indent = 0
		s.At.Column += i
		s.At.EndColumn = s.At.Column + len(s.Value.Text)
	}

	return s, s.Value.Text != "" && (text.Known || s.Indent == 0 || s.Value.Text != text.Text)
}
