package service

import (
	"strings"
	"testing"
)

func TestFill(t *testing.T) {
	at := terms{Ordinal: 2, Replicas: 4, Service: "node", Project: "exo"}
	for text, want := range map[string]string{
		"plain {x}":                                    "plain {x}",
		"{{.Project}}/{{.Service}}-{{.Ordinal}}":       "exo/node-2",
		"{{add 8001 .Ordinal}}":                        "8003",
		"{{add 8001 .Ordinal .Replicas}}":              "8007",
		`{{printf "%03d" .Ordinal}}`:                   "002",
		"{{if eq .Ordinal 0}}head{{else}}tail{{end}}":  "tail",
		"{{/* nothing */}}":                            "",
		"{{$n := add .Ordinal 1}}{{$n}} {{$.Service}}": "3 node",
	} {
		if got, err := fillTemplate(text, at); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"{{.Ordnal}}":                               "unknown name .Ordnal in a template; did you mean .Ordinal?",
		"{{if false}}{{.ordinal}}{{end}}":           "did you mean .Ordinal?",
		"{{$.Servise}}":                             "did you mean .Service?",
		"{{.Port}}":                                 "unknown name .Port in a template; there are .Ordinal, .Replicas, .Service, .Project",
		"{{.Service.Name}}":                         "unknown name .Service.Name",
		"{{if}}":                                    "cannot be filled in: missing value for if",
		"{{.Ordinal":                                "cannot be filled in: unclosed action",
		"{{ad 1 2}}":                                `cannot be filled in: function "ad" not defined`,
		"{{add .Service 1}}":                        "cannot be filled in: <.Service>: wrong type",
		"{{range 1000000000}}{{end}}":               "{{range}} is not understood in a template; {{if}} is",
		"{{with .Service}}{{.}}{{end}}":             "{{with}} is not understood",
		`{{define "x"}}y{{end}}`:                    "{{define}} and {{block}} are not understood",
		`{{template "x"}}`:                          "{{template}} is not understood",
		strings.Repeat(`{{printf "%60000d" 1}}`, 3): "longer than 128 KiB",
	} {
		if got, err := fillTemplate(text, at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %.40q, %v; want %s", text, got, err, want)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"python  serve.py\n --port 1":  "python|serve.py|--port|1",
		`a 'b "c' "d 'e" f\ g`:         `a|b "c|d 'e|f g`,
		`a"b"'c'd ''`:                  "abcd|",
		`"\$x \a \" \\" '\$x'`:         `$x \a " \|\$x`,
		"a \\\n b":                     "a|b",
		"a\\\nb \"c\\\nd\"":            "ab|cd",
		"sh -c 'exit $?' 5$ $ $5 a#b":  "sh|-c|exit $?|5$|$|$5|a#b",
		"x --filter=*.txt A=1 {a,b} ~": "",
		"x y~ é=ü":                     "x|y~|é=ü",
		`x \$HOME \| \~`:               "x|$HOME|||~",
	} {
		got, err := splitWords(text)
		if strings.Join(got, "|") != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                     "the command is empty",
		" \n":                  "the command is empty",
		"a 'b":                 "a ' in the command is not closed",
		`a "b`:                 `a " in the command is not closed`,
		"a > log":              "> is for a shell, and none is started; write command: [sh, -c, '…'] for one, or > in quotes",
		"a >> log":             ">> is for a shell",
		"a && b":               "&& is for a shell",
		"a | b":                "| is for a shell",
		"a $HOME/x":            "$HOME/x is for a shell",
		`a "b ${HOME} c"`:      "${HOME} is for a shell",
		"a `b`":                "` is for a shell",
		"a http://x?a=1&b=2":   "& is for a shell",
		"~/bin/a":              "~/bin/a is for a shell",
		"a # b":                "# is for a shell",
		"CUDA_X=1 python a.py": "the command begins with a variable; write CUDA_X under env",
	} {
		if got, err := splitWords(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want %s", text, got, err, want)
		}
	}
}

// FuzzWords: no input panics, and the words that are quoted again are read as the same words.
func FuzzWords(f *testing.F) {
	f.Add("a 'b c' \"d\\\"e\" f\\ g")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := splitWords(text)
		if err != nil {
			return
		}
		var again []string
		for _, w := range first {
			again = append(again, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		second, err := splitWords(strings.Join(again, " "))
		if err != nil || strings.Join(second, "\x00") != strings.Join(first, "\x00") || len(first) != len(second) {
			t.Errorf("%q is %q, and quoted again %q, %v", text, first, second, err)
		}
	})
}
