package lint

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// SplitLines splits text as places count: a line ends at each line feed, which it keeps.
func SplitLines(text string) []string { return slices.Collect(strings.Lines(text)) }

// ApplyEdits applies the edits of the findings to the text of a file, each finding wholly or not at all. done says which were
// applied: an edit that touches another's place has to wait until the file was read again.
func ApplyEdits(text string, found []Finding) (mended string, done []bool) {
	m := mender{starts: lineStarts(text), size: len(text)}
	done = make([]bool, len(found))

	// In the order of the text, apart from each other.
	var chosen spans

	for i, f := range found {
		spans, err := m.editSpans(f.Edits)
		if err != nil || len(spans) == 0 || slices.ContainsFunc(spans, chosen.touchesAny) {
			continue
		}
		done[i] = true

		for _, s := range spans {
			if at, known := chosen.indexOf(s); !known {
				chosen = slices.Insert(chosen, at, s)
			}
		}
	}

	var b strings.Builder
	at := 0
	for _, s := range chosen {
		b.WriteString(text[at:s.from])
		b.WriteString(s.text)
		at = s.to
	}

	b.WriteString(text[at:])

	return b.String(), done
}

// TextAt returns a function for the text at a place of text; ok is false if the text has no such place, or if columns are
// unknown.
func TextAt(text string) func(p Place) (there string, ok bool) {
	m := mender{starts: lineStarts(text), size: len(text)}
	return func(p Place) (string, bool) {
		s, err := m.editSpan(Edit{At: p})
		if err != nil {
			return "", false
		}
		return text[s.from:s.to], true
	}
}

// span is an edit by offsets of bytes.
type span struct {
	from, to int
	text     string
}

type spans []span

// indexOf returns the index of a span, or where it would be inserted.
func (all spans) indexOf(s span) (at int, known bool) {
	at, _ = slices.BinarySearchFunc(all, s, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return at, at < len(all) && all[at] == s
}

// touchesAny reports whether a span touches one of those in the order of the text, without being the same.
func (all spans) touchesAny(s span) bool {
	at, _ := all.indexOf(s)

	// Spans that do not overlap have their ends in the same order.
	near := all[max(at-1, 0):min(at+1, len(all))]
	return spans{s}.clashesWith(near)
}

// clashesWith reports whether any of the spans touches one of the others, without being the same.
func (all spans) clashesWith(others []span) bool {
	return slices.ContainsFunc(all, func(a span) bool {
		return slices.ContainsFunc(others, func(b span) bool { return a != b && a.from <= b.to && b.from <= a.to })
	})
}

type mender struct {
	// The start of each line; the last is after the text.
	starts []int
	size   int
}

func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return append(starts, len(text)+1)
}

func (m mender) editSpans(edits []Edit) (all spans, err error) {
	for _, e := range edits {
		s, err := m.editSpan(e)
		if err != nil || all.clashesWith([]span{s}) {
			return nil, errors.Join(err, errPlace)
		}
		all = append(all, s)
	}
	return all, nil
}

func (m mender) editSpan(e Edit) (span, error) {
	from, ok := m.byteOffset(e.At.Line, e.At.Column)
	to, okToo := m.byteOffset(e.At.EndLine, e.At.EndColumn)
	if !ok || !okToo || to < from {
		return span{}, errPlace
	}

	return span{from, to, e.Text}, nil
}

// byteOffset is the byte of a line and column; the end of a line is a place, the byte after its line feed is not.
func (m mender) byteOffset(line, column int) (int, bool) {
	if line < 1 || line >= len(m.starts) || column < 1 {
		return 0, false
	}
	at := m.starts[line-1] + column - 1
	return at, at < m.starts[line]
}

var errPlace = errors.New("no such place")
