package cli

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/trend"
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
	show := func(term Term) string {
		var out strings.Builder
		useView(&out, use, term)
		return out.String()
	}
	for _, width := range []int{0, 50, 80} {
		golden(t, fmt.Sprintf("use-%d", width), show(Term{Width: width, UTF8: true}))
	}
	golden(t, "use-ascii", show(Term{Width: 80}))
	golden(t, "use-color", show(Term{Width: 80, UTF8: true, Color: true}))
	for width := 1; width < 200; width++ {
		for line := range strings.Lines(show(Term{Width: width, UTF8: true})) {
			if n := cells(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: %d cells: %q", width, n, line)
			}
		}
	}
	for _, r := range show(Term{Width: 80}) {
		if r > '~' {
			t.Fatalf("%q on a terminal without UTF-8", r)
		}
	}
	if strings.Contains(show(Term{Width: 80, UTF8: true}), "\x1b") {
		t.Error("an escape sequence of a name, or a colour that was not asked for")
	}
	var none strings.Builder
	useView(&none, nil, Term{Width: 80})
	if none.String() != "no lease has ended in that time\n" {
		t.Errorf("%q", none.String())
	}
}
