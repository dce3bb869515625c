// Package linter does the work of gpuard lint: it finds files, has them parsed by the readers of text, applies the
// rules of core/lint, and fixes what can be fixed. It shows nothing itself.
//
//	report, err := linter.Run(ctx, linter.Options{Paths: []string{"."}})
package linter

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/check"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/visible"
)

// Options say which files to check, and how.
type Options struct {
	Paths   []string    // files and folders; "-" is Input
	Input   io.Reader   // what "-" stands for
	As      lint.Kind   // the format of Input; "" is guessed from its text
	Python  string      // the interpreter that reads Python; "" is the one of the environment
	Fix     bool        // write what can be mended
	Preview bool        // rules that are new, too
	Docs    bool        // the shell code in Markdown, too
	Env     visible.Env // where Python is looked for

	Progress func(files, findings int) // called after each batch of files; nil is not called
}

// Report is what was found.
type Report struct {
	Files    int        `json:"files"`    // how many were read
	Findings []Mistake  `json:"findings"` // in the order of the files and of the places in them; never nil
	Silenced int        `json:"silenced"` // findings that a comment in the file silences
	Partial  []Passage  `json:"partial"`  // files that were read but for some lines; never nil
	Skipped  []Omission `json:"skipped"`  // files that hold no text of their format, and why; never nil
	Problems []Omission `json:"problems"` // what could not be looked at, or not be mended, and why; never nil
}

// Passage is what could not be read of a file: a placeholder, or the grammar of another shell.
type Passage struct {
	Path  string `json:"path"`  // of the file
	Lines int    `json:"lines"` // how many were passed over
}

// Omission is something that was not done with a file.
type Omission struct {
	Path string `json:"path"` // of the file
	Why  string `json:"why"`  // the reason
}

// Mistake is a finding and its place.
type Mistake struct {
	Path      string    `json:"path"`       // as it was given, or below a folder that was given
	Kind      lint.Kind `json:"kind"`       // the format of the file
	Cell      int       `json:"cell"`       // of a notebook, from 1, lines count within it; 0 elsewhere
	Line      int       `json:"line"`       // from 1
	Column    int       `json:"column"`     // from 1, in bytes
	EndLine   int       `json:"end_line"`   // of the last byte
	EndColumn int       `json:"end_column"` // after the last byte
	check.Finding
	Now     string `json:"now"`     // the line or lines as they are
	Instead string `json:"instead"` // as they should be written; "" when there is no single way
	Fixable bool   `json:"fixable"` // --fix can write that
	Fixed   bool   `json:"fixed"`   // it did

	of    *project `json:"-"` // the file's; nil for standard input
	dir   string   `json:"-"` // the file's folder
	since string   `json:"-"` // the release of PyTorch from which on it holds
}

// Bad reports whether anything was found that is worth an exit code of 1.
func (r Report) Bad() bool {
	return slices.ContainsFunc(r.Findings, func(f Mistake) bool { return f.Severity.Bad() && !f.Fixed })
}

// Run checks everything that o names.
func Run(ctx context.Context, o Options) (Report, error) {
	r := Report{Findings: []Mistake{}, Partial: []Passage{}, Skipped: []Omission{}, Problems: []Omission{}}
	if o.Fix && slices.Contains(o.Paths, input) {
		return r, &exit.Usage{Text: "cannot write into standard input: --fix takes files"}
	}
	err := o.collect(ctx, &r, func(batch []source) { o.lookAt(ctx, batch, &r) })
	if err != nil {
		return r, err
	}
	r.settle()
	r.missed(o.Paths)
	return r, ctx.Err()
}

// lookAt reads the files of a batch, mends what is to be mended, and reports what they hold. Nothing of their text is
// kept but the lines of the findings.
func (o Options) lookAt(ctx context.Context, batch []source, r *Report) {
	parts := make([]Report, len(batch))
	mendable := make([]*reading, len(batch))
	o.parseEach(ctx, batch, func(i int, one reading) {
		parts[i].add(&one)
		if o.Fix && slices.ContainsFunc(parts[i].Findings, func(m Mistake) bool { return m.Fixable }) {
			mendable[i] = &one
		}
	})
	o.fix(ctx, mendable)
	for i, one := range mendable {
		if one != nil {
			parts[i] = Report{}
			parts[i].add(one)
		}
	}
	for _, p := range parts {
		r.Files += p.Files
		r.Silenced += p.Silenced
		r.Findings = append(r.Findings, p.Findings...)
		r.Partial = append(r.Partial, p.Partial...)
		r.Skipped = append(r.Skipped, p.Skipped...)
		r.Problems = append(r.Problems, p.Problems...)
	}
	if o.Progress != nil {
		o.Progress(r.Files, len(r.Findings))
	}
}

// missed makes a problem of each file that was named and not read. In a folder there may be such, of another Python or
// none of one's own; of a file that is named, whoever asks for it goes by the exit code.
func (r *Report) missed(paths []string) {
	r.Skipped = slices.DeleteFunc(r.Skipped, func(one Omission) bool {
		if strings.HasPrefix(one.Why, noFormat) || !slices.Contains(paths, one.Path) {
			return false
		}
		r.Problems = append(r.Problems, Omission{one.Path, "cannot read it: " + strings.TrimPrefix(one.Why, "not read: ")})
		return true
	})
}

// add reports what one file holds.
func (r *Report) add(one *reading) {
	if one.skipped != "" {
		r.Skipped = append(r.Skipped, Omission{one.path, one.skipped})
	}
	if one.problem != "" {
		r.Problems = append(r.Problems, Omission{one.path, one.problem})
	}
	if one.skipped != "" || one.unread {
		return
	}
	r.Files++
	if one.file.Unread > 0 {
		r.Partial = append(r.Partial, Passage{one.path, one.file.Unread})
	}
	found, silenced := one.look()
	r.Silenced += silenced
	mistakes := slices.Concat(one.fixed, one.mistakes(found))
	slices.SortStableFunc(mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r.Findings = append(r.Findings, mistakes...)
}

// look applies the rules to one file.
func (one *reading) look() (found []lint.Finding, silenced int) {
	return lint.Silence(one.file, one.cells(), lint.Look(one.file, one.preview))
}

// mistakes describes findings with the lines that they are about. A file may have as many of them as lines: for each,
// only its own lines are looked at.
func (one *reading) mistakes(found []lint.Finding) (all []Mistake) {
	if len(found) == 0 {
		return nil
	}
	lines := map[int][]string{}
	for number, text := range one.cells() {
		lines[number] = lint.Lines(text)
	}
	mendable := one.mendable()
	for _, f := range found {
		all = append(all, one.mistake(f, lines[f.At.Cell], mendable))
	}
	return all
}

// mistake describes a finding in a cell with these lines.
func (one *reading) mistake(f lint.Finding, lines []string, mendable bool) Mistake {
	m := Mistake{
		Path: one.path, Kind: one.kind, Cell: f.At.Cell, Line: f.At.Line, Column: max(f.At.Column, 1), EndLine: f.At.EndLine, EndColumn: max(f.At.EndColumn, 1),
		Finding: f.Finding, Instead: f.Line,
		of: one.of, dir: one.dir, since: f.Since,
	}
	first, last := f.At.Line, max(f.At.Line, f.At.EndLine)
	for i, edits := range [][]lint.Edit{f.Write, f.Edits} { // what --fix does is shown, where it does something
		from, to := first, last
		for _, e := range edits {
			from, to = min(from, e.At.Line), max(to, e.At.EndLine)
		}
		now := between(lines, from, to)
		instead, done := mended(now, edits, from)
		if done && (i > 0 || fits(lines, edits)) {
			first, last = from, to
			m.Instead = strings.TrimRight(instead, "\r\n")
		}
		m.Fixable = done && instead != now && mendable && !one.tried // of the last: that of f.Edits
	}
	m.Now = strings.TrimRight(between(lines, first, last), "\r\n")
	m.detach()
	return m
}

// detach copies the strings of a finding: a piece of a file's text would keep all of that.
func (m *Mistake) detach() {
	for _, s := range []*string{&m.Seen, &m.Why, &m.Do, &m.Now, &m.Instead} {
		*s = strings.Clone(*s)
	}
}

// mended applies the edits of one finding to the lines from the given one on, if the text there is what they expect.
func mended(lines string, edits []lint.Edit, from int) (string, bool) {
	edits = slices.Clone(edits)
	there := lint.At(lines)
	for i := range edits {
		edits[i].At.Line -= max(from, 1) - 1
		edits[i].At.EndLine -= max(from, 1) - 1
		if was, ok := there(edits[i].At); edits[i].Was != "" && (!ok || was != edits[i].Was) {
			return lines, false
		}
	}
	text, done := lint.Mend(lines, []lint.Finding{{Edits: edits}})
	return text, done[0]
}

// fits reports whether no edit writes quotes within the quotes of a line: run: "docker run --gpus device=0,1 image".
// Such a line is written in another way.
func fits(lines []string, edits []lint.Edit) bool {
	for _, e := range edits {
		if !strings.ContainsAny(e.Text, `"'`) || e.At.Line > len(lines) || e.At.Column > len(lines[e.At.Line-1]) {
			continue
		}
		before := lines[e.At.Line-1][:e.At.Column-1]
		if strings.Count(before, `"`)%2 != 0 || strings.Count(before, "'")%2 != 0 {
			return false
		}
	}
	return true
}

// between joins some of the lines, counted from 1.
func between(lines []string, first, last int) string {
	first, last = max(first, 1), min(last, len(lines))
	if first > last {
		return ""
	}
	return strings.Join(lines[first-1:last], "")
}
