package console

import (
	"fmt"
	"os"
	"testing"

	"gpuard/internal/core/visible"
)

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "🚀": 2, "e\u0301": 1, "━╸┈…": 4, "한글": 4, "ｆ": 2, "é": 1, "א": 1} {
		if got := CellWidth(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{{"abcdef", 4, "abc…"}, {"abc", 3, "abc"}, {"日本語", 4, "日…"}, {"日本語", 1, "…"}, {"abc", 0, ""}, {"ab  cdef", 5, "ab…"}} {
		if got := Cut(tt.text, tt.width, "…"); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
	if got := Pad("日本語", 4, true, "…"); got != " 日…" {
		t.Errorf("pad fills what a wide character leaves: %q", got)
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  []string
	}{
		{"one two three", 7, []string{"one two", "three"}},
		{"one  two", 0, []string{"one  two"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"日本 語", 1, []string{""}}, // nothing fits, nothing loops
		{"", 5, []string{""}},
	}
	for _, tt := range tests {
		if got := Wrap(tt.text, tt.width); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := DescribeTerminal(file, visible.Env{"LANG=de_DE.UTF-8", "TERM=xterm", "COLUMNS=20"})
	if want := (Term{Width: 20, UTF8: true}); got != want {
		t.Errorf("a file is %+v, want %+v", got, want)
	}
	if got := DescribeTerminal(file, nil); got.Width != 80 || got.TTY {
		t.Errorf("a file is 80 columns wide where COLUMNS is not set, and no terminal: %+v", got)
	}
}
