package cli

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/ui/console"
)

// TestHarmless: colours are kept on a terminal with colours; all other control sequences are removed.
func TestHarmless(t *testing.T) {
	for _, c := range []struct{ in, color, plain string }{
		{"plain\ttext ü 🚀", "plain\ttext ü 🚀", "plain\ttext ü 🚀"},
		{"\x1b[1;31mred\x1b[0m done", "\x1b[1;31mred\x1b[0m done\x1b[0m", "red done"},
		{"\x1b[38:2::1:2:3mtrue", "\x1b[38:2::1:2:3mtrue\x1b[0m", "true"},
		{"\x1b[2J\x1b[Hcleared", "cleared", "cleared"},
		{"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink", "textlink"},
		{"\x1b[>4;2mkeys\x1b[?25l", "keys", "keys"},
		{"\x07bell \x08\x00null", "bell null", "bell null"},
		{"cut \x1b[", "cut ", "cut "},
		{"cut \x1b", "cut ", "cut "},
		{"\x1bc\x1b7reset", "reset", "reset"},
		{"bad \xff utf8", "bad  utf8", "bad  utf8"},
	} {
		if got := cleanSequences(c.in, true); got != c.color {
			t.Errorf("%q with colour: %q, want %q", c.in, got, c.color)
		}
		if got := cleanSequences(c.in, false); got != c.plain {
			t.Errorf("%q without: %q, want %q", c.in, got, c.plain)
		}
	}
}

func TestPrinter(t *testing.T) {
	var b strings.Builder
	o := Printer{Out: &b, drawn: map[string]time.Time{}, raw: true}
	o.Name("node-0")
	o.Name("web")
	for _, l := range []services.LogLine{
		{Instance: "web", Text: []byte("\x1b[1mraw\xff")}, {Instance: "node-0", Text: []byte(" 1%"), Over: true},
		{Instance: "node-0", Text: []byte(" 2%"), Over: true}, {Instance: "web", Text: []byte("50%"), Over: true}, {Instance: "node-0", Text: []byte("100%")},
	} {
		if err := o.Print(l); err != nil {
			t.Fatal(err)
		}
	}
	if want := "web    | \x1b[1mraw\xff\nnode-0 |  1%\nweb    | 50%\nnode-0 | 100%\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
	b.Reset()
	o.raw, o.term = false, console.Term{TTY: true, Width: 12, Color: true, UTF8: true}
	if err := o.Print(services.LogLine{Instance: "node-0", Text: []byte("# gpuard: 12:00: text")}); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[36mnod~ |\x1b[0m \x1b[2m# gpuard: 12:00: text\x1b[0m\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}
