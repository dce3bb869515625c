package lint

// Scripts returns the shell scripts of a file, each with a shell to itself: a shell file is one, and the scripts within
// another file (a RUN of a Dockerfile, a run of a workflow, a cell of a notebook) are one each.
func Scripts(f File) []File {
	if f.Kind == Shell {
		return []File{f}
	}
	var all []File
	at := map[int]int{}
	for _, s := range f.Steps {
		if s.Shell == 0 {
			continue
		}
		i, known := at[s.Shell]
		if !known {
			i = len(all)
			at[s.Shell] = i
			all = append(all, File{Path: f.Path, Kind: Shell})
		}
		all[i].Steps = append(all[i].Steps, s)
	}
	return all
}

// Expand puts the steps of each shell script within the file in the place of its Script step, with places in the file.
// read reads one script; a script that it cannot read stays a Script step.
func Expand(f File, read func(text string) (File, error)) File {
	out := f
	out.Steps = nil
	count := 0
	for _, s := range f.Steps {
		if s.Do != Script {
			out.Steps = append(out.Steps, s)
			continue
		}
		inner, err := read(s.Value.Text)
		if err != nil {
			out.Steps = append(out.Steps, s)
			continue
		}
		count++
		restoreExpressions(s.Value, inner.Steps)
		for _, step := range inner.Steps {
			out.Steps = append(out.Steps, s.place(step, count))
		}
	}
	return out
}

// place moves a step of the script s to its place in the file.
func (s Step) place(inner Step, number int) Step {
	inner.At = s.moveInto(inner.At)
	inner.Shell = number
	inner.Maybe = inner.Maybe || s.Maybe
	switch {
	case inner.In == "":
		inner.In = s.In
	case s.In != "":
		inner.In = s.In + "." + inner.In
	}
	inner.Value.At = s.moveInto(inner.Value.At)
	inner.Args = append([]Arg(nil), inner.Args...)
	for i := range inner.Args {
		inner.Args[i].Value.At = s.moveInto(inner.Args[i].Value.At)
	}
	inner.Words = append([]Word(nil), inner.Words...)
	for i := range inner.Words {
		inner.Words[i].At = s.moveInto(inner.Words[i].At)
	}
	with := inner.With
	inner.With = nil
	for _, w := range with {
		inner.With = append(inner.With, s.place(w, number))
	}
	return inner
}

// moveInto turns a place in the script into one in the file.
func (s Step) moveInto(p Place) Place {
	if p.Line == 0 {
		return p
	}
	if s.Indent < 0 {
		return Place{Cell: s.At.Cell, Line: s.At.Line, EndLine: s.At.EndLine}
	}
	line, column := s.shift(p.Line, p.Column)
	end, endColumn := s.shift(p.EndLine, p.EndColumn)
	return Place{Cell: s.At.Cell, Line: line, Column: column, EndLine: end, EndColumn: endColumn}
}

func (s Step) shift(line, column int) (int, int) {
	if line <= 1 {
		return s.At.Line, column + s.At.Column - 1
	}
	return s.At.Line + line - 1, column + s.Indent
}
