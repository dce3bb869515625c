// Package prose makes texts for people: safe to print, short, and with the right ending. It knows nothing of devices.
//
//	prose.Clean("a\x1b[31m\nb")                  // "a[31m b"
//	prose.CountNoun(2, "GPU")                        // "2 GPUs"
//	prose.JoinWords([]string{"0", "1", "3"}, "and")   // "0, 1 and 3"
package prose

import (
	"path"
	"slices"
	"strconv"
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

// ProgramName is the base name of the program of a command line, Brief; "" where there is none.
func ProgramName(line string) string {
	if words := strings.Fields(Clean(line)); len(words) > 0 {
		return Brief(path.Base(words[0]))
	}
	return ""
}

// CountNoun writes a number and its noun: "1 file", "2 files", "2 processes".
func CountNoun(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Texts are the texts of a list's items, in order; nil of an empty list.
func Texts[T any](list []T, text func(T) string) []string {
	out := slices.Grow([]string(nil), len(list))
	for _, item := range list {
		out = append(out, text(item))
	}
	return out
}

// JoinWords joins as in a sentence: "a, b and c" with the last word "and".
func JoinWords(parts []string, last string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " " + last + " " + parts[len(parts)-1]
}

// Ranges writes numbers, each once and sorted, with between between the parts: "0-3, 6".
func Ranges(numbers []int, between string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	var parts []string
	for i := 0; i < len(sorted); {
		end := i
		for end+1 < len(sorted) && sorted[end+1] == sorted[end]+1 {
			end++
		}

		part := strconv.Itoa(sorted[i])
		if end > i {
			part += "-" + strconv.Itoa(sorted[end])
		}

		parts = append(parts, part)
		i = end + 1
	}

	return strings.Join(parts, between)
}

// Ordinal is "1st", "2nd", "3rd", "11th".
func Ordinal(n int) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return strconv.Itoa(n) + end
}
