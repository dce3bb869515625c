// Package shellquote writes words so that a shell reads them as they are.
package shellquote

import "strings"

// Sh writes a word for POSIX shells, bash and zsh.
func Sh(word string) string {
	if plain(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Fish writes a word for fish.
func Fish(word string) string {
	if plain(word) {
		return word
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(word) + "'"
}

// Words writes a command line, each word by how.
func Words(how func(string) string, words ...string) string {
	written := make([]string, len(words))
	for i, w := range words {
		written[i] = how(w)
	}
	return strings.Join(written, " ")
}

// plain: these characters mean nothing to any shell. An = does to zsh, at the beginning of a word.
func plain(s string) bool {
	return s != "" && s[0] != '=' && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_.,:/=+@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}
