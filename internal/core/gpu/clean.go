package gpu

import (
	"strings"
	"unicode"
)

// Clean makes untrusted text (a process name, an argument, a user name) safe to print on one line of a terminal: tabs
// and line breaks become a space; other control characters, invisible formatting such as bidirectional overrides, and
// invalid UTF-8 are dropped. Printable text of any language stays.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

// Brief is Clean for names inside a sentence: at most 60 characters, the last of them "…" where some are left out.
func Brief(s string) string {
	const longest = 60
	runes := []rune(Clean(s))
	if len(runes) <= longest {
		return string(runes)
	}
	return string(runes[:longest-1]) + "…"
}
