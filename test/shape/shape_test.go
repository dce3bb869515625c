package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exampleModule has a package whose file a uses three definitions of b, and b one of a; another package uses its struct.
var exampleModule = map[string]string{
	"go.mod": "module example\n\ngo 1.24\n",
	"internal/p/a.go": "// Package p says who stands where.\npackage p\n\n" +
		"func read() int { b := Box{}; b.open(); return b.Size + helper[int]() }\n",
	"internal/p/b.go": "package p\n\n// Box looks at once at nobody.\ntype Box struct{ Size, Rest int }\n\n" +
		"func (b Box) open() { _ = read }\n\nfunc (b Box) read() string { return \"who goes on, and who doesn't\" }\n\n" +
		"func helper[T any]() (zero T) { return }\n",
	"internal/p/p_test.go": "package p\n\nfunc read2() { read() }\n",
	"test/t/t.go":          "package t\n\nfunc read() {}\n",
	"q/q.go":               "package q\n\nimport \"example/internal/p\"\n\nfunc read(b p.Box) int { return b.Size }\n",
}

func writeExample(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a test
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func loadExample(t *testing.T) []*pkg {
	t.Helper()
	dir := t.TempDir()
	writeExample(t, dir, exampleModule)
	packages, err := loadPackages(dir)
	if err != nil || len(packages) != 2 {
		t.Fatalf("%d packages, %v", len(packages), err)
	}
	return packages
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	printReport(&out, loadExample(t))
	got := strings.Fields(out.String())
	for _, want := range []string{
		"internal/p 2 14 5 1 20 % 2 1 50 %", // Box, Box.open, Box.Size and helper; back only read
		"q 1 5 0 0 0 0",
		"all 3 19 5 1 20 % 2 1 50 %",
		"internal/p.Box 2 2 2 2",
		"read 3 p 2, q 1",
		"who/whoever/whose/whom 8333 33333",
		"somebody/nobody/everybody/anybody 8333 0",
		"at once 8333 0",
		"goes on 0 16667",
		"words in all 12 6",
	} {
		if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+want+" ") {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}

// TestOrder: a ring of four files has one use that runs backwards, whatever order they came in.
func TestOrder(t *testing.T) {
	ring := [][]int{{0, 0, 3, 0}, {3, 0, 0, 0}, {0, 0, 0, 3}, {0, 1, 0, 0}}
	if at, backwards := orderFiles(ring); backwards != 1 || at[0] != 1 || at[3] != 3 {
		t.Errorf("%v with %d backwards", at, backwards)
	}
	if at, backwards := orderFiles(nil); len(at) != 0 || backwards != 0 {
		t.Errorf("%v with %d backwards", at, backwards)
	}
}
