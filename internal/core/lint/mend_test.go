package lint

import (
	"slices"
	"strings"
	"testing"
)

func edit(line, column, endLine, endColumn int, text string) Edit {
	return Edit{At: Place{Line: line, Column: column, EndLine: endLine, EndColumn: endColumn}, Text: text}
}

func TestMendText(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		edits            [][]Edit // of each finding
		done             []bool
	}{
		{"nothing", "a\n", "a\n", nil, []bool{}},
		{"a word", "x=0-3\ny\n", "x=0,1\ny\n", [][]Edit{{edit(1, 3, 1, 6, "0,1")}}, []bool{true}},
		{"an insertion at the end without line feed", "a", "ab", [][]Edit{{edit(1, 2, 1, 2, "b")}}, []bool{true}},
		{"two findings, in any order", "a b\n", "A B\n", [][]Edit{{edit(1, 3, 1, 4, "B")}, {edit(1, 1, 1, 2, "A")}}, []bool{true, true}},
		{"over lines", "a\nb\nc\n", "aXc\n", [][]Edit{{edit(1, 2, 3, 1, "X")}}, []bool{true}},
		{"the same twice is done once", "a\n", "export a\n", [][]Edit{{edit(1, 1, 1, 1, "export ")}, {edit(1, 1, 1, 1, "export ")}}, []bool{true, true}},
		{"what touches waits", "ab\n", "Xb\n", [][]Edit{{edit(1, 1, 1, 2, "X")}, {edit(1, 2, 1, 3, "Y")}}, []bool{true, false}},
		{"two insertions at one place wait", "a\n", "Xa\n", [][]Edit{{edit(1, 1, 1, 1, "X")}, {edit(1, 1, 1, 1, "Y")}}, []bool{true, false}},
		{"a finding wholly or not at all", "ab\ncd\n", "Xb\ncd\n", [][]Edit{{edit(1, 1, 1, 2, "X")}, {edit(2, 1, 2, 2, "Y"), edit(1, 1, 1, 2, "Z")}}, []bool{true, false}},
		{"a finding whose edits touch each other", "ab\n", "ab\n", [][]Edit{{edit(1, 1, 1, 2, "X"), edit(1, 2, 1, 3, "Y")}}, []bool{false}},
		{"no such line", "a\n", "a\n", [][]Edit{{edit(3, 1, 3, 1, "X")}}, []bool{false}},
		{"behind the end of a line", "a\nb\n", "a\nb\n", [][]Edit{{edit(1, 3, 1, 4, "X")}}, []bool{false}},
		{"backwards", "abc\n", "abc\n", [][]Edit{{edit(1, 3, 1, 1, "X")}}, []bool{false}},
		{"a column that is not known", "abc\n", "abc\n", [][]Edit{{edit(1, 0, 1, 0, "X")}}, []bool{false}},
		{"a finding without edits", "abc\n", "abc\n", [][]Edit{nil}, []bool{false}},
		{"bytes, not letters", "é=1\r\n", "é=2\r\n", [][]Edit{{edit(1, 4, 1, 5, "2")}}, []bool{true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := make([]Finding, len(c.edits))
			for i, e := range c.edits {
				found[i].Edits = e
			}
			got, done := ApplyEdits(c.text, found)
			if got != c.want || !slices.Equal(done, c.done) {
				t.Errorf("%q, %v; want %q, %v", got, done, c.want, c.done)
			}
		})
	}
}

// FuzzMend: no edit leaves the text, and what is not inside an edit stays.
func FuzzMend(f *testing.F) {
	f.Add("export X=0-3\n", 1, 10, 1, 13, "0,1")
	f.Add("a\nb", 1, 1, 2, 2, "")
	f.Add("", 1, 1, 1, 1, "x")
	f.Fuzz(func(t *testing.T, text string, line, column, endLine, endColumn int, with string) {
		one := edit(line, column, endLine, endColumn, with)
		mended, done := ApplyEdits(text, []Finding{{Edits: []Edit{one}}})
		there, ok := TextAt(text)(one.At)
		if ok != done[0] {
			t.Fatalf("At says %v and Mend %v", ok, done[0])
		}
		if !ok {
			if mended != text {
				t.Fatalf("%q became %q by an edit without a place", text, mended)
			}
			return
		}
		if len(mended) != len(text)-len(there)+len(with) || !strings.Contains(mended, with) {
			t.Fatalf("%q became %q by putting %q in the place of %q", text, mended, with, there)
		}
		back := one
		back.Text = there
		back.At.EndLine, back.At.EndColumn = endOf(one.At, with)
		if again, _ := ApplyEdits(mended, []Finding{{Edits: []Edit{back}}}); again != text {
			t.Fatalf("%q, mended to %q, went back to %q", text, mended, again)
		}
	})
}

// endOf is where a text ends that begins at a place.
func endOf(at Place, text string) (line, column int) {
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		return at.Line + strings.Count(text, "\n"), len(text) - i
	}
	return at.Line, at.Column + len(text)
}
