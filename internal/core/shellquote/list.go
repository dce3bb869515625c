package shellquote

import (
	"fmt"
	"strings"
	"unicode"
)

// ReadList reads the value of a flag that takes a list. There is one reader for all of them, whether the flag comes
// from the command line, from a file or from a script: what two of them read differently would be two things.
func ReadList(text string) ([]string, error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return nil, fmt.Errorf("there is a line break or another control character in %q; write the list with commas, such as 0,1", text)
	}
	if text == "" {
		return []string{}, nil
	}

	// The comma of Chinese and Japanese keyboards.
	return strings.Split(strings.ReplaceAll(text, "，", ","), ","), nil
}
