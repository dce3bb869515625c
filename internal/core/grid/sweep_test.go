package grid

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"gpuard/internal/core/batchlog"
	"reflect"
	"strings"
	"testing"
)

func TestProduct(t *testing.T) {
	for over, want := range map[string]string{
		"seed=1..5":             "1|2|3|4|5",
		"seed=5..1":             "5|4|3|2|1",
		"seed=1..10:3":          "1|4|7|10",
		"seed=10..1:4":          "10|6|2",
		"lr=0..1:0.25":          "0.00|0.25|0.50|0.75|1.00",
		"lr=0..0.3:0.1":         "0.0|0.1|0.2|0.3",
		"lr=-1..1":              "-1|0|1",
		"lr=0.5..2":             "0.5|1.5",
		"i=08..11":              "08|09|10|11",
		"i=-01..01":             "-01|000|001",
		"lr=0.1,0.01":           "0.1|0.01",
		`name="a,b",c`:          "a,b|c",
		`name="say ""hi""",c=d`: `say "hi"|c=d`,
		"mixed=1..2,x,7":        "1|2|x|7",
		"file=../a,../b":        "../a|../b",
		"v=1.2.3,v1..2":         "1.2.3|v1..2",
		"same=1,1":              "1|1",
		"größe=klein":           "klein",
		"n=100000000000000000..100000000000000001": "100000000000000000|100000000000000001",
	} {
		g, err := Product([]string{over})
		if err != nil || strings.Join(g.Axes[0], "|") != want {
			t.Errorf("--over %s is %q, %v", over, g.Axes, err)
		}
	}
	g, err := Product([]string{"a=1,2", "b=x,y,z"})
	var all []string
	for i := range g.Len() {
		all = append(all, strings.Join(g.ValuesOf(i), ""))
	}
	if got := strings.Join(all, " "); err != nil || got != "1x 1y 1z 2x 2y 2z" {
		t.Errorf("the product is %s, %v", got, err)
	}
}

func TestProductRefuses(t *testing.T) {
	for _, c := range []struct{ over, says string }{
		{"lr", "write a name and its values"},
		{"lr=", "it has no values"},
		{"lr=1,,2", "a value is empty"},
		{"=1", "has no name"},
		{"learning-rate=1", "letters, digits and _"},
		{"2x=1", "letters, digits and _"},
		{"Ordinal=1", "that is the number of the run"},
		{"lr=1..x", ""},
		{"lr=1..2:0", "has the step 0"},
		{"lr=1..2:-1", "begins with its larger end"},
		{"lr=1e3..2e3", "is no range"},
		{"lr=1..2:", "is no range"},
		{"lr=1..2..3", "is no range"},
		{"lr=1..1000001", "has 1000001 values"},
		{"lr=0..1:0.0000000000000000000001", "has 10000000000000000000001 values"},
		{`lr="a`, "double quotes"},
		{`lr=a"b`, "double quotes"},
		{"lr=a\nb", "more than one line"},
	} {
		_, err := Product([]string{c.over})
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "cannot ")) {
			t.Errorf("--over %s: %v", c.over, err)
		}
	}
	if _, err := Product([]string{"a=1,2", "a=3"}); err == nil || !strings.Contains(err.Error(), "is named twice") {
		t.Errorf("a name that is there twice: %v", err)
	}
	if _, err := Product([]string{"a=1..1000", "b=1..1000", "c=1..5"}); err == nil || !strings.Contains(err.Error(), "cannot start 5000000 runs") {
		t.Errorf("too many: %v", err)
	}
	if g, err := Product([]string{"a=1..1000", "b=1..1000"}); err != nil || g.Len() != MaxRuns {
		t.Errorf("a million: %v", err)
	}
}

func TestTable(t *testing.T) {
	g, err := ReadTable([]byte("\ufefflr, note\r\n0.1,\"two\nlines, one cell\"\n\n0.2,\n"))
	want := Grid{Names: []string{"lr", "note"}, Rows: [][]string{{"0.1", "two\nlines, one cell"}, {"0.2", ""}}}
	if err != nil || !reflect.DeepEqual(g, want) {
		t.Errorf("%v, %v", g, err)
	}
	for text, says := range map[string]string{
		"": "it is empty", "lr\n": "no line after the first", "lr,lr\n1,2\n": "line 1: the parameter lr is named twice",
		"a,b\n1\n": "line 2: it has 1 values, and line 1 names 2", "a\n\"x\n": "line 2", "a b\n1\n": "line 1: a parameter cannot be called",
		"a,\n1,2\n": "has no name", "a,b\n1,2\n3,\"x\x00\"\n": "line 3, column 3: it has a NUL character", "Ordinal\n1\n": "the number of the run",
	} {
		if _, err := ReadTable([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

func TestLines(t *testing.T) {
	g, err := ReadCommands([]byte("# first\npython train.py --lr 0.1   # of it\n\n\techo 'a b' \"c \\\"d\\\" \\e\" f\\ g '' x#y 'it'\\''s'\r\n"))
	want := [][]string{{"python", "train.py", "--lr", "0.1"}, {"echo", "a b", `c "d" \e`, "f g", "", "x#y", "it's"}}
	if err != nil || !reflect.DeepEqual(g.Commands, want) {
		t.Errorf("%q, %v", g.Commands, err)
	}
	for text, says := range map[string]string{
		"": "it has no command", "a \\\x00": "line 1: it has a NUL character", "# only\n": "it has no command", "a\nb 'c\n": "line 2: the quote ' is never closed",
		"a | b": "| means something to a shell", "a $X": "$ means", "a \"$X\"": "$ means", "a > b": "> means", "a \\": `ends with \`, "'' a": "is empty",
	} {
		if _, err := ReadCommands([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

func TestCommand(t *testing.T) {
	g, err := Product([]string{"lr=0.1,a b", "seed=1..2"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCommand([]string{"train", "--lr={{.lr}}", "{{.Ordinal}}", "{{add 8001 .Ordinal}}", `{{if eq .lr "0.1"}}slow{{end}}`}, &g)
	if err != nil || !reflect.DeepEqual(c.Unused, []string{"seed"}) {
		t.Fatalf("%v, %v", c, err)
	}
	got, err := c.Words(2)
	if want := []string{"train", "--lr=a b", "2", "8003", ""}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ParseCommand([]string{"x", "{{with .seed}}{{printf \"%s\" $.lr}}{{.sed}}{{end}}"}, &g); err == nil || !strings.Contains(err.Error(), "did you mean {{.seed}}?") {
		t.Errorf("%v", err)
	}
	for text, says := range map[string]string{
		"{{.lr": "cannot read", "{{nothing .lr}}": "function \"nothing\" not defined", "{{add 1 .lr}}": "cannot make", "{{.Ordinal.x}}": "cannot make",
	} {
		if _, err := ParseCommand([]string{"x", text}, &g); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "template:") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ParseCommand([]string{"{{if eq .Ordinal 9}}x{{end}}"}, &g); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("%v", err)
	}
	if _, err := ParseCommand(nil, &g); err == nil {
		t.Error("no command was accepted")
	}
}

func TestTables(t *testing.T) {
	g, err := Product([]string{"lr=0.1,1", "exit=x"})
	if err != nil {
		t.Fatal(err)
	}
	s := batchlog.NewState(g.Len(), batchlog.Retry{})
	for _, e := range []batchlog.Event{
		{Kind: batchlog.Begin, Run: 0}, {Kind: batchlog.Start, Run: 0}, {Kind: batchlog.End, Run: 0, Seconds: 1.5, Devices: []batchlog.Device{{Index: 3, UUID: "GPU-a"}, {Index: 0, UUID: "GPU-b"}}},
		{Kind: batchlog.Begin, Run: 1}, {Kind: batchlog.Start, Run: 1}, {Kind: batchlog.End, Run: 1, Exit: -1, Signal: "SIGKILL"},
	} {
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := WriteCSV(&out, s, &g); err != nil {
		t.Fatal(err)
	}
	want := "run,lr,param_exit,state,exit,signal,starts,seconds,devices,uuids,log\n" +
		"0,0.1,x,ok,0,,1,1.500,3 0,GPU-a GPU-b,runs/0000/log\n" +
		"1,1,x,failed,,SIGKILL,1,0.000,,,runs/0001/log\n"
	if out.String() != want {
		t.Errorf("the table is\n%s", out.String())
	}
	if _, err := csv.NewReader(&out).ReadAll(); err != nil {
		t.Error(err)
	}
	out.Reset()
	if err := WriteJSON(&out, s, &g); err != nil {
		t.Fatal(err)
	}
	var read struct{ Runs []Result }
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || len(read.Runs) != 2 || read.Runs[0].Parameters["lr"] != "0.1" || read.Runs[1].Exit != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	if batchlog.RunFolder(7, 123456) != "runs/000007" || batchlog.RunFolder(7, 10000) != "runs/0007" {
		t.Error("the folders are wrong")
	}
}

// FuzzReaders: for any flag or file nothing panics, no grid is larger than a sweep, and each run has as many values as
// there are names.
func FuzzReaders(f *testing.F) {
	for _, seed := range []string{"lr=1..5", "lr=0..1:0.1,x", `a="b,c"`, "a,b\n1,2\n", "python 'a b' # c\n", "{{.a}}", "a=00..1e9", "\xff=\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		product, err1 := Product([]string{text})
		table, err2 := ReadTable([]byte(text))
		lines, err3 := ReadCommands([]byte(text))
		for i, g := range []Grid{product, table, lines} {
			if []error{err1, err2, err3}[i] != nil {
				continue
			}
			if n := g.Len(); n < 1 || n > MaxRuns || i < 2 && len(g.ValuesOf(n-1)) != len(g.Names) || i == 2 && len(g.Commands[n-1]) == 0 {
				t.Errorf("%q makes %d runs", text, n)
			}
			if _, err := ParseCommand([]string{text, text}, &g); err != nil && !strings.HasPrefix(err.Error(), "cannot ") {
				t.Error(err)
			}
		}
	})
}
