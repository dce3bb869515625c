package flagset

import (
	"regexp"
	"strings"
)

// FlagsToKeys rewrites flags in an error as the keys of a file.
func FlagsToKeys(text string) string {
	text = strings.TrimPrefix(text, "cannot read ")
	return flagWord().ReplaceAllStringFunc(text, func(word string) string {
		lead, flag, _ := strings.Cut(word, "--")
		end := strings.IndexAny(flag+" ", "= ")
		key, value := strings.ReplaceAll(flag[:end], "-", "_"), flag[end:]
		if strings.HasPrefix(value, "=") || lead != "" && value != "" {
			value = ": " + value[1:]
		}

		return lead + key + value
	})
}

// flagWord matches a flag. It includes a value after a space only in an example of what to type.
func flagWord() *regexp.Regexp {
	const value = `[^\s;]*[^\s;,:]`
	return regexp.MustCompile(`(\b(such as|write|instance|or) )?--[a-z][a-z-]*(=` + value + `| ` + value + `)?`)
}
