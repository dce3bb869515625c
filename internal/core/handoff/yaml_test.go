package handoff

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// FuzzScalar: a YAML parser reads every text as itself.
func FuzzScalar(f *testing.F) {
	for _, word := range []string{"", "a b", "it's", `"\\`, "$(id)", "a\r\nb", "- a", "a: b", "&a", "null", "NO", "1e3", "0x1f", "1:30", "2001-01-01", "<<", "---", "\x01\x7f", "\u0085\u00a0\u2028\ufeff", "训练 🎉"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if isNotText(text) {
			t.Skip()
		}
		var back map[string][]string
		doc := object{{"a", []string{text, "end"}}}.yamlDocument()
		if err := yaml.Unmarshal([]byte(doc), &back); err != nil || len(back["a"]) != 2 || back["a"][0] != text {
			t.Errorf("%q: %v, %q", doc, err, back["a"])
		}
		if strings.ContainsAny(quoteForBash(text), "\r\n") {
			t.Errorf("%q is on several lines of a script", text)
		}
	})
}
