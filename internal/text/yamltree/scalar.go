package yamltree

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"gpuard/internal/core/source"
)

// emptyPlaceAfter is the empty place after another one.
func emptyPlaceAfter(p source.Place) source.Place {
	return source.Place{Line: p.EndLine, Column: p.EndColumn, EndLine: p.EndLine, EndColumn: p.EndColumn}
}

// tokenOffset returns where a token begins: the index of its line and the byte in it. The library counts columns in
// characters.
func (r *reader) tokenOffset(t *token.Token) (line, column int) {
	line = min(max(t.Position.Line-1, 0), len(r.lines)-1)
	text, at := r.lines[line], spot{line: line}
	if r.last.line == line && r.last.chars < t.Position.Column {
		at = r.last
	}

	for ; at.chars+1 < t.Position.Column && at.bytes < len(text); at.chars++ {
		_, width := utf8.DecodeRune(text[at.bytes:])
		at.bytes += width
	}

	r.last = at

	return line, at.bytes
}

// placeAt makes a place of a line's index and the byte in it.
func (r *reader) placeAt(line, column, endLine, endColumn int) source.Place {
	column, endColumn = min(column, r.lineWidth(line)), min(endColumn, r.lineWidth(endLine))
	p := source.Place{Line: line + 1, Column: column + 1, EndLine: endLine + 1, EndColumn: endColumn + 1}
	if line == 0 {
		p.Column += r.bom
	}

	if endLine == 0 {
		p.EndColumn += r.bom
	}

	return clampEnd(p)
}

// JoinPlaces is the text from one place to another; empty if the other one is not after it, as with the value of an alias.
func JoinPlaces(from, to source.Place) source.Place {
	return clampEnd(source.Place{Line: from.Line, Column: from.Column, EndLine: to.EndLine, EndColumn: to.EndColumn})
}

// clampEnd lets a place end where it begins rather than before: the library's places are not always right.
func clampEnd(p source.Place) source.Place {
	if p.EndLine < p.Line || p.EndLine == p.Line && p.EndColumn < p.Column {
		p.EndLine, p.EndColumn = p.Line, p.Column
	}
	return p
}

func (r *reader) lineWidth(line int) int { return len(bytes.TrimRight(r.lines[line], "\n")) }

// tokenPlace is the place of a token of one character.
func (r *reader) tokenPlace(t *token.Token) source.Place {
	if t == nil {
		return source.Place{Line: 1, Column: 1, EndLine: 1, EndColumn: 1}
	}
	line, column := r.tokenOffset(t)
	return r.placeAt(line, column, line, column+len(t.Value))
}

// readScalar reads a value on one line or on several.
func (r *reader) readScalar(n ast.ScalarNode) *Node {
	t := n.GetToken()
	line, column := r.tokenOffset(t)
	if t.Type == token.ImplicitNullType || n.Type() == ast.NullType && strings.TrimSpace(t.Origin) == "" {
		return &Node{Null: true, Plain: true, At: r.placeAt(line, column, line, column)}
	}

	written := strings.TrimSpace(t.Origin)
	if n.Type() == ast.NullType && !bytes.HasPrefix(r.lines[line][column:], []byte(written)) {
		return &Node{Null: true, Plain: true, At: r.placeAt(line, column, line, column)}
	}

	out := &Node{Text: t.Value, Null: n.Type() == ast.NullType, Plain: t.Type != token.SingleQuoteType && t.Type != token.DoubleQuoteType}
	line, column = r.scalarBegin(line, column, written)
	endLine, endColumn := r.scalarEnd(line, column, written)
	out.At = r.placeAt(line, column, endLine, endColumn)
	out.Raw = r.textBetween(line, column, endLine, endColumn)

	return out
}

// scalarBegin corrects where a scalar begins: the library points at the white space before some of them.
func (r *reader) scalarBegin(line, column int, written string) (int, int) {
	first, _, _ := strings.Cut(written, "\n")
	first = strings.TrimSpace(first)
	for l := line; l < len(r.lines) && l <= line+1; l++ {
		from := 0
		if l == line {
			from = min(column, len(r.lines[l]))
		}
		if i := bytes.Index(r.lines[l][from:], []byte(first)); first != "" && i >= 0 {
			return l, from + i
		}
	}

	return line, column
}

// scalarEnd finds the end of a scalar that is written like this.
func (r *reader) scalarEnd(line, column int, written string) (int, int) {
	parts := strings.Split(written, "\n")
	last := strings.TrimSpace(parts[len(parts)-1])
	to := min(line+len(parts)-1, len(r.lines)-1)
	from := column
	if to > line {
		from = 0
	}

	if i := bytes.Index(r.lines[to][min(from, len(r.lines[to])):], []byte(last)); i >= 0 {
		return to, from + i + len(last)
	}

	return line, min(column+len(strings.TrimSpace(parts[0])), len(bytes.TrimRight(r.lines[line], "\r\n")))
}

func (r *reader) textBetween(line, column, endLine, endColumn int) string {
	if line == endLine {
		return string(r.lines[line][column:max(column, min(endColumn, len(r.lines[line])))])
	}

	var b strings.Builder
	b.Write(r.lines[line][column:])

	for l := line + 1; l < endLine; l++ {
		b.Write(r.lines[l])
	}

	b.Write(r.lines[endLine][:endColumn])

	return b.String()
}

// readBlockScalar reads a block scalar, after | or >. Its place is that of its lines, without the header.
func (r *reader) readBlockScalar(n *ast.LiteralNode) *Node {
	header, _ := r.tokenOffset(n.Start)
	out := &Node{Text: n.Value.Value, block: '|'}
	if strings.HasPrefix(n.Start.Value, ">") {
		out.block = '>'
	}

	first, indent := header+1, -1
	if first >= len(r.lines) {
		out.At = r.placeAt(header, 0, header, 0)
		return out
	}

	last, end := first, header+1+strings.Count(n.Value.GetToken().Origin, "\n")
	for l := first; l < len(r.lines); l++ {
		text := bytes.TrimRight(r.lines[l], "\r\n")
		spaces := len(text) - len(bytes.TrimLeft(text, " "))
		if spaces == len(text) {
			continue
		}

		if indent < 0 {
			// Empty lines at the top say nothing to a shell.
			first, indent = l, spaces
			if i := strings.IndexAny(n.Start.Value, "123456789"); i >= 0 {
				indent = min(spaces, spaces-leadingSpaces(out.Text))
			}
		}

		if spaces < indent || l > end {
			break
		}

		last = l
	}

	indent = max(indent, 0)
	out.At = r.placeAt(first, indent, last, len(bytes.TrimRight(r.lines[last], "\r\n")))
	if out.At.EndLine == out.At.Line && out.At.EndColumn < out.At.Column {
		out.At.EndColumn = out.At.Column
	}

	var raw strings.Builder

	for l := first; l <= last; l++ {
		text := bytes.TrimRight(r.lines[l], "\r\n")
		raw.Write(text[min(indent, len(text)):])
		raw.WriteByte('\n')
	}

	out.Raw = raw.String()

	return out
}

// leadingSpaces is how many spaces the first line with anything in it begins with.
func leadingSpaces(s string) int {
	s = strings.TrimLeft(s, "\n")
	return len(s) - len(strings.TrimLeft(s, " "))
}

// ScriptText is a scalar as text for another program, such as a shell: the text, its first place, and how many bytes are
// before each of its further lines; -1 if places in the text do not lead to places in the file.
func (n *Node) ScriptText() (text string, at source.Place, indent int) {
	switch {
	case n == nil || n.Kind != Scalar:
		return "", source.Place{}, -1
	case n.block == '|':
		return n.Raw, n.At, n.At.Column - 1
	case n.block == '>':
		return unfoldLines(n.Raw), n.At, n.At.Column - 1
	case n.Raw == n.Text:
		return n.Text, n.At, 0
	case len(n.Raw) >= 2 && n.Raw[1:len(n.Raw)-1] == n.Text:
		at := n.At
		at.Column, at.EndColumn = at.Column+1, at.EndColumn-1
		return n.Text, at, 0
	}
	return n.Text, n.At, -1
}

// unfoldLines writes a folded scalar so that a shell joins the lines which YAML joins: the lines stay where they are
// (https://yaml.org/spec/1.2.2/#813-folded-style).
func unfoldLines(raw string) string {
	lines := strings.Split(strings.TrimSuffix(raw, "\n"), "\n")
	var b strings.Builder

	for i, line := range lines {
		b.WriteString(line)
		if i+1 < len(lines) && isFolded(line) && isFolded(lines[i+1]) {
			b.WriteString(" \\")
		}
		b.WriteByte('\n')
	}

	return b.String()
}

// isFolded reports whether a line of a folded scalar is joined with a neighbour: it is not empty and not indented further.
func isFolded(line string) bool { return line != "" && line[0] != ' ' && line[0] != '\t' }
