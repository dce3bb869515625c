// Package shell reads shell scripts: what a POSIX, bash, ksh or zsh script does with variables and programs. It runs
// nothing, and it follows no file that a script names.
package shell

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// ReadSteps returns what a script does. The shell follows from the first line, else from the name, else it is bash. The
// error says why the text is no script that can be read (another language, nesting without end): then the file has no
// steps, and that is no finding. A line that the parser refuses is passed over and counted in Unread: a placeholder, or
// one of those that bash takes and the parser does not.
//
// Beside variables and programs there are Setting steps: "shebang" for the first line, and "sbatch.NAME" for each
// option in a #SBATCH comment, by its long name ("sbatch.gres").
func ReadSteps(name string, src []byte) (lint.File, error) {
	f := lint.File{Path: name, Kind: lint.Shell}
	bang := shebangShell(src)
	lang, err := chooseLanguage(name, bang)
	if err != nil {
		return f, err
	}
	if opensTooMuch(src) {
		return f, fmt.Errorf("it has more than %d brackets, branches and chains", maxOpen)
	}

	r := &reader{src: src, lastInPlace: lang&(syntax.LangZsh|syntax.LangMirBSDKorn) != 0 || bang == "ksh"}
	if bang != "" {
		r.steps = append(r.steps, shebangStep(src))
	}

	r.steps = append(r.steps, readDirectives(src)...)
	if err := r.readStatements(lang); err != nil {
		return f, fmt.Errorf("this is no shell script that can be read: %w", err)
	}

	f.Steps, f.Unread, f.FirstUnread = r.steps, r.unread, r.firstUnread

	return f, nil
}

// endComments writes a blank for the backslash at the end of a comment: for a shell the comment ends with its line, for
// the parser it does not. The text stays as long as it was.
func endComments(src []byte) []byte {
	if !bytes.Contains(src, []byte("\\\n")) || bytes.IndexByte(src, '#') < 0 {
		return src
	}

	out := bytes.Clone(src)
	start := 0
	for line := range bytes.Lines(src) {
		start += len(line)
		text, goesOn := bytes.CutSuffix(line, []byte("\\\n"))
		if goesOn && hasComment(text) {
			out[start-len("\\\n")] = ' '
		}
	}

	return out
}

// hasComment reports whether a line has a comment, as far as the quotes of this line tell.
func hasComment(line []byte) bool {
	quote := byte(0)
	for i, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#' && (i == 0 || bytes.IndexByte([]byte(" \t;&|("), line[i-1]) >= 0):
			return true
		}
	}
	return false
}

// shebangShell returns the name of the shell that the first line asks for: "bash" of "#!/usr/bin/env bash" and of
// "#!/bin/bash -l"; "" when there is none.
func shebangShell(src []byte) string {
	line, ok := strings.CutPrefix(firstLineText(src), "#!")
	if !ok {
		return ""
	}
	return InterpreterName(line)
}

// InterpreterName is the name of the program that a script's first line asks for after "#!". Options and assignments of env
// are passed over.
func InterpreterName(line string) string {
	for _, word := range strings.Fields(line) {
		if name := path.Base(word); name != "env" && !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			return name
		}
	}
	return ""
}

func firstLineText(src []byte) string {
	line, _, _ := bytes.Cut(src[:min(len(src), 512)], []byte("\n"))
	return string(bytes.TrimSuffix(line, []byte("\r")))
}

func shebangStep(src []byte) lint.Step {
	line := firstLineText(src)
	at := lint.Place{Line: 1, Column: 1, EndLine: 1, EndColumn: 1 + len(line)}
	return lint.Step{At: at, Do: lint.Setting, Name: "shebang", Value: lint.Value{Text: strings.TrimSpace(line[2:]), Known: true, At: at, Raw: line}}
}

// chooseLanguage chooses the grammar. Shells with another grammar are an error.
func chooseLanguage(name, bang string) (syntax.LangVariant, error) {
	by := cmp.Or(bang, strings.TrimPrefix(path.Ext(name), "."))

	if bang == "" && strings.HasPrefix(by, "z") {
		// .zshrc, .zshenv, .zprofile.
		by = "zsh"
	}

	switch by {
	case "zsh":
		return syntax.LangZsh, nil
	case "mksh":
		return syntax.LangMirBSDKorn, nil
	case "bats":
		return syntax.LangBats, nil
	case "fish", "csh", "tcsh", "pwsh", "ps1", "nu", "xonsh", "rc", "elvish",
		"perl", "ruby", "node", "expect", "awk", "tclsh", "Rscript", "julia", "lua", "php", "make":
		return 0, fmt.Errorf("cannot read %s: scripts of %s are not read, only those of sh, bash, ksh and zsh", name, by)
	}

	if strings.HasPrefix(by, "python") {
		return 0, fmt.Errorf("cannot read %s: it is a script of %s", name, by)
	}

	return syntax.LangBash, nil
}

// maxOpen bounds what a script opens and ties together in all, because the parser reads by recursion and a stack that
// overflows ends the whole program. A megabyte of configure has about a fifth of it.
const maxOpen = 50_000

// opensTooMuch reports whether a script has more brackets, branches, chains and pipes than maxOpen. Whether they are closed
// again is not asked: that would need the parser.
func opensTooMuch(src []byte) bool {
	open := 0
	for _, c := range src {
		if c == '(' || c == '{' || c == '`' || c == '|' || c == '&' {
			open++
		}
	}
	for _, word := range []string{"if", "while", "until", "for", "case", "select"} {
		open += bytes.Count(src, []byte(word+" ")) + bytes.Count(src, []byte(word+"\t")) + bytes.Count(src, []byte(word+"\n"))
	}

	return open > maxOpen
}
