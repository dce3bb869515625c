package console

import (
	"io"
	"strings"

	"gpuard/internal/core/prose"
)

// Style is a sequence of SGR parameters of ECMA-48.
type Style string

// The styles.
const (
	Normal Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Blue   Style = "34"
	Cyan   Style = "36"
)

// Span is a piece of a line in one style.
type Span struct {
	Style Style
	Text  string
}

// Span is text in this style.
func (s Style) Span(text string) Span { return Span{Style: s, Text: text} }

// Page collects lines that are no wider than the terminal.
type Page struct {
	Term Term
	Out  strings.Builder
}

// Draw writes what view puts on a page.
func Draw(w io.Writer, t Term, view func(*Page)) {
	p := Page{Term: t}
	view(&p)
	_, _ = io.WriteString(w, p.Out.String())
}

// Text makes text of other origin safe for this terminal. Call it before measuring the text.
func (p *Page) Text(s string) string {
	// U+FE0F makes a character a wide emoji; terminals disagree on its width.
	s = strings.ReplaceAll(prose.Clean(s), "\ufe0f", "")
	if p.Term.UTF8 {
		return s
	}
	s = strings.ReplaceAll(s, "…", "...")

	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, s)
}

// Translate says a sentence in the language of the terminal, made safe for it.
func (p *Page) Translate(text string) string { return p.Text(p.Term.Translate(text)) }

// PickGlyph returns the glyph, or its ASCII replacement on a terminal without UTF-8.
func (p *Page) PickGlyph(glyph, ascii string) string {
	if p.Term.UTF8 {
		return glyph
	}
	return ascii
}

// Ellipsis is what stands for text that is cut.
func (p *Page) Ellipsis() string { return p.PickGlyph("…", "~") }

// Line writes one line, cut to the width.
func (p *Page) Line(spans ...Span) {
	room := p.Term.Width
	last := len(spans) - 1
	for last >= 0 && strings.TrimSpace(spans[last].Text) == "" {
		last--
	}

	for i := 0; i <= last; i++ {
		text := spans[i].Text
		if i == last {
			text = strings.TrimRight(text, " ")
		}
		if p.Term.Width > 0 {
			if room <= 0 {
				break
			}
			text = Cut(text, room, p.Ellipsis())
			room -= CellWidth(text)
		}
		p.WriteStyled(spans[i].Style, text)
	}

	p.Out.WriteByte('\n')
}

// WriteStyled writes text in a style.
func (p *Page) WriteStyled(s Style, text string) {
	if !p.Term.Color || s == Normal || text == "" {
		p.Out.WriteString(text)
		return
	}
	p.Out.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// WriteParagraph wraps text after a lead; the lines after the first are indented by the width of the lead.
func (p *Page) WriteParagraph(lead Span, s Style, text string) {
	width := p.Term.Width - CellWidth(lead.Text)
	if p.Term.Width > 0 && width < 12 {
		// Too narrow for hanging lines.
		lead.Text, width = Cut(lead.Text, max(p.Term.Width-12, 0), ""), min(p.Term.Width, 12)
	}
	if p.Term.Width <= 0 {
		width = 0
	}

	for i, part := range Wrap(text, width) {
		if i > 0 {
			lead = Normal.Span(strings.Repeat(" ", CellWidth(lead.Text)))
		}
		p.Line(lead, s.Span(part))
	}
}

// ColumnWidths returns the widths that the table needs, and by how much they exceed the terminal.
func (p *Page) ColumnWidths(table [][]string) (widths [5]int, over int) {
	for _, row := range table {
		for i, text := range row {
			widths[i] = max(widths[i], CellWidth(text))
		}
	}

	if p.Term.Width <= 0 {
		return widths, 0
	}

	over = (len(widths)-1)*len(ColumnGap) - p.Term.Width
	for _, w := range widths {
		over += w
	}

	return widths, over
}

// WriteText writes text of its own, cut at the width of the terminal.
func (p *Page) WriteText(text string) { p.Line(Normal.Span(p.Text(text))) }
