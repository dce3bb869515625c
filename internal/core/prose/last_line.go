package prose

import "strings"

// LastLine is the last line of what a program printed, without control characters, cut to 300 characters; programs end
// with the reason.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(text, "?")), "\n")
	line := []rune(Clean(strings.TrimSpace(lines[len(lines)-1])))
	if len(line) > 300 {
		line = append(line[:300], '…')
	}
	return string(line)
}

// LastLineAfter is the last line of what a program printed, to follow an error: ": no module named x"; "" for none.
func LastLineAfter(text string) string {
	if line := LastLine(text); line != "" {
		return ": " + line
	}
	return ""
}
