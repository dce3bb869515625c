// Package pages reads Markdown pages as far as the tests of this repository want to know: headings, code blocks, links,
// and what lies between them. It must not be taken for a reader of Markdown: of the ways to write a thing it knows
// those that the pages here use.
package pages

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Kind is what a block is.
type Kind string

// The blocks of a page. A row of a table and an item of a list are blocks of their own.
const (
	Heading   Kind = "heading"
	Paragraph Kind = "paragraph"
	Item      Kind = "item"
	Row       Kind = "row"
	Code      Kind = "code"
)

// Block is one part of a page.
type Block struct {
	Kind  Kind
	Line  int    // the first line of it in the page, from 1; of code in a fence the line below the fence
	Level int    // of a heading
	Info  string // what stands behind the opening fence; "indented" for code without a fence
	Text  string // without the marks of the block; of code its lines
}

// Lines are the lines of a block.
func (b Block) Lines() []string { return strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n") }

// The patterns are made when a page is read: every program that a test starts would make them otherwise.
var (
	headingPattern = compileLater(`^(#{1,6}) +(.*?)(?: +#+)?$`)
	itemPattern    = compileLater(`^ *(?:[-*+]|\d+[.)]) +`)
	codePattern    = compileLater("`+[^`]*`+")
	linkPattern    = compileLater(`(?m)\[[^\[\]]*\]\(([^()\s]+)\)|^\[[^\]]+\]: +(\S+)|<(?:a|img)[^>]* (?:href|src)="([^"]+)"`)
	linkedPattern  = compileLater(`!?\[([^\]]*)\]\([^)]*\)`)
)

func compileLater(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Read takes a page apart.
func Read(text string) (all []Block) {
	r := pageReader{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	for r.at < len(r.lines) {
		r.readBlock()
	}
	return r.all
}

type pageReader struct {
	lines []string
	at    int
	all   []Block
	open  bool // the next line of text belongs to the last block
	list  bool // inside of a list, where an indented line is no code
}

func (r *pageReader) readBlock() {
	line := r.lines[r.at]
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "":
		r.at, r.open = r.at+1, false
	case strings.HasPrefix(trimmed, "```"):
		r.readFence(trimmed)
	case strings.HasPrefix(line, "    ") && !r.open && !r.list:
		r.readIndented()
	case headingPattern().MatchString(line):
		m := headingPattern().FindStringSubmatch(line)
		r.addBlock(Block{Kind: Heading, Level: len(m[1]), Text: m[2]})
		r.open, r.list = false, false
	case strings.HasPrefix(trimmed, "|"):
		r.addBlock(Block{Kind: Row, Text: trimmed})
		r.open, r.list = false, false
	case itemPattern().MatchString(line):
		r.addBlock(Block{Kind: Item, Text: itemPattern().ReplaceAllString(line, "")})
		r.open, r.list = true, true
	case r.open || r.list && strings.HasPrefix(line, "  "):
		last := &r.all[len(r.all)-1]
		last.Text += "\n" + trimmed
		r.at, r.open = r.at+1, true
	default:
		r.addBlock(Block{Kind: Paragraph, Text: trimmed})
		r.open, r.list = true, false
	}
}

func (r *pageReader) addBlock(b Block) {
	r.at++
	b.Line = r.at
	r.all = append(r.all, b)
}

// readFence reads the code up to the closing fence. In a list the fence is indented, and so is the code.
func (r *pageReader) readFence(opening string) {
	margin := r.lines[r.at][:strings.Index(r.lines[r.at], "`")]
	info := strings.TrimLeft(opening, "`")
	r.at++
	b := Block{Kind: Code, Line: r.at + 1, Info: strings.TrimSpace(info)}
	closing := strings.TrimSuffix(opening, info)
	for ; r.at < len(r.lines) && strings.TrimSpace(r.lines[r.at]) != closing; r.at++ {
		b.Text += strings.TrimPrefix(r.lines[r.at], margin) + "\n"
	}
	r.at++
	r.all, r.open = append(r.all, b), false
}

func (r *pageReader) readIndented() {
	b := Block{Kind: Code, Line: r.at + 1, Info: "indented"}
	for ; r.at < len(r.lines); r.at++ {
		line, inside := strings.CutPrefix(r.lines[r.at], "    ")
		if !inside && strings.TrimSpace(line) != "" {
			break
		}
		b.Text += line + "\n"
	}
	b.Text = strings.TrimRight(b.Text, "\n") + "\n"
	r.all = append(r.all, b)
}

// Link is a reference to somewhere else.
type Link struct {
	Line int
	To   string
}

// Links are the links of a page, in order, without those in code.
func Links(blocks []Block) (all []Link) {
	for _, b := range blocks {
		if b.Kind == Code {
			continue
		}
		text := codePattern().ReplaceAllStringFunc(b.Text, func(c string) string { return "`" + strings.Repeat("\n", strings.Count(c, "\n")) })
		for _, m := range linkPattern().FindAllStringSubmatchIndex(text, -1) {
			for group := 2; group < len(m); group += 2 {
				if m[group] >= 0 {
					all = append(all, Link{b.Line + strings.Count(text[:m[group]], "\n"), text[m[group]:m[group+1]]})
				}
			}
		}
	}
	return all
}

// IsRelative reports whether a link leads to a file of the repository, or to a place in one.
func (l Link) IsRelative() bool {
	return !strings.HasPrefix(l.To, "//") && !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`).MatchString(l.To)
}

// Anchors are what a link can name behind #: the headings, as GitHub writes them
// (gjtorikian/html-pipeline: lib/html_pipeline/node_filter/table_of_contents_filter.rb).
func Anchors(blocks []Block) map[string]bool {
	all := map[string]bool{}
	for _, b := range blocks {
		if b.Kind != Heading {
			continue
		}
		name := anchorOf(b.Text)
		for n := 1; all[name]; n++ {
			name = anchorOf(b.Text) + "-" + strconv.Itoa(n)
		}
		all[name] = true
	}
	return all
}

func anchorOf(text string) string {
	text = linkedPattern().ReplaceAllString(text, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
