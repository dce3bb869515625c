package console

import (
	"iter"
	"strings"
	"unicode/utf8"

	"gpuard/internal/core/prose"
)

// CellWidth is the number of terminal columns that the text takes.
func CellWidth(s string) int { return prose.Cells(s) }

// Cut shortens the text to at most width columns; dots replaces the rest.
func Cut(s string, width int, dots string) string { return prose.CutToWidth(s, width, dots) }

// Pad cuts or fills the text to exactly width columns, aligned right if right is set.
func Pad(s string, width int, right bool, dots string) string {
	s = Cut(s, width, dots)
	fill := strings.Repeat(" ", max(0, width-CellWidth(s)))
	if right {
		return fill + s
	}

	return s + fill
}

// Wrap breaks the text between words into lines of at most width columns. A longer word is broken. Width 0 or less
// means no limit.
func Wrap(s string, width int) []string {
	if width <= 0 {
		return []string{s}
	}

	var lines []string
	line := ""
	for glue, word := range breakPieces(s) {
		if line != "" && CellWidth(line)+len(glue)+CellWidth(word) <= width {
			line += glue + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}

		for CellWidth(word) > width {
			head := Cut(word, width, "")
			if head == "" {
				// One character wider than the line.
				_, size := utf8.DecodeRuneInString(word)
				word = word[size:]
				continue
			}
			lines, word = append(lines, head), word[len(head):]
		}
		line = word
	}

	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}

	return lines
}

// breakPieces are what a line may be broken between, each with what joins it to the one before: words, and within a
// word the characters that are written without spaces, such as Chinese. No piece begins with what closes a bracket or a
// sentence, and none ends with what opens one.
func breakPieces(s string) iter.Seq2[string, string] {
	const closing, opening = "，。；：、！？）」』》”’", "（「『《“‘"
	return func(yield func(glue, piece string) bool) {
		for word := range strings.FieldsSeq(s) {
			glue, from, before := " ", 0, rune(0)
			for i, r := range word {
				if i > 0 && (CellWidth(string(before)) > 1 || CellWidth(string(r)) > 1) && !strings.ContainsRune(closing, r) && !strings.ContainsRune(opening, before) {
					if !yield(glue, word[from:i]) {
						return
					}
					glue, from = "", i
				}
				before = r
			}
			if !yield(glue, word[from:]) {
				return
			}
		}
	}
}
