package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// TestQuoting: what is quoted comes out of a shell as it went in, whatever it is made of.
func TestQuoting(t *testing.T) {
	words := []string{"GPU-8932f937", "0,1", "", "a b", "it's", `"`, `\`, `\'`, "$(exit 1)", "`x`", "a;b", "*", "~", "é", "-n", "#", "!", "line\nbreak", "{a,b}", "a=b"}
	shells := map[string]func(string) string{"sh": quoteSh}
	if _, err := exec.LookPath("fish"); err == nil {
		shells["fish"] = quoteFish
	}
	for shell, quote := range shells {
		var script strings.Builder
		for _, w := range words {
			script.WriteString("printf '<%s>' " + quote(w) + "\n")
		}
		out, err := exec.Command(shell, "-c", script.String()).CombinedOutput()
		if want := "<" + strings.Join(words, "><") + ">"; err != nil || string(out) != want {
			t.Errorf("%s: %v\n%q, want\n%q", shell, err, out, want)
		}
	}
}
