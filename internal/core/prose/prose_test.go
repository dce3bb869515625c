package prose

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"python train.py":       "python train.py",
		"a\nb\tc\rd":            "a b c d",
		"\x1b[31mred\x1b[0m":    "[31mred[0m",
		"\x1b]0;title\x07x":     "]0;titlex",
		"c1 \u009b2J end":       "c1 2J end",
		"bad \xff\xfe\xc3 utf8": "bad  utf8",
		"evil\u202egpj.exe":     "evilgpj.exe",
		"\u2066iso\u2069\u200f": "iso",
		"線 Grüße наука":         "線 Grüße наука",
		"line\u2028sep\u0085x":  "line sep x",
		"nul\x00del\x7f":        "nuldel",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2J\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) || Clean(got) != got {
			t.Errorf("Clean(%q) = %q: not valid, or not stable", s, got)
		}
		for _, r := range got {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				t.Errorf("Clean(%q) keeps the control character %U", s, r)
			}
		}
	})
}

func TestBrief(t *testing.T) {
	for in, want := range map[string]string{
		"NVIDIA L4":              "NVIDIA L4",
		"a\x1bb":                 "ab",
		strings.Repeat("é", 60):  strings.Repeat("é", 60),
		strings.Repeat("é", 300): strings.Repeat("é", 59) + "…",
	} {
		if got := Brief(in); got != want {
			t.Errorf("Brief(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for noun, want := range map[string]string{"file": "0 files, 1 file, 2 files", "process": "0 processes, 1 process, 2 processes", "NVSwitch": "0 NVSwitches, 1 NVSwitch, 2 NVSwitches"} {
		if got := CountNoun(0, noun) + ", " + CountNoun(1, noun) + ", " + CountNoun(2, noun); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, parts := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := JoinWords(parts, "or"); got != want {
			t.Errorf("%v: %q, want %q", parts, got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-1": {1, 0}, "0-2": {0, 1, 2}, "0-3, 6": {6, 0, 1, 2, 3, 3}, "1, 3-5, 7-8": {1, 3, 4, 5, 7, 8}} {
		if got := Ranges(numbers, ", "); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}
