package prose

import (
	"strings"
	"unicode"
)

// isWide lists the blocks that terminals draw two cells wide: East Asian Wide and Fullwidth of Unicode's
// EastAsianWidth.txt, joined to a few ranges, and emoji.
func isWide(r rune) bool {
	if r < 0x1100 {
		return false
	}
	for _, b := range [...][2]rune{
		{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x23f0, 0x23f3}, {0x25fd, 0x25fe}, {0x2614, 0x2615},
		{0x2648, 0x2653}, {0x267f, 0x267f}, {0x2693, 0x2693}, {0x26a1, 0x26a1}, {0x26aa, 0x26ab}, {0x26bd, 0x26be},
		{0x26c4, 0x26c5}, {0x26ce, 0x26ce}, {0x26d4, 0x26d4}, {0x26ea, 0x26ea}, {0x26f2, 0x26f5}, {0x26fa, 0x26fd},
		{0x2705, 0x2705}, {0x270a, 0x270b}, {0x2728, 0x2728}, {0x274c, 0x274e}, {0x2753, 0x2757}, {0x2795, 0x2797},
		{0x27b0, 0x27bf}, {0x2b1b, 0x2b1c}, {0x2b50, 0x2b55}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xa960, 0xa97f},
		{0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe10, 0xfe19}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
		{0x16fe0, 0x18aff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e},
		{0x1f191, 0x1f19a}, {0x1f200, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f9ff},
		{0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
	} {
		if r >= b[0] && r <= b[1] {
			return true
		}
	}
	return false
}

func runeCells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case isWide(r):
		return 2
	}
	return 1
}

// Cells is the number of terminal columns that the text takes.
func Cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// CutToWidth shortens the text to at most width columns; dots replaces the rest.
func CutToWidth(s string, width int, dots string) string {
	if Cells(s) <= width {
		return s
	}

	if width < Cells(dots) {
		dots = ""
	}

	room := width - Cells(dots)
	for i, r := range s {
		room -= runeCells(r)
		if room < 0 {
			return strings.TrimRight(s[:i], " ") + dots
		}
	}

	return s
}
