package shellquote

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestShells: each shell reads each quoted word unchanged.
func TestShells(t *testing.T) {
	words := []string{"", "plain", "two words", "it's", `back\slash`, `\'`, "$HOME", "`id`", "a\nb", "~", "=ls", "*", "!x", "ünï", "-n", "a;b", `"`, "#", "a=b", "{a,b}", "[x]", "%", "\t"}
	for shell, how := range map[string]func(string) string{"sh": Sh, "bash": Sh, "zsh": Sh, "fish": Fish} {
		t.Run(shell, func(t *testing.T) {
			if shell == "zsh" || shell == "fish" {
				gate.Need(t, shell)
			}
			line := "printf '%s\\0' " + JoinQuoted(how, words...)
			cmd := exec.Command(shell, "-c", line)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // fish creates folders there
			out, err := cmd.Output()
			if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
				t.Errorf("%s: %v, got %q, want %q", line, err, out, want)
			}
		})
	}
}
