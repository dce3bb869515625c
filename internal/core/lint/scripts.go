package lint

import (
	"fmt"
	"slices"
	"strings"
)

// Scripts returns the shell scripts of a file, each with a shell to itself: a shell file is one, and the scripts within
// a file (a RUN of a Dockerfile, a run of a workflow, a cell of a notebook, the text of bash -c) are one each.
func Scripts(f File) []File {
	var all []File
	at := map[int]int{}
	for _, s := range f.Steps {
		if s.Shell == 0 && f.Kind != Shell {
			continue
		}
		i, known := at[s.Shell]
		if !known {
			i = len(all)
			at[s.Shell] = i
			all = append(all, File{Path: f.Path, Kind: Shell, UndoPath: f.UndoPath, Undo: f.Undo})
		}
		all[i].Steps = append(all[i].Steps, s)
	}

	return all
}

// maxScriptDepth is how many scripts within each other are read: ssh host "bash -c 'python train.py'" has two.
const maxScriptDepth = 4

// outline is what stands for something else in a block of a page: <path>, [--option], or a line of dots. Such a block is
// not typed as it is.
var outline = lazyRegexp(`<[A-Za-z][^<>\n]*>|\[-{1,2}[A-Za-z]|(?m:^[ \t]*(?:\.\.\.|…)(?:[ \t]*$|[^\x00-\x7f]|[ \t]*[a-z]+ [a-z]))`)

// ExpandScripts puts the steps of each shell script within the file in the place of its Script step, with places in the file.
// read reads one script; a script that it cannot read stays a Script step.
func ExpandScripts(f File, read func(text string) (File, error)) File {
	return expandScripts(f, read, maxScriptDepth)
}

func expandScripts(f File, read func(text string) (File, error), depth int) File {
	out := f
	out.Steps = nil
	count := 0
	for _, s := range f.Steps {
		if s.Do != Script || depth == 0 {
			out.Steps = append(out.Steps, s)
			continue
		}

		inner, err := read(s.Value.Text)
		if err != nil {
			out.Steps = append(out.Steps, s)
			continue
		}

		inner = expandScripts(inner, read, depth-1)
		out.Unread += inner.Unread
		if strings.HasPrefix(s.Value.Raw, `"`) || strings.HasPrefix(s.Value.Raw, "'") {
			out.quoted = append(out.quoted, s.Value.At)
		}

		if f.Kind == Markdown && outline().MatchString(s.Value.Text) {
			out.outlines = append(out.outlines, s.Value.At)
		}

		for _, at := range inner.quoted {
			out.quoted = append(out.quoted, s.relocatePlace(at))
		}

		restoreExpressions(s.Value, inner.Steps)
		if !s.Value.Known && strings.HasPrefix(s.Value.Raw, `"`) {
			leaveOpen(inner.Steps)
		}

		for _, step := range inner.Steps {
			if f.Kind == Shell {
				// A process of its own.
				step.Process = fmt.Sprintf("%ss%d/%s", s.Process, count+1, step.Process)
			}
			out.Steps = append(out.Steps, s.relocateStep(step, count+1+step.Shell))
		}

		count += 1 + highestShell(inner.Steps)
	}

	return out
}

// highestShell is the highest number of a script.
func highestShell(steps []Step) int {
	most := 0
	for _, s := range steps {
		most = max(most, s.Shell)
	}
	return most
}

// relocateStep moves a step of the script s to its place in the file.
func (s Step) relocateStep(inner Step, number int) Step {
	inner.At = s.relocatePlace(inner.At)
	inner.Shell = number
	inner.Maybe, inner.Apart = inner.Maybe || s.Maybe, inner.Apart || s.Apart
	inner.Asked = slices.Concat(s.Asked, inner.Asked)

	switch {
	case inner.In == "":
		inner.In = s.In
	case s.In != "":
		inner.In = s.In + "." + inner.In
	}

	inner.Value.At = s.relocatePlace(inner.Value.At)
	inner.Args = append([]Arg(nil), inner.Args...)

	for i := range inner.Args {
		inner.Args[i].Value.At = s.relocatePlace(inner.Args[i].Value.At)
	}

	inner.Words = append([]Word(nil), inner.Words...)

	for i := range inner.Words {
		inner.Words[i].At = s.relocatePlace(inner.Words[i].At)
	}

	with := inner.With
	inner.With = nil

	for _, w := range with {
		inner.With = append(inner.With, s.relocateStep(w, number))
	}

	return inner
}

// relocatePlace turns a place in the script into one in the file.
func (s Step) relocatePlace(p Place) Place {
	if p.Line == 0 {
		return p
	}
	if s.Indent < 0 {
		return Place{Cell: s.At.Cell, Line: s.At.Line, EndLine: s.At.EndLine}
	}

	line, column := s.relocatePosition(p.Line, p.Column)
	end, endColumn := s.relocatePosition(p.EndLine, p.EndColumn)

	return Place{Cell: s.At.Cell, Line: line, Column: column, EndLine: end, EndColumn: endColumn}
}

func (s Step) relocatePosition(line, column int) (int, int) {
	if line <= 1 {
		return s.At.Line, column + s.At.Column - 1
	}
	return s.At.Line + line - 1, column + s.Indent
}
