package suggest

import "testing"

func TestWord(t *testing.T) {
	known := []string{"gpus", "device", "dry-run", "mem", "min-compute", "model", "mig", "quiet", "json"}
	for word, want := range map[string]string{
		"gpu": "gpus", "devices": "device", "dryrun": "dry-run", "dry_run": "dry-run", "memory": "mem", "mincompute": "min-compute",
		"modl": "model", "MODEL": "model", "jsno": "json", "epochs": "", "x": "", "": "", "learning-rate": "",
	} {
		if got := ClosestWord(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"statsu", "status", 1}, {"kitten", "sitting", 3}} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
