package cli

import (
	"strings"

	"gpuard/internal/core/prose"
)

// style is a sequence of SGR parameters of ECMA-48.
type style string

const (
	normal style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	blue   style = "34"
	cyan   style = "36"
)

// span is a piece of a line in one style.
type span struct {
	style style
	text  string
}

// page collects lines that are no wider than the terminal.
type page struct {
	term Term
	out  strings.Builder
}

// text makes text of other origin safe for this terminal. Call it before measuring the text.
func (p *page) text(s string) string {
	s = strings.ReplaceAll(prose.Clean(s), "\ufe0f", "") // U+FE0F makes a character a wide emoji; terminals disagree on its width
	if p.term.UTF8 {
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

// pick returns the glyph, or its ASCII replacement on a terminal without UTF-8.
func (p *page) pick(glyph, ascii string) string {
	if p.term.UTF8 {
		return glyph
	}
	return ascii
}

func (p *page) dots() string { return p.pick("…", "~") }

// line writes one line, cut to the width.
func (p *page) line(spans ...span) {
	room := p.term.Width
	last := len(spans) - 1
	for last >= 0 && strings.TrimSpace(spans[last].text) == "" {
		last--
	}
	for i := 0; i <= last; i++ {
		text := spans[i].text
		if i == last {
			text = strings.TrimRight(text, " ")
		}
		if p.term.Width > 0 {
			if room <= 0 {
				break
			}
			text = cut(text, room, p.dots())
			room -= cells(text)
		}
		p.styled(spans[i].style, text)
	}
	p.out.WriteByte('\n')
}

func (p *page) styled(s style, text string) {
	if !p.term.Color || s == normal || text == "" {
		p.out.WriteString(text)
		return
	}
	p.out.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// paragraph wraps text after a lead; the lines after the first are indented by the width of the lead.
func (p *page) paragraph(lead span, s style, text string) {
	width := p.term.Width - cells(lead.text)
	if p.term.Width > 0 && width < 12 { // too narrow for hanging lines
		lead.text, width = cut(lead.text, max(p.term.Width-12, 0), ""), min(p.term.Width, 12)
	}
	if p.term.Width <= 0 {
		width = 0
	}
	for i, part := range wrap(text, width) {
		if i > 0 {
			lead = span{normal, strings.Repeat(" ", cells(lead.text))}
		}
		p.line(lead, span{s, part})
	}
}
