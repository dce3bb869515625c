// Package suggest finds the known word that an unknown one probably means. It must not know where the words come from:
//
//	suggest.ClosestWord("replcias", []string{"image", "replicas"}) // "replicas"
package suggest

import "strings"

// ClosestWord is the known word that was probably meant, "" when none is similar. Case, - and _ are ignored.
func ClosestWord(word string, known []string) string {
	joined := strings.NewReplacer("-", "", "_", "")
	plain := func(s string) string { return joined.Replace(strings.ToLower(s)) }
	word = plain(word)
	if len(word) > maxWordBytes {
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

// maxWordBytes is the size in bytes up to which a word is compared.
const maxWordBytes = 64

// Distance counts the letters to insert, remove, replace or swap with the next to turn one word into the other.
func Distance(a, b string) int {
	if len(a) > maxWordBytes || len(b) > maxWordBytes {
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
