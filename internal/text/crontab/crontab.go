// Package crontab reads tables of cron: which commands they start, and with which variables. It starts nothing.
package crontab

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"gpuard/internal/core/lint"
)

// ReadSteps returns what a table does (crontab(5)): a line NAME = value is a Set step for the commands below it, and each
// command a Script of a section of its own. In a table of the system a user stands before the command.
func ReadSteps(file string, src []byte) (lint.File, error) {
	f := lint.File{Path: file, Kind: lint.Crontab}
	if bytes.IndexByte(src, 0) >= 0 {
		return f, errors.New("cannot read the crontab: it is no text")
	}

	fields := 5
	if path.Base(path.Dir(file)) == "cron.d" || strings.HasSuffix(file, "/etc/crontab") {
		fields++
	}

	variable := regexp.MustCompile(`^[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*(.*?)[ \t]*$`)
	for n, line := range strings.Split(string(src), "\n") {
		line = strings.TrimRight(line, "\r")
		place := func(from, to int) lint.Place {
			return lint.Place{Line: n + 1, Column: from + 1, EndLine: n + 1, EndColumn: to + 1}
		}

		start := strings.TrimLeft(line, " \t")
		if start == "" || start[0] == '#' {
			continue
		}

		if m := variable.FindStringSubmatchIndex(line); m != nil {
			raw := line[m[4]:m[5]]
			value := lint.Value{Text: unquoteValue(raw), Known: true, At: place(m[4], m[5]), Raw: raw}
			f.Steps = append(f.Steps, lint.Step{At: place(m[2], m[5]), Do: lint.Set, Name: line[m[2]:m[3]], Value: value, How: "crontab", Exported: true})
			continue
		}

		count := fields
		if start[0] == '@' {
			// @reboot stands for the five.
			count -= 4
		}

		from := indexAfterWords(line, count)
		if from == len(line) {
			f.Unread++
			continue
		}

		f.Steps = append(f.Steps, scriptStep(line, from, place, fmt.Sprint("line ", n+1)))
	}

	return f, nil
}

// scriptStep is what cron hands to a shell: a % ends it, what follows is its input, and \% is the character.
func scriptStep(line string, from int, place func(from, to int) lint.Place, in string) lint.Step {
	text, end := line[from:], len(line)
	for i := range len(text) {
		if text[i] == '%' && (i == 0 || text[i-1] != '\\') {
			text, end = text[:i], from+i
			break
		}
	}

	s := lint.Step{At: place(from, end), Do: lint.Script, In: in, Value: lint.Value{Text: text, Known: true, At: place(from, end), Raw: text}}
	if plain := strings.ReplaceAll(text, `\%`, "%"); plain != text {
		s.Value.Text, s.Indent = plain, -1
	}

	return s
}

// indexAfterWords is where the text begins after so many words.
func indexAfterWords(line string, words int) int {
	at := 0
	blank := func() {
		for at < len(line) && (line[at] == ' ' || line[at] == '\t') {
			at++
		}
	}

	for range words {
		blank()
		for at < len(line) && line[at] != ' ' && line[at] != '\t' {
			at++
		}
	}

	blank()

	return at
}

// unquoteValue takes quotes around a whole value away.
func unquoteValue(raw string) string {
	if n := len(raw); n > 1 && (raw[0] == '"' || raw[0] == '\'') && raw[n-1] == raw[0] {
		return raw[1 : n-1]
	}
	return raw
}
