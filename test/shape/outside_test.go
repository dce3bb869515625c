package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestOutsideOfThis: how the code of this project reads from outside stays within what was reached. Each limit lies near
// the worst of restic, canonical/pebble, cli/cli and tailscale, which the same program measured.
func TestOutsideOfThis(t *testing.T) {
	t.Parallel()
	view, err := measureOutside("../..")
	if err != nil {
		t.Fatal(err)
	}

	limits := map[string]float64{
		"function names of one word, %":      40,
		"one-word participles, %":            1.5,
		"names in four or more packages":     45,
		"trailing comments, %":               1,
		"if with an effect in its header, %": 1,
		"if err == nil, %":                   1.8,
	}
	for _, row := range view.rows() {
		if most, ok := limits[row.name]; ok && row.value > most {
			t.Errorf("%s: %.1f, at most %.1f", row.name, row.value, most)
		}
		if row.name == "blank lines, %" && row.value < 12 {
			t.Errorf("%s: %.1f, at least 12", row.name, row.value)
		}
	}
}

// TestOutside: each measure counts what it says.
func TestOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "package p\n\n// seated says so.\nfunc seated() error {\n\terr := f() // why\n\tif err = f(); err == nil {\n\t\treturn nil\n\t}\n\n\treturn err\n}\n\nfunc openFile() {}\n"
	writeExample(t, dir, map[string]string{
		"a/a.go": text, "b/b.go": text, "c/c.go": text, "d/d.go": text,
		"d/d_test.go": text, "test/t.go": text, "d/testdata/x.go": "no Go",
	})
	var out bytes.Buffer
	if err := printOutside(&out, []string{dir, dir}); err != nil {
		t.Fatal(err)
	}
	got := " " + strings.Join(strings.Fields(out.String()), " ") + " "
	for _, want := range []string{
		"one word, % 50.0 50.0", "participles, % 50.0 50.0", "four or more packages 2.0 2.0", "whole-line comments, % 7.7 7.7", "trailing comments, % 7.7 7.7",
		"blank lines, % 23.1 23.1", "in its header, % 100.0 100.0", "err == nil, % 100.0 100.0", "product lines 52.0 52.0",
	} {
		if !strings.Contains(got, " "+want+" ") {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}
