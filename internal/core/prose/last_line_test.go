package prose

import (
	"strings"
	"testing"
)

// TestLastLine: of a traceback the reason remains, in one line that is not too long.
func TestLastLine(t *testing.T) {
	long := strings.Repeat("x", 400)
	for text, want := range map[string]string{
		"": "", "\n \n": "", "Traceback:\n  at 1\nImportError: no torch\n\n": "ImportError: no torch", "a\x1b[31mb": Clean("a\x1b[31mb"), long: long[:300] + "…",
	} {
		if got := LastLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := LastLineAfter("one\ntwo"); got != ": two" || LastLineAfter("\n") != "" {
		t.Errorf("%q", got)
	}
}
