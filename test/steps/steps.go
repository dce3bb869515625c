// Package steps shows what a reader of text found in a file, for tests: one line per step, with the very text of the
// file that its places point at.
package steps

import (
	"fmt"
	"strings"

	"gpuard/internal/core/lint"
)

// RenderSteps writes the steps of a file, one line each.
func RenderSteps(src string, f lint.File) []string {
	var all []string
	for _, s := range f.Steps {
		all = append(all, renderStep(src, s))
	}
	return all
}

func renderStep(src string, s lint.Step) string {
	out := fmt.Sprintf("%d:%d %s", s.At.Line, s.At.Column, s.Do)
	for _, part := range []string{s.Name, s.How} {
		if part != "" {
			out += " " + part
		}
	}
	if s.In != "" {
		out += " in " + s.In
	}
	if s.Maybe {
		out += " maybe"
	}
	if s.Lost != "" {
		out += " lost in " + s.Lost
	}
	if s.Do == lint.Script {
		out += fmt.Sprintf(" indent %d", s.Indent)
	}
	if s.Do != lint.Command {
		out += " " + renderValue(src, s.Value)
	}
	for _, w := range s.With {
		out += " with " + w.Name + renderValue(src, w.Value)
	}
	for _, w := range s.Words {
		out += " " + renderValue(src, w)
	}
	return out
}

// renderValue is ="text" if it is known and ?"text" if it is computed, then @ and the text at its place.
func renderValue(src string, v lint.Value) string {
	known := "="
	if !v.Known {
		known = "?"
	}
	there := TextAt(src, v.At)
	if there == v.Text {
		return known + fmt.Sprintf("%q", v.Text)
	}
	return known + fmt.Sprintf("%q@%q", v.Text, there)
}

// TextAt is the text at a place: an explanation if there is no such place.
func TextAt(src string, p lint.Place) string {
	lines := strings.SplitAfter(src, "\n")
	if p == (lint.Place{}) {
		return ""
	}
	if p.Line < 1 || p.EndLine < p.Line || p.EndLine > len(lines) || p.Column < 1 || p.EndColumn < 1 || p.Line == p.EndLine && p.EndColumn < p.Column ||
		p.Column-1 > len(lines[p.Line-1]) || p.EndColumn-1 > len(lines[p.EndLine-1]) {
		return fmt.Sprintf("no such place: %+v", p)
	}
	if p.Line == p.EndLine {
		return lines[p.Line-1][p.Column-1 : p.EndColumn-1]
	}
	return lines[p.Line-1][p.Column-1:] + strings.Join(lines[p.Line:p.EndLine-1], "") + lines[p.EndLine-1][:p.EndColumn-1]
}

// FindAstray names the first place of a file's steps that is not in the text; "" when all are.
func FindAstray(src string, f lint.File) string {
	for _, s := range f.Steps {
		places := []lint.Place{s.At, s.Value.At}
		for _, w := range s.Words {
			places = append(places, w.At)
		}
		if s.At.Line == 0 {
			return fmt.Sprintf("no place: %+v", s)
		}
		for _, p := range places {
			if there := TextAt(src, p); strings.HasPrefix(there, "no such place") {
				return fmt.Sprintf("%s: %s of %+v", there, s.Do, s)
			}
		}
	}
	return ""
}
