package seecmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/console"
)

// comparedView writes what gpuard compare shows.
func comparedView(v *console.Page, a *compareAnswer) {
	for i := range a.Commands {
		c := &a.Commands[i]
		text := console.CommandText(c.Argv)
		if c.Service != "" {
			text = v.Text(c.Service) + ": " + text
		}
		v.WriteParagraph(console.Dim.Span(c.Command+"  "), console.Normal, text)
	}

	if !a.Complete {
		v.WriteText("interrupted: only the runs that were complete count")
	}

	writeComparison(v, a)

	for _, text := range a.Conclusion {
		v.WriteParagraph(console.Span{}, console.Normal, v.Text(text))
	}

	for _, text := range a.Warnings {
		v.WriteParagraph(console.Dim.Span("warning: "), console.Normal, v.Text(text))
	}
}

// writeComparison adds the tables, unless there is nothing to be seen in them.
func writeComparison(p *console.Page, a *compareAnswer) {
	if len(a.Quantities) == 0 {
		return
	}

	against := "against " + p.Text(string(a.Arms[0].Arm))
	rows, ratios := [][]string{{"", "runs", "median", "lowest", "highest"}}, 0
	for i := range a.Quantities {
		q := &a.Quantities[i]
		rows = append(rows, []string{"  " + p.Text(string(q.Arm)), fmt.Sprint(q.Runs), quantityText(q, q.Median), quantityText(q, q.Lowest), quantityText(q, q.Highest)})
		ratios = max(ratios, len(prose.ValueOr(q.Ratio, "", experiment.Ratio.Short)))
	}

	lines := alignRows(rows)
	ratios = max(ratios, len(against)) + 2
	if isTooNarrow(p, lines[0], ratios) {
		for i := range rows {
			rows[i] = rows[i][:3]
		}
		lines = alignRows(rows)
	}

	// The ratio has a line of its own.
	below := isTooNarrow(p, lines[0], ratios)
	for i, line := range lines {
		style, ratio := console.Dim, against
		if i > 0 {
			style, ratio = console.Normal, prose.ValueOr(a.Quantities[i-1].Ratio, "", experiment.Ratio.Short)
			quantityHead(p, a, i-1)
		}

		switch {
		case !below:
			p.Line(style.Span(line + "  " + ratio))
		case ratio != "":
			p.Line(style.Span(line))
			p.Line(style.Span("    " + ratio))
		default:
			p.Line(style.Span(line))
		}
	}

	comparedUse(p, a)
}

// isTooNarrow reports whether the terminal has no room for that much after a line.
func isTooNarrow(p *console.Page, line string, more int) bool {
	return p.Term.Width > 0 && console.CellWidth(line)+more > p.Term.Width
}

// quantityHead begins the lines of a quantity.
func quantityHead(p *console.Page, a *compareAnswer, i int) {
	q := &a.Quantities[i]
	if i == 0 || a.Quantities[i-1].Command != q.Command || a.Quantities[i-1].Name != q.Name {
		p.Line(console.Normal.Span(p.Text(quantityTitle(q))))
	}
}

// comparedUse is the table of what the GPUs did.
func comparedUse(p *console.Page, a *compareAnswer) {
	rows := [][]string{{"of the GPUs", "load", "memory", "power", "energy", "clock"}}
	for i := range a.Arms {
		u := &a.Arms[i].Use
		rows = append(rows, []string{"  " + p.Text(string(a.Arms[i].Arm)), console.PercentText(u.Load), prose.ValueOr(u.Memory, "-", gpu.Bytes.String), unitText(u.Power, "W"), unitText(u.Energy, "J"), unitText(u.Clock, "MHz")})
	}

	lines := alignRows(rows)
	for isTooNarrow(p, lines[0], 0) && len(rows[0]) > 2 {
		for i := range rows {
			rows[i] = rows[i][:len(rows[i])-1]
		}
		lines = alignRows(rows)
	}

	for i, line := range lines {
		style := console.Normal
		if i == 0 {
			style = console.Dim
		}
		p.Line(style.Span(line))
	}
}

// alignRows makes lines of rows: the first cell is on the left, the others on the right, and wider where one has to be.
func alignRows(rows [][]string) (lines []string) {
	widths := []int{18, 5, 8, 8, 8, 8}
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], console.CellWidth(text))
		}
	}
	for _, row := range rows {
		line := row[0] + strings.Repeat(" ", widths[0]-console.CellWidth(row[0]))
		for i, text := range row[1:] {
			line += " " + strings.Repeat(" ", widths[i+1]-console.CellWidth(text)) + text
		}
		lines = append(lines, line)
	}

	return lines
}

func quantityTitle(q *experiment.Quantity) string {
	switch all := q.Command == experiment.Everything; {
	case all && q.IsTime():
		return "all, until the last has ended"
	case all:
		return "all, energy"
	case q.IsTime():
		return q.Command + ", time"
	}

	return q.Command + ", " + q.Name
}

// quantityText is a number of a quantity in its unit.
func quantityText(q *experiment.Quantity, v float64) string {
	switch {
	case q.IsTime():
		return roundDigits(v, 3) + " s"
	case q.Metric:
		return roundDigits(v, 4)
	}
	return unitText(&v, "J")
}

func unitText(v *float64, name string) string {
	return prose.ValueOr(v, "-", func(n float64) string { return roundDigits(n, 3) + " " + name })
}

// roundDigits rounds to so many digits, and has an exponent only below 0.001 and from 1e9.
func roundDigits(v float64, n int) string {
	if size := math.Abs(v); size < 0.001 || size >= 1e9 {
		return strconv.FormatFloat(v, 'g', n, 64)
	}
	text := strconv.FormatFloat(v, 'f', max(0, n-1-int(math.Floor(math.Log10(math.Abs(v))))), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}

	return text
}
