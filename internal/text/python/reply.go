package python

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
)

// reply is the script's line about one file.
type reply struct {
	Steps    []replyStep `json:"steps"`
	Problems []Problem   `json:"problems"`
}

// replySpan is a place: cell, line from 1, column from 0, and the end, columns in bytes of UTF-8. All are 0 where it is
// missing.
type replySpan [5]int

type replyStep struct {
	Do     lint.StepKind `json:"do"`
	Name   string        `json:"name"`
	At     replySpan     `json:"at"`
	In     string        `json:"in"`
	Branch string        `json:"branch"`
	Caught bool          `json:"caught"`
	Idle   bool          `json:"idle"`
	How    string        `json:"how"`
	Value  *replyValue   `json:"value"`
	Args   []replyValue  `json:"args"`
	Words  []replyValue  `json:"words"`
	With   []replyStep   `json:"with"`
}

// replyValue is an expression. Text is nil where it is computed, Shape is its text with {} for what is computed, where that
// says something; Type is that of a value that is no text; Name and Ref are of an argument.
type replyValue struct {
	At    replySpan `json:"at"`
	Text  *string   `json:"text"`
	From  string    `json:"from"`
	Shape string    `json:"shape"`
	Type  string    `json:"type"`
	Name  string    `json:"name"`
	Ref   string    `json:"ref"`
}

// toSteps translates the script's answer into steps, and inserts those of a notebook's magic lines between the steps of
// their cell.
func (r reply) toSteps(f Source) []lint.Step {
	w := stepWriter{texts: map[int]*cellText{}}
	var all []lint.Step

	for _, c := range f.Cells {
		w.texts[c.Number] = newCellText(c.Text)
		all = append(all, c.Steps...)
	}

	magic := len(all) > 0

	for _, s := range r.Steps {
		all = append(all, w.toStep(s))
	}

	if magic {
		slices.SortStableFunc(all, func(a, b lint.Step) int {
			return cmp.Or(cmp.Compare(a.At.Cell, b.At.Cell), cmp.Compare(a.At.Line, b.At.Line))
		})
	}

	return all
}

type stepWriter struct{ texts map[int]*cellText }

func (w stepWriter) toStep(s replyStep) lint.Step {
	out := lint.Step{Do: s.Do, Name: s.Name, At: w.toPlace(s.At), In: s.In, Branch: s.Branch, Caught: s.Caught, Idle: s.Idle, How: s.How, Maybe: s.Branch != "" && !isMainBranch(s.Branch)}
	if s.Value != nil {
		out.Value, out.Type = w.toValue(*s.Value), s.Value.Type
	}

	for _, a := range s.Args {
		out.Args = append(out.Args, lint.Arg{Name: a.Name, Value: w.toValue(a), Ref: a.Ref})
	}

	for _, a := range s.Words {
		out.Words = append(out.Words, w.toValue(a))
	}

	for _, inner := range s.With {
		out.With = append(out.With, w.toStep(inner))
	}

	if s.Do == lint.Script {
		out.At, out.Indent = literalContent(out.Value)
	}

	return out
}

func (w stepWriter) toValue(v replyValue) lint.Value {
	raw := ""
	if t := w.texts[v.At[0]]; t != nil {
		raw = t.textAt(v.At)
	}

	out := lint.Value{At: w.toPlace(v.At), Raw: raw, Text: cmp.Or(v.Shape, raw), From: v.From}
	if v.Text != nil {
		out.Text, out.Known = *v.Text, true
	}

	return out
}

func (w stepWriter) toPlace(s replySpan) lint.Place {
	if s[1] == 0 {
		return lint.Place{}
	}
	p := lint.Place{Cell: s[0], Line: s[1], Column: s[2] + 1, EndLine: s[3], EndColumn: s[4] + 1}
	if t := w.texts[s[0]]; t != nil && t.marked {
		if p.Line == 1 {
			p.Column += len(byteOrderMark)
		}
		if p.EndLine == 1 {
			p.EndColumn += len(byteOrderMark)
		}
	}

	return p
}

// isMainBranch reports whether the only branch is that of the program itself, "if __name__ == '__main__'".
func isMainBranch(branch string) bool { return branch[0] == 'm' && strings.Count(branch, "/") == 1 }

// literalContent is the place of the first byte of a string literal's text, and the indentation of its lines; the place of the
// literal if the text is not literal.
func literalContent(v lint.Value) (lint.Place, int) {
	at := v.At
	for _, quote := range []string{`"""`, `'''`, `"`, `'`} {
		inside, ok := strings.CutPrefix(v.Raw, quote)
		if ok && strings.TrimSuffix(inside, quote) == v.Text && v.Text+quote == inside {
			at.Column += len(quote)
			at.EndColumn -= len(quote)
			return at, 0
		}
	}
	return at, -1
}

// byteOrderMark is the byte order mark, which Python does not count.
const byteOrderMark = "\xef\xbb\xbf"

// cellText is a cell with the beginnings of its lines.
type cellText struct {
	bytes  []byte
	begins []int
	marked bool
}

// newCellText finds the lines as Python counts them: after \n, after \r, and after both together.
func newCellText(b []byte) *cellText {
	t := &cellText{bytes: b, begins: []int{0}}
	if bytes.HasPrefix(b, []byte(byteOrderMark)) {
		t.marked = true
		t.begins[0] = len(byteOrderMark)
	}

	for i, c := range b {
		if c == '\n' || c == '\r' && (i+1 == len(b) || b[i+1] != '\n') {
			t.begins = append(t.begins, i+1)
		}
	}

	return t
}

// textAt is the text at a place; "" where the place is not in the text, as in a file that is not UTF-8.
func (c *cellText) textAt(s replySpan) string {
	if s[1] < 1 || s[3] < s[1] || s[3] > len(c.begins) || s[2] < 0 || s[4] < 0 {
		return ""
	}
	from, to := c.begins[s[1]-1]+s[2], c.begins[s[3]-1]+s[4]
	if from > to || to > len(c.bytes) {
		return ""
	}

	return string(c.bytes[from:to])
}
