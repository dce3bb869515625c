package shell

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

func placeholderRegexp() *regexp.Regexp {
	return regexp.MustCompile(`<[A-Za-z]([^<>|&;()$"'\n]*[^<>|&;()$"'\s])?>`)
}

func hereDocumentRegexp() *regexp.Regexp {
	return regexp.MustCompile(`<<-?[ \t]*["'\\]?([A-Za-z_]\w*)`)
}

// readStatements reads the script statement by statement. Where the parser refuses one, the line of the fault is made empty and
// the statement is read again, so that a bad line within a loop costs that line and not the loop. Nothing but empty
// lines stands before a statement that is read again, so every place stays exact.
func (r *reader) readStatements(lang syntax.LangVariant) error {
	s := &scope{exported: map[string]bool{}, plain: map[string][]int{}}
	text := endComments(r.src)

	// Bytes, so that the time grows with the length alone.
	budget := 16*len(text) + 1<<16
	var first error

	// Lines of a here-document without an end, which are no code.
	document := 0
	for from := 0; ; {
		line := bytes.Count(text[:from], []byte("\n"))
		stmts, fault := parseStatements(lang, text[from:], line)
		r.shift = from - line
		r.join = ""
		r.readList(s, stmts)
		if fault == nil {
			break
		}

		if first == nil {
			first, text = fault, slices.Clone(text)
		}

		from = r.blankParsed(text, from, stmts)
		at, endless := r.faultOffset(fault)
		budget -= max(at-from, 0) + line + 1<<8
		count := 0
		if budget > 0 && !endless && at >= from {
			from, to := logicalLine(text, from, at)
			if replacePlaceholders(text[from:to]) {
				continue
			}
			count = countNonEmpty(text[from:to])
			r.noteUnread(text, from)
			blankOut(text[from:to])
		}

		if count == 0 {
			r.noteUnread(text, from)
			r.unread += countNonEmpty(text[from:])
			if endless {
				document = r.unread
			}
			break
		}

		r.unread += count
	}

	does := func(step lint.Step) bool { return step.Do != lint.Setting }
	if first != nil && (!slices.ContainsFunc(r.steps, does) || 2*(r.unread-document) > countNonEmpty(r.src)) {
		return first
	}

	return nil
}

// noteUnread keeps the line of the first passage that is passed over.
func (r *reader) noteUnread(text []byte, from int) {
	if r.firstUnread == 0 {
		r.firstUnread = 1 + bytes.Count(text[:from], []byte("\n"))
	}
}

// parseStatements parses up to the first fault, or to the end. before is the number of lines before the text.
func parseStatements(lang syntax.LangVariant, text []byte, before int) (all []*syntax.Stmt, fault error) {
	whole := io.MultiReader(strings.NewReader(strings.Repeat("\n", before)), bytes.NewReader(text))
	for stmt, err := range syntax.NewParser(syntax.Variant(lang)).StmtsSeq(whole) {
		switch {
		// The parser goes on after a break, and says its fault again.
		case fault != nil:
		case err != nil:
			fault = err
		default:
			all = append(all, stmt)
		}
	}
	return all, fault
}

// blankParsed makes the end of the statements empty that were read, and returns the start of the line on which the next one
// may begin.
func (r *reader) blankParsed(text []byte, from int, stmts []*syntax.Stmt) int {
	if len(stmts) == 0 {
		return from
	}

	last := stmts[len(stmts)-1]
	end := min(int(last.End().Offset())+r.shift, len(text))
	syntax.Walk(last, func(n syntax.Node) bool {
		if redirect, is := n.(*syntax.Redirect); is && (redirect.Op == syntax.Hdoc || redirect.Op == syntax.DashHdoc) {
			end = max(end, r.documentEnd(text, redirect))
		}
		return true
	})

	for end < len(text) && bytes.IndexByte([]byte(" \t;&"), text[end]) >= 0 {
		end++
	}

	start := bytes.LastIndexByte(text[:end], '\n') + 1
	blankOut(text[start:end])

	return max(from, start)
}

// documentEnd is the end of the line that ends a here-document.
func (r *reader) documentEnd(text []byte, redirect *syntax.Redirect) int {
	name, _ := literalText(redirect.Word.Parts, false)
	at := lineEnd(text, int(redirect.Word.End().Offset())+r.shift) + 1
	for at < len(text) {
		end := lineEnd(text, at)
		if string(bytes.TrimSpace(text[at:end])) == name {
			return end
		}
		at = end + 1
	}

	return 0
}

// lineEnd is the end of the line of a byte, without its newline.
func lineEnd(text []byte, at int) int {
	at = min(at, len(text))
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(text)
}

// faultOffset is where the parser met what it refuses. endless: it is a here-document that has no end; a shell takes all that
// follows as its text.
func (r *reader) faultOffset(fault error) (at int, endless bool) {
	var wrong syntax.ParseError
	var foreign syntax.LangError

	switch {
	case errors.As(fault, &wrong):
		return int(wrong.Pos.Offset()) + r.shift, strings.Contains(wrong.Text, "here-document")
	case errors.As(fault, &foreign):
		return int(foreign.Pos.Offset()) + r.shift, false
	}

	return -1, true
}

// logicalLine is the line around a byte with those that it continues and that continue it, and with the here-document
// that begins on it. Empty lines have no fault: then it is one before.
func logicalLine(text []byte, from, at int) (start, end int) {
	lineStart := func(at int) int { return max(from, bytes.LastIndexByte(text[:at], '\n')+1) }
	at = min(at, len(text))
	start, end = lineStart(at), lineEnd(text, at)
	for start > from && len(bytes.TrimSpace(text[start:end])) == 0 {
		end = start - 1
		start = lineStart(end)
	}

	for start > from && isContinued(text[:start-1]) {
		start = lineStart(start - 1)
	}

	for end < len(text) && isContinued(text[:end]) {
		end = lineEnd(text, end+1)
	}

	if doc := hereDocumentRegexp().FindSubmatch(text[start:end]); doc != nil {
		for next := end; next < len(text); {
			line := text[next+1 : lineEnd(text, next+1)]
			next += 1 + len(line)
			if string(bytes.TrimSpace(line)) == string(doc[1]) {
				return start, next
			}
		}
	}

	return start, end
}

// isContinued reports whether a text ends in a backslash that joins the next line to it.
func isContinued(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}

// replacePlaceholders writes each <word> that stands for something to be filled in as a variable of the same length, whose
// value nobody knows; false without any.
func replacePlaceholders(text []byte) bool {
	found := placeholderRegexp().FindAllIndex(text, -1)
	for _, at := range found {
		word := text[at[0]:at[1]]
		word[0] = '$'

		for i, c := range word[1:] {
			if !isLetter(c) {
				word[i+1] = '_'
			}
		}
	}
	return len(found) > 0
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// blankOut writes blanks over everything but the ends of lines.
func blankOut(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}

// countNonEmpty counts the lines that are not empty.
func countNonEmpty(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			n++
		}
	}
	return n
}
