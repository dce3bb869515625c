package seecmd

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/experiment"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

// TestComparedView: numbers have no exponents and stand below each other; a narrow terminal has all ratios.
func TestComparedView(t *testing.T) {
	a := &compareAnswer{Complete: true, Arms: []experiment.Summary{{Arm: experiment.Alone}, {Arm: experiment.Shares, Use: experiment.Use{Energy: new(29412.0), Clock: new(1500.0)}}}}
	add := func(command, name string, metric bool, median float64) {
		a.Quantities = append(a.Quantities,
			experiment.Quantity{Command: command, Name: name, Metric: metric, Arm: experiment.Alone, Runs: 5, Median: median, Lowest: median / 2, Highest: median * 2},
			experiment.Quantity{Command: command, Name: name, Metric: metric, Arm: experiment.Shares, Runs: 5, Median: median, Lowest: median / 2, Highest: median * 2, Ratio: &experiment.Ratio{Ratio: 0.004, Low: 0.0039, High: 0.0041}})
	}
	add("A", "seconds", false, 1234)
	add("A", "ips", true, 123456789)
	add(experiment.Everything, "energy_joules", false, 29412)
	show := func(width int) string {
		var out strings.Builder
		console.Draw(&out, console.Term{Width: width, UTF8: true}, func(page *console.Page) { comparedView(page, a) })
		return out.String()
	}
	for _, width := range []int{0, 40, 60, 100} {
		golden.Compare(t, fmt.Sprintf("compare-%d", width), show(width))
	}
	for width := 1; width < 120; width++ {
		text := show(width)
		if n := strings.Count(text, "0.0040 (0.0039 to 0.0041)"); width >= 40 && n != 3 {
			t.Errorf("width %d: %d of 3 ratios:\n%s", width, n, text)
		}
		for line := range strings.Lines(text) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Fatalf("width %d: %d cells: %q", width, n, line)
			}
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.001: "0.001", 0.00123456: "0.00123", 1.65: "1.65", 2: "2", 9.999: "10", 100: "100", 1234.5: "1234", 29412: "29412", 999999999: "999999999", 1e9: "1e+09", -1234567: "-1234567", 1e-5: "1e-05"} {
		if got := roundDigits(v, 3); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
