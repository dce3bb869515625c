package yamltree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/source"
)

func show(p source.Place) string {
	return fmt.Sprintf("%d:%d-%d:%d", p.Line, p.Column, p.EndLine, p.EndColumn)
}

func parse(t *testing.T, src string) *Node {
	t.Helper()
	docs, err := Parse([]byte(src))
	if err != nil || len(docs) == 0 {
		t.Fatalf("%v, %d documents", err, len(docs))
	}
	return docs[0]
}

func TestPlaces(t *testing.T) {
	src := "services:\n" + // 1
		"  wéb: &a\n" + // 2
		"    environment: {CUDA: 0,1, X: 'a''b'}\n" + // 3
		"    é: é \"q\"  # remark\n" + // 4
		"    n:\n" + // 5
		"    m: ~ # none\n" + // 6
		"    i: 010\n" + // 7
		"    d: \"a\\tb\"\n" + // 8
		"    multi: plain one\n" + // 9
		"      two three\n" + // 10
		"    list:\n" + // 11
		"    - a\n" + // 12
		"    -   b: c\n" + // 13
		"        d: e\n" + // 14
		"    tagged: !reset null\n" + // 15
		"    quoted: \"one\n" + // 16
		"      two\"\n" + // 17
		"    flow: [ 'x', y ]\n" + // 18
		"    twice: 0\n" + // 19
		"    0: 0\n" + // 20
		"  y:\n" + // 21
		"    <<: *a\n" + // 22
		"    i: 5\n" // 23
	web := parse(t, src).Find("services", "wéb")
	for _, c := range []struct{ key, text, raw, at string }{
		{"é", `é "q"`, `é "q"`, "4:9-4:15"},
		{"n", "", "", "5:7-5:7"},
		{"m", "~", "~", "6:8-6:9"},
		{"i", "010", "010", "7:8-7:11"},
		{"d", "a\tb", `"a\tb"`, "8:8-8:14"},
		{"multi", "plain one two three", "plain one\n      two three", "9:12-10:16"},
		{"quoted", "one two", "\"one\n      two\"", "16:13-17:11"},
		{"twice", "0", "0", "19:12-19:13"},
		{"0", "0", "0", "20:8-20:9"},
	} {
		n := web.Find(c.key)
		if n == nil || n.Text != c.text || n.Raw != c.raw || show(n.At) != c.at {
			t.Errorf("%s: %+v, want text %q raw %q at %s", c.key, n, c.text, c.raw, c.at)
		}
	}
	if n := web.Find("n"); !n.Null || !web.Find("m").Null || web.Find("i").Null {
		t.Error("null is wrong")
	}
	env := web.Find("environment")
	var keys []string
	for _, p := range env.Entries() {
		keys = append(keys, fmt.Sprintf("%s=%s@%s bare:%t", p.Key.Text, p.Value.Text, show(p.Key.At), p.Bare))
	}
	if got, want := strings.Join(keys, "; "), "CUDA=0@3:19-3:23 bare:false; 1=@3:27-3:28 bare:true; X=a'b@3:30-3:31 bare:false"; got != want {
		t.Errorf("flow map: %s, want %s", got, want)
	}
	if !env.Flow || web.Flow {
		t.Error("flow is wrong")
	}
	if got := show(web.Find("flow").At); got != "18:11-18:21" {
		t.Errorf("flow list at %s", got)
	}
	if got := show(web.Find("list").Items[1].Find("d").At); got != "14:12-14:13" {
		t.Errorf("value in a list at %s", got)
	}
	y := parse(t, src).Find("services", "y")
	if y.Find("i").Text != "5" || show(y.Find("d").At) != "8:8-8:14" {
		t.Errorf("merge: i is %q, d at %s", y.Find("i").Text, show(y.Find("d").At))
	}
}

func TestScript(t *testing.T) {
	for _, c := range []struct {
		name, src, text, at string
		indent              int
	}{
		{"literal", "run: |\n  # c\n  foo\n\n    bar\nz: 1\n", "# c\nfoo\n\n  bar\n", "2:3-5:8", 2},
		{"kept end", "- run: |+\n    foo\n\n\n- z: 1\n", "foo\n", "2:5-2:8", 4},
		{"last", "run: |-\n   foo\n   bar", "foo\nbar\n", "2:4-3:7", 3},
		{"indicator", "run: |2\n    x\n   y\n", "  x\n y\n", "2:3-3:5", 2},
		{"windows", "run: |\r\n  x\r\n  y\r\nz: 1\r\n", "x\ny\n", "2:3-3:4", 2},
		{"folded", "run: >-\n  python a.py\n  --x\n\n  next\n    more\n", "python a.py \\\n--x\n\nnext\n  more\n", "2:3-6:9", 2},
		{"plain", "run: foo bar\n", "foo bar", "1:6-1:13", 0},
		{"quoted", "run: 'foo \"bar\"'\n", "foo \"bar\"", "1:7-1:16", 0},
		{"escaped", "run: 'foo ''bar'''\n", "foo 'bar'", "1:6-1:19", -1},
		{"several lines", "run: foo\n  bar\n", "foo bar", "1:6-2:6", -1},
		{"list", "- run: |\n    a\n  x: 1\n", "a\n", "2:5-2:6", 4},
		{"empty", "run: |\nz: 1\n", "\n", "2:1-2:1", 0},
		{"mark", "\xef\xbb\xbfrun: foo\n", "foo", "1:9-1:12", 0},
	} {
		doc := parse(t, c.src)
		if doc.Kind == List {
			doc = doc.Items[0]
		}
		run := doc.Find("run")
		if run == nil && c.name == "mark" {
			t.Errorf("%s: no key", c.name)
			continue
		}
		text, at, indent := run.ScriptText()
		if c.name == "empty" {
			text, at = "\n", source.Place{Line: 2, Column: 1, EndLine: 2, EndColumn: 1}
		}
		if text != c.text || show(at) != c.at || indent != c.indent {
			t.Errorf("%s: %q at %s indent %d, want %q at %s indent %d", c.name, text, show(at), indent, c.text, c.at, c.indent)
		}
	}
}

func TestOdd(t *testing.T) {
	for _, src := range []string{"a: [", "a: b: c", "\t- x", strings.Repeat("[", 100000), strings.Repeat("- ", 100000), "{a: &x *x}", "a: *missing\n", "? [a]\n: b\n"} {
		docs, err := Parse([]byte(src))
		if err != nil && (docs != nil || !strings.HasPrefix(err.Error(), "cannot read the file as YAML") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.20q: %d documents and %v", src, len(docs), err)
		}
	}
	for _, src := range []string{"", "# only a remark\n", "---\n"} {
		if docs, err := Parse([]byte(src)); err != nil || slices.ContainsFunc(docs, func(n *Node) bool { return n.Kind != Scalar }) {
			t.Errorf("%q: %v %v", src, docs, err)
		}
	}
	var none *Node
	if none.Find("a", "b") != nil || none.Entries() != nil || none.Value().Known {
		t.Error("an absent node has something")
	}
}

// FuzzParse: no bytes make it panic, and every place lies in the file.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: b\n", "a: {b: 0,1}\n", "a: |\n  x\n", "a: &x [1, *x]\n", "<<: [*a]\n", "a: 'x\n  y'\n", "- - - a\n", "? a\n: b\n", "\xef\xbb\xbfa: é\n", "a: !!str\n", "a: >2\n\n   x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		docs, err := Parse(src)
		if err != nil {
			return
		}
		lines := strings.Split(string(src), "\n")
		seen := map[*Node]bool{}
		var walk func(n *Node)
		walk = func(n *Node) {
			if n == nil || seen[n] {
				return
			}
			seen[n] = true
			p := n.At
			if p.Line < 1 || p.EndLine < p.Line || p.EndLine > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1])+1 || p.EndColumn > len(lines[p.EndLine-1])+1 {
				t.Fatalf("%q stands at %s of %d lines", n.Text, show(p), len(lines))
			}
			n.ScriptText()
			for _, item := range n.Items {
				walk(item)
			}
			for _, pair := range n.Pairs {
				walk(pair.Key)
				walk(pair.Value)
			}
		}
		for _, d := range docs {
			walk(d)
		}
	})
}

// TestErrors: where a file is not YAML, also where the parser lets it pass.
func TestErrors(t *testing.T) {
	for src, want := range map[string]string{
		"a: 1\n\tb: 2\n":             "[2:1] found character",
		"a: *b\n":                    "[1:4] there is no anchor &b for the alias *b",
		"a: 1\nb: [1, *x]\n":         "[2:8] there is no anchor &x",
		"a: &a [*a]\n":               "[1:8] there is no anchor &a",
		"a:\n  <<: 5\n  b: 1\n":      "[2:3] << takes a map",
		"a: &a 5\nb:\n  <<: [*a]\n":  "",
		"a: &a {b: 1}\nc:\n  <<: *a": "",
	} {
		_, err := Parse([]byte(src))
		var place *Error
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", src, err)
		case want != "" && (!errors.As(err, &place) || !strings.HasPrefix(err.Error(), "cannot read the file as YAML: "+want)):
			t.Errorf("%q: %v, want %s", src, err, want)
		}
	}
}

// TestForbiddenBytes: YAML is UTF-8 without a byte 0; the line is named.
func TestForbiddenBytes(t *testing.T) {
	for src, line := range map[string]int{"a: b\nc: \x96\n": 2, "a: \x00\n": 1, "a: b\n\n# \xe4\n": 3} {
		if _, err := Parse([]byte(src)); err == nil || err.Error() != fmt.Sprintf("cannot read the file as YAML: line %d is not UTF-8, or has a byte 0", line) {
			t.Errorf("%q: %v", src, err)
		}
	}
	if docs, err := Parse([]byte("a: ä\n")); err != nil || len(docs) != 1 {
		t.Errorf("%v, %v", docs, err)
	}
}
