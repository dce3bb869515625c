// Package shellquote quotes words for shells, and splits texts into words as a shell does. It must not run a shell:
//
//	line := shellquote.JoinQuoted(shellquote.Sh, "python", "my file.py") // python 'my file.py'
package shellquote

import "strings"

// Sh quotes a word for POSIX shells, bash and zsh.
func Sh(word string) string {
	if needsNoQuotes(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Fish quotes a word for fish.
func Fish(word string) string {
	if needsNoQuotes(word) {
		return word
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(word) + "'"
}

// JoinQuoted writes a command line; how quotes each word.
func JoinQuoted(how func(string) string, words ...string) string {
	written := make([]string, len(words))
	for i, w := range words {
		written[i] = how(w)
	}
	return strings.Join(written, " ")
}

// needsNoQuotes reports a word without special characters of any shell. An = is special to zsh at the beginning of a
// word.
func needsNoQuotes(s string) bool {
	return s != "" && s[0] != '=' && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_.,:/=+@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}
