// Package golden compares what is shown with files of testdata, which -update writes again.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/ui/console"
)

// FirstDifference is the first line in which a page and what the code makes differ; "" if they are the same.
func FirstDifference(have, want string) string {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(h), len(w)) {
		var a, b string
		if i < len(h) {
			a = h[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n  page: %s\n  code: %s", i+1, a, b)
		}
	}
	return ""
}

// Update asks to write the files again.
var Update = flag.Bool("update", false, "write the golden files again")

// Compare compares with testdata/NAME.txt.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it again)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// Now is the moment of all pages that are compared.
var Now = time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)

// InventMachine is an invented machine, read at Now.
func InventMachine(t *testing.T, spec string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	m.Source, m.Taken = "nvml", Now
	return m
}

// CompareWidths compares the text at three widths, and checks that no line is wider than any other terminal.
func CompareWidths(t *testing.T, name string, show func(w *strings.Builder, term console.Term)) {
	t.Helper()
	for _, width := range []int{0, 40, 80} {
		var out strings.Builder
		show(&out, console.Term{Width: width, UTF8: true})
		Compare(t, fmt.Sprintf("%s-%d", name, width), out.String())
	}
	for width := 1; width < 150; width++ {
		var out strings.Builder
		show(&out, console.Term{Width: width})
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); console.CellWidth(line) > width || strings.ContainsAny(line, "\x1b…→") {
				t.Fatalf("%s at %d columns: %q", name, width, line)
			}
		}
	}
}
