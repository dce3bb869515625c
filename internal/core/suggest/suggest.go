// Package suggest finds the word that was probably meant by one that nobody knows.
package suggest

import "strings"

// Word is the known word that was probably meant, "" when none is near. Case, - and _ do not count.
func Word(word string, known []string) string {
	joined := strings.NewReplacer("-", "", "_", "")
	plain := func(s string) string { return joined.Replace(strings.ToLower(s)) }
	word = plain(word)
	if len(word) > longest {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		d := Distance(word, plain(k))
		if len(word) >= 3 && (strings.HasPrefix(plain(k), word) || len(k) >= 3 && strings.HasPrefix(word, plain(k))) {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// longest is how many bytes a word may have that is still a slip of another.
const longest = 64

// Distance counts the letters to insert, remove, replace or swap with the next between two words.
func Distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
