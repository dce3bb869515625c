package dotenv

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/service"
)

func TestRead(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"A=1\nB = 2 \nexport C=3", `[{A 1} {B 2} {C 3}]`},
		{"# no\n\n  # no\nA=1 # note\nB=1#2\nC=#\nD=\n", `[{A 1} {B 1#2} {C } {D }]`},
		{"A='x $Y \\n #'\nB=\"x\\ty\\\\\\\"\\$Z # \" # note\nC=a'b\n", `[{A x $Y \n #} {B x	y\"$Z # } {C a'b}]`},
		{"A=\"one  \n two\"\nB='\n'\n", "[{A one  \n two} {B \n}]"},
		{"\xef\xbb\xbfA=1\r\nB=2\r\n", `[{A 1} {B 2}]`},
		{"A=a=b\nA=c\nB=5$\nC=$5\n", `[{A a=b} {A c} {B 5$} {C $5}]`},
		{"", `[]`},
	} {
		got, err := ReadVariables([]byte(c.src), ".env")
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q is %v, %v; want %s", c.src, got, err, c.want)
		}
	}
	for src, want := range map[string]string{
		"A=1\n\nB\n":         ".env:3: B has no value; write B=VALUE, or leave it out",
		"A=1\n1=2":           ".env:2: this is not a variable; write NAME=VALUE",
		"A: 1":               ".env:1: A has no value",
		"A='x\ny":            ".env:1: the ' is not closed",
		"A=\"x\ny\"z":        `.env:2: there is something after the closing "`,
		"A=$HOME/x":          ".env:1: $HOME is not expanded here",
		"A=\"x\n${B:-1}\"":   ".env:2: ${B:-1} is not expanded here; write its value, or \\$",
		"A=1\x00":            "cannot read .env: it is not a text file",
		"\xff\xfeA\x00=\x00": "cannot read .env: it is not a text file",
	} {
		if got, err := ReadVariables([]byte(src), ".env"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v; want %s", src, got, err, want)
		}
	}
}

// FuzzRead: no input panics, and what is read and written in quotes is read again.
func FuzzRead(f *testing.F) {
	f.Add("A=1\nexport B='x'\nC=\"y\\n\nz\" # no\n")
	f.Fuzz(func(t *testing.T, src string) {
		got, err := ReadVariables([]byte(src), ".env")
		if err != nil {
			return
		}
		var again strings.Builder
		for _, v := range got {
			again.WriteString(v.Name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\r", `\r`).Replace(v.Value) + "\"\n")
		}
		var want []service.Pair
		want = append(want, got...)
		if got, err = ReadVariables([]byte(again.String()), ".env"); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: written again it is %v, %v, want %v", src, got, err, want)
		}
	})
}
