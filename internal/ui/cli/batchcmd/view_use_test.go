package batchcmd

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/trend"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

// TestUseView: the bars are as wide as the terminal, of what it can show.
func TestUseView(t *testing.T) {
	use := []trend.Use{
		{Name: "GPU 0 (GPU-83cb4fa5-d2e3-39fe-2142-d87c4d17b3ff)", Jobs: 12, Unseen: 1, Granted: 240.5, Used: 120.25, Idle: 60},
		{Name: "ann\x1b[2J", Jobs: 3, Granted: 24, Used: 24, Peak: 18<<30 + 3<<28},
		{Name: "训练", Jobs: 1, Granted: 12, Idle: 12},
		{Name: "bob", Jobs: 1, Granted: 0.01},
		{Name: "carl", Jobs: 1, Unseen: 1},
	}
	show := func(term console.Term) string {
		var out strings.Builder
		console.Draw(&out, term, func(page *console.Page) { useView(page, use) })
		return out.String()
	}
	for _, width := range []int{0, 50, 80} {
		golden.Compare(t, fmt.Sprintf("use-%d", width), show(console.Term{Width: width, UTF8: true}))
	}
	golden.Compare(t, "use-ascii", show(console.Term{Width: 80}))
	golden.Compare(t, "use-color", show(console.Term{Width: 80, UTF8: true, Color: true}))
	for width := 1; width < 200; width++ {
		for line := range strings.Lines(show(console.Term{Width: width, UTF8: true})) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: %d cells: %q", width, n, line)
			}
		}
	}
	for _, r := range show(console.Term{Width: 80}) {
		if r > '~' {
			t.Fatalf("%q on a terminal without UTF-8", r)
		}
	}
	if strings.Contains(show(console.Term{Width: 80, UTF8: true}), "\x1b") {
		t.Error("an escape sequence of a name, or a colour that was not asked for")
	}
	var none strings.Builder
	console.Draw(&none, console.Term{Width: 80}, func(page *console.Page) { useView(page, nil) })
	if none.String() != "no lease has ended in that time\n" {
		t.Errorf("%q", none.String())
	}
}
