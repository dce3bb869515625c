package unit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestEntries(t *testing.T) {
	src := "\ufeff[Unit]\nDescription=a=b\n# A=1\n[Service]\n ExecStart = -/bin/x \\\n; remark\n  --y \\\n--z\r\nno equals\nExecStart=\n[X\n=\nB=1\\"
	src += "\n\n[Service]\rC=a\\\\\nD=1\x00E=\\\n2\n\r\nF=\xff\nG\\\n=\\\\\\\n3\n[Unit] \n\ufeffH=4\n\tI = 5 \\"
	want := []Entry{{"Unit", "Description", "a=b"}, {"Service", "ExecStart", "-/bin/x    --y  --z"}, {"Service", "ExecStart", ""}, {"Service", "B", "1"},
		{"Service", "C", `a\\`}, {"Service", "D", "1"}, {"Service", "E", "2"}, {"Service", "G", `\\ 3`}, {"Unit", "H", "4"}, {"Unit", "I", "5"}}
	if got := Entries([]byte(src)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestCommands(t *testing.T) {
	for value, want := range map[string]string{
		`/bin/a b`:                       `"" /bin/a {/bin/a b}`,
		`-+/bin/a "b ;" \; $C %i`:        `"-+" /bin/a {/bin/a "b ;" \; $C %i}`,
		`/bin/a b ; -!!/bin/c	'd'`:       `"" /bin/a {/bin/a b}; "-!!" /bin/c {/bin/c	'd'}`,
		`"-/opt/a b/c" d`:                `"-" /opt/a b/c {"/opt/a b/c" d}`,
		`; /bin/a ;`:                     `"" /bin/a {/bin/a}`,
		`@/bin/a a`:                      `"@" /bin/a {/bin/a a}`,
		``:                               ``,
		`/bin/a "b`:                      `error: the quotes of "/bin/a \"b" do not close`,
		`"\x2d/bin/a"`:                   `error: the characters - before the program are written in a way that is not understood`,
		`:/bin/a $B`:                     `":" /bin/a {/bin/a $B}`,
		`/usr/bin/sh -c "a; b" ; /bin/c`: `"" /usr/bin/sh {/usr/bin/sh -c "a; b"}; "" /bin/c {/bin/c}`,
	} {
		commands, err := SplitCommands(value)
		var shown []string
		for _, c := range commands {
			shown = append(shown, fmt.Sprintf("%q %s {%s}", c.Prefix, c.Program, c.Line))
		}
		got := strings.Join(shown, "; ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", value, got, want)
		}
	}
}

// TestWord: what is written is read as it was, by the reader of units, as one word among others.
func TestWord(t *testing.T) {
	const some = "ab z\"'\\$%;{}()\t\n\x01\x7f\xff-é\U0001f600@:=~#"
	runes := []rune(some)
	for range 20000 {
		var words []string
		for range 1 + rand.IntN(4) {
			var b strings.Builder
			for range rand.IntN(8) {
				b.WriteRune(runes[rand.IntN(len(runes))])
			}
			words = append(words, b.String())
		}
		round(t, words)
	}
	round(t, []string{"\xff", ";", "$$", "%%", "", `\`, "-x"})
}

func round(t *testing.T, words []string) {
	t.Helper()
	line := "/bin/x"
	for _, w := range words {
		line += " " + QuoteWord(w, false)
	}
	f, err := ReadSteps("a.service", []byte("[Service]\nExecStart="+line+"\n"))
	if err != nil || len(f.Steps) == 0 || len(f.Steps[0].Words) != len(words)+1 {
		t.Fatalf("%q is written %s and read %+v %v", words, line, f.Steps, err)
	}
	for i, w := range f.Steps[0].Words[1:] {
		if got := strings.ReplaceAll(w.Text, "%%", "%"); got != words[i] || hasSpecifier(w.Text) {
			t.Fatalf("%q is written %s and read %q", words[i], line, w.Text)
		}
	}
	commands, err := SplitCommands(line)
	if err != nil || len(commands) != 1 || commands[0].Line != line {
		t.Fatalf("%s: %+v %v", line, commands, err)
	}
}

func FuzzCommands(f *testing.F) {
	f.Add(`-/bin/a "b" ; @c \; 'd' "-e"`, "$x")
	f.Fuzz(func(t *testing.T, value, word string) {
		commands, err := SplitCommands(value)
		if err == nil {
			for _, c := range commands {
				again, err := SplitCommands(c.Prefix + c.Line)
				if err != nil || len(again) != 1 || again[0].Program != c.Program {
					t.Fatalf("%q: %+v, and again %+v %v", value, c, again, err)
				}
			}
		}
		if !strings.Contains(word, "\x00") {
			round(t, []string{word})
		}
	})
}
