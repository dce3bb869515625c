package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
)

// addScripts adds the scripts that a command hands to another shell, or writes into a file that a shell reads later.
func (r *reader) addScripts(command lint.Step, redirects []*syntax.Redirect) {
	add := func(script lint.Step, ok bool) {
		if ok {
			r.steps = append(r.steps, placeLines(script))
		}
	}

	add(lint.ShellText(command))
	target := ""
	for _, one := range redirects {
		if one.Op == syntax.RdrOut || one.Op == syntax.AppOut || one.Op == syntax.RdrClob {
			target = r.wordValue(one.Word).Text
		}
	}

	program := command.Words[0].Text
	if isStartFile(target) {
		add(echoScript(command))
	}

	if i := slices.IndexFunc(command.Words, func(w lint.Word) bool { return path.Base(w.Text) == "tee" }); i >= 0 && len(command.Words) > i+1 {
		target = command.Words[len(command.Words)-1].Text
	} else if program != "cat" {
		target = ""
	}

	for _, one := range redirects {
		if one.Hdoc == nil || one.Op != syntax.Hdoc && one.Op != syntax.DashHdoc {
			continue
		}
		script := r.hereDocumentScript(command, one)
		bang := shebangShell([]byte(script.Value.Text))
		switch {
		case target != "":
			script.Apart = true
			add(script, isScriptFile(target, bang))
		default:
			apart, reads := readsScript(command.Words, bang)
			script.Apart = apart
			add(script, reads)
		}
	}
}

// echoScript is the script that echo or printf write.
func echoScript(command lint.Step) (lint.Step, bool) {
	words := command.Words[1:]
	escapes := command.Words[0].Text == "printf"
	if !escapes && command.Words[0].Text != "echo" {
		return lint.Step{}, false
	}

	for len(words) > 0 && !escapes && strings.HasPrefix(words[0].Text, "-") {
		escapes, words = strings.Contains(words[0].Text, "e"), words[1:]
	}

	script, ok := lint.JoinWords(command, words)
	if escapes && strings.Contains(script.Value.Text, `\`) {
		script.Value.Text, script.Indent = strings.ReplaceAll(script.Value.Text, `\n`, "\n"), -1
	}

	return script, ok && (!escapes || !strings.Contains(script.Value.Text, "%"))
}

// hereDocumentScript is the text of a here-document as a script. Where the name of its end has no quotes, the shell around it fills
// in what has a $ and takes some backslashes away; then the places within it are not known.
func (r *reader) hereDocumentScript(command lint.Step, redirect *syntax.Redirect) lint.Step {
	at, raw := r.placeOf(redirect.Hdoc), r.rawText(redirect.Hdoc)
	if end := strings.LastIndexByte(raw, '\n') + 1; end < len(raw) {
		// The tree counts the name of the end to it.
		raw, at.EndColumn = raw[:end], 1
	}

	script := lint.Step{At: at, Do: lint.Script, In: command.In, Process: command.Process, Maybe: command.Maybe, Beside: command.Beside, Asked: command.Asked,
		Value: lint.Value{Text: raw, Known: true, At: at, Raw: raw}}

	if strings.ContainsAny(r.rawText(redirect.Word), "\"'\\") {
		return script
	}

	if plain := strings.NewReplacer(`\\`, `\`, `\$`, `$`, "\\`", "`").Replace(raw); plain != raw {
		script.Value.Text, script.Indent = plain, -1
	}

	return script
}

// placeLines gives a script of several lines its places: in a word of a shell, each further line begins at the left margin.
func placeLines(script lint.Step) lint.Step {
	text, raw := script.Value.Text, script.Value.Raw
	before, after, found := strings.Cut(raw, text)
	if script.Indent >= 0 || !found || strings.Contains(before, "\n") {
		return script
	}

	script.Indent = 0
	script.At = script.Value.At
	script.At.Column += len(before)
	script.At.EndColumn -= len(after)

	return script
}

// isStartFile reports whether a file is one that a shell reads when it starts.
func isStartFile(file string) bool {
	name := path.Base(strings.Trim(file, `"'`))
	return slices.Contains([]string{".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".kshrc", ".envrc", "bash.bashrc", "profile"}, name)
}

// isScriptFile reports whether a file that gets a here-document is a shell script; bang is the shell of its first line.
func isScriptFile(file, bang string) bool {
	ext := path.Ext(strings.Trim(file, `"'`))
	script := slices.Contains([]string{".sh", ".bash", ".zsh", ".ksh", ".sbatch", ".slurm", ".pbs", ".job", ".sub", ".lsf"}, ext)
	return script || isStartFile(file) || isPOSIX(bang)
}

func isPOSIX(name string) bool {
	return launchers.IsShell(name)
}

// readsScript reports whether a command reads a shell script from its standard input; apart: in another environment.
func readsScript(words []lint.Word, bang string) (apart, reads bool) {
	last := words[len(words)-1].Text
	for i, w := range words {
		switch name := path.Base(w.Text); {
		case slices.Contains([]string{"sbatch", "qsub", "bsub"}, name):
			return true, isPOSIX(bang)
		case name == "ssh":
			alone := !slices.ContainsFunc(words[i+1:], func(w lint.Word) bool { return strings.Contains(w.Text, " ") && !strings.Contains(w.Text, "=") })
			return true, alone && (isPOSIX(last) || last == "-s" || len(plainWords(words[i+1:])) == 1)
		case slices.Contains([]string{"docker", "podman", "kubectl", "nerdctl", "sudo", "su"}, name):
			apart = true
		case isPOSIX(name):
			return apart, len(plainWords(words[i+1:])) == 0 || slices.ContainsFunc(words[i+1:], func(w lint.Word) bool { return w.Text == "-s" })
		case i == 0 && !slices.Contains([]string{"env", "exec", "nohup", "time", "srun"}, name):
			return false, false
		}
	}
	return false, false
}

// plainWords are the words that are neither options nor numbers, which options take.
func plainWords(words []lint.Word) []lint.Word {
	return slices.DeleteFunc(slices.Clone(words), func(w lint.Word) bool {
		return strings.HasPrefix(w.Text, "-") || strings.Trim(w.Text, "0123456789") == ""
	})
}
