package cli

import (
	"os/exec"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"gpus", "device", "dry-run", "mem", "min-compute", "model", "mig", "quiet", "json"}
	for word, want := range map[string]string{
		"gpu": "gpus", "devices": "device", "dryrun": "dry-run", "dry_run": "dry-run", "memory": "mem", "mincompute": "min-compute",
		"modl": "model", "MODEL": "model", "jsno": "json", "epochs": "", "x": "", "": "", "learning-rate": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"statsu", "status", 1}, {"kitten", "sitting", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

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
