// Package linter does the work of gpuard lint: it finds files, has them parsed by the readers of text, applies the
// rules of core/lint, and fixes what can be fixed. It shows nothing itself.
//
//	report, err := linter.RunLint(ctx, linter.Options{Paths: []string{"."}})
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
	// Files and folders; "-" is Input.
	Paths []string
	// What "-" stands for.
	Input io.Reader
	// The format of Input; "" is guessed from its text.
	As lint.Kind
	// The interpreter that reads Python; "" is the one of the environment.
	Python string
	// Write what can be mended.
	Fix bool
	// Rules that are new, too.
	Preview bool
	// The shell code in Markdown, too.
	Docs bool
	// Where Python is looked for.
	Env visible.Env

	// Called after each batch of files; nil is not called.
	Progress func(files, findings int)
}

// Report is what was found.
type Report struct {
	Files int `json:"files"` // how many were read
	// What was found, in the order of the files and of the places in them; never nil.
	Findings []LocatedFinding `json:"findings"`
	// Findings that a comment in the file silences.
	Silenced int `json:"silenced"`
	// Files that were read but for some lines; never nil.
	Partial []UnreadPassage `json:"partial"`
	// Files that hold no text of their format, and why; never nil.
	Skipped []Omission `json:"skipped"`
	// What could not be looked at, or not be mended, and why; never nil.
	Problems []Omission `json:"problems"`
}

// UnreadPassage is what could not be read of a file: a placeholder, or the grammar of another shell.
type UnreadPassage struct {
	Path string `json:"path"` // of the file
	// How many were passed over.
	Lines int `json:"lines"`
	// The first of them; 0 is not known.
	First int `json:"first"`
}

// Omission is something that was not done with a file.
type Omission struct {
	Path string `json:"path"` // of the file
	Why  string `json:"why"`  // the reason
}

// LocatedFinding is a finding and its place.
type LocatedFinding struct {
	// The path as it was given, or below a folder that was given.
	Path string `json:"path"`
	// The format of the file.
	Kind lint.Kind `json:"kind"`
	// The cell of a notebook, from 1, lines count within it; 0 elsewhere.
	Cell    int `json:"cell"`
	Line    int `json:"line"`     // from 1
	Column  int `json:"column"`   // from 1, in bytes
	EndLine int `json:"end_line"` // of the last byte
	// The column after the last byte.
	EndColumn int `json:"end_column"`
	check.Finding
	// The line or lines as they are.
	Now string `json:"now"`
	// What should be written in its place; "" when there is no single way.
	Instead string `json:"instead"`
	// --fix can write that.
	Fixable bool `json:"fixable"`
	Fixed   bool `json:"fixed"` // it did

	// The file's; nil for standard input.
	of  *project `json:"-"`
	dir string   `json:"-"` // the file's folder
	// The release of PyTorch from which on it holds.
	since string `json:"-"`
}

// Bad reports whether anything was found that is worth an exit code of 1.
func (r Report) Bad() bool {
	return slices.ContainsFunc(r.Findings, func(f LocatedFinding) bool { return f.Severity.Bad() && !f.Fixed })
}

// RunLint checks everything that o names.
func RunLint(ctx context.Context, o Options) (Report, error) {
	r, err := o.lookThrough(ctx)
	if err != nil {
		return r, err
	}

	r.limitSeverities()

	return r, ctx.Err()
}

// lookThrough looks for what is certain in each file and its project, however often others of its kind were right.
func (o Options) lookThrough(ctx context.Context) (Report, error) {
	r := Report{Findings: []LocatedFinding{}, Partial: []UnreadPassage{}, Skipped: []Omission{}, Problems: []Omission{}}
	if o.Fix && slices.Contains(o.Paths, stdinPath) {
		return r, &exit.Usage{Text: "cannot write into standard input: --fix takes files"}
	}

	err := o.collectFiles(ctx, &r, func(batch []sourceFile) { o.lookAt(ctx, batch, &r) })
	if err != nil {
		return r, err
	}

	r.settle()
	r.reportMissed(o.Paths)

	return r, nil
}

// lookAt reads the files of a batch, mends what is to be mended, and reports what they hold. Nothing of their text is
// kept but the lines of the findings.
func (o Options) lookAt(ctx context.Context, batch []sourceFile, r *Report) {
	parts := make([]Report, len(batch))
	mendable := make([]*fileReading, len(batch))
	o.parseEach(ctx, batch, func(i int, one fileReading) {
		parts[i].addFile(&one)
		if o.Fix && slices.ContainsFunc(parts[i].Findings, func(m LocatedFinding) bool { return m.Fixable }) {
			mendable[i] = &one
		}
	})

	o.fixFiles(ctx, mendable)

	for i, one := range mendable {
		if one != nil {
			parts[i] = Report{}
			parts[i].addFile(one)
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

// reportMissed makes a problem of each file that was named and not read. In a folder there may be such, of another Python or
// none of one's own; of a file that is named, whoever asks for it goes by the exit code.
func (r *Report) reportMissed(paths []string) {
	r.Skipped = slices.DeleteFunc(r.Skipped, func(one Omission) bool {
		if strings.HasPrefix(one.Why, noFormat) || !slices.Contains(paths, one.Path) {
			return false
		}
		r.Problems = append(r.Problems, Omission{one.Path, "cannot read it: " + strings.TrimPrefix(one.Why, "not read: ")})
		return true
	})
}

// addFile reports what one file holds.
func (r *Report) addFile(one *fileReading) {
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
		r.Partial = append(r.Partial, UnreadPassage{one.path, one.file.Unread, one.file.FirstUnread})
	}

	found, silenced := one.applyRules()
	r.Silenced += silenced
	mistakes := slices.Concat(one.fixed, one.describeFindings(found))
	slices.SortStableFunc(mistakes, func(a, b LocatedFinding) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})

	r.Findings = append(r.Findings, mistakes...)
}

// applyRules applies the rules to one file.
func (one *fileReading) applyRules() (found []lint.Finding, silenced int) {
	return lint.CheckFile(one.file, one.cellTexts(), one.preview)
}

// describeFindings describes findings with the lines that they are about. A file may have as many of them as lines: for each,
// only its own lines are looked at.
func (one *fileReading) describeFindings(found []lint.Finding) (all []LocatedFinding) {
	if len(found) == 0 {
		return nil
	}

	lines := map[int][]string{}
	for number, text := range one.cellTexts() {
		lines[number] = lint.SplitLines(text)
	}

	mendable := one.isMendable()
	for _, f := range found {
		all = append(all, one.describeFinding(f, lines[f.At.Cell], mendable))
	}

	return all
}

// describeFinding describes a finding in a cell with these lines.
func (one *fileReading) describeFinding(f lint.Finding, lines []string, mendable bool) LocatedFinding {
	m := LocatedFinding{
		Path: one.path, Kind: one.kind, Cell: f.At.Cell, Line: f.At.Line, Column: max(f.At.Column, 1), EndLine: f.At.EndLine, EndColumn: max(f.At.EndColumn, 1),
		Finding: f.Finding, Instead: f.Line,
		of: one.of, dir: one.dir, since: f.Since,
	}

	first, last := f.At.Line, max(f.At.Line, f.At.EndLine)
	for i, edits := range [][]lint.Edit{f.Write, f.Edits} {
		// What --fix does is shown, where it does something.
		from, to := first, last
		for _, e := range edits {
			from, to = min(from, e.At.Line), max(to, e.At.EndLine)
		}

		now := joinLines(lines, from, to)
		instead, done := applyEdits(now, edits, from)
		if done && (i > 0 || fitsQuotes(lines, edits)) {
			first, last = from, to
			m.Instead = strings.TrimRight(instead, "\r\n")
		}

		// Of the last: that of f.Edits.
		m.Fixable = done && instead != now && mendable && !one.tried
	}

	m.Now = strings.TrimRight(joinLines(lines, first, last), "\r\n")
	m.detachStrings()

	return m
}

// detachStrings copies the strings of a finding: a piece of a file's text would keep all of that.
func (m *LocatedFinding) detachStrings() {
	for _, s := range []*string{&m.Seen, &m.Why, &m.Do, &m.Now, &m.Instead} {
		*s = strings.Clone(*s)
	}
}

// applyEdits applies the edits of one finding to the lines from the given one on, if the text there is what they expect.
func applyEdits(lines string, edits []lint.Edit, from int) (string, bool) {
	edits = slices.Clone(edits)
	there := lint.TextAt(lines)
	for i := range edits {
		edits[i].At.Line -= max(from, 1) - 1
		edits[i].At.EndLine -= max(from, 1) - 1
		if was, ok := there(edits[i].At); edits[i].Was != "" && (!ok || was != edits[i].Was) {
			return lines, false
		}
	}

	text, done := lint.ApplyEdits(lines, []lint.Finding{{Edits: edits}})

	return text, done[0]
}

// fitsQuotes reports whether no edit writes quotes within the quotes of a line: run: "docker run --gpus device=0,1 image".
// Such a line is written in another way.
func fitsQuotes(lines []string, edits []lint.Edit) bool {
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

// joinLines joins some of the lines, counted from 1.
func joinLines(lines []string, first, last int) string {
	first, last = max(first, 1), min(last, len(lines))
	if first > last {
		return ""
	}
	return strings.Join(lines[first-1:last], "")
}
