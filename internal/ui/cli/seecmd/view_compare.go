package seecmd

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	core "gpuard/internal/core/compare"
	"gpuard/internal/core/gpu"
	"gpuard/internal/ui/console"
)

// comparedView writes what gpuard compare shows.
func comparedView(w io.Writer, a *compared, t console.Term) {
	v := &console.Page{Term: t}
	for i := range a.Commands {
		c := &a.Commands[i]
		text := console.CommandText(c.Argv)
		if c.Service != "" {
			text = v.Text(c.Service) + ": " + text
		}
		v.Paragraph(console.Dim.Of(c.Command+"  "), console.Normal, text)
	}
	if !a.Complete {
		v.WriteText("interrupted: only the runs that were complete count")
	}
	comparison(v, a)
	for _, text := range a.Conclusion {
		v.Paragraph(console.Span{}, console.Normal, v.Text(text))
	}
	for _, text := range a.Warnings {
		v.Paragraph(console.Dim.Of("warning: "), console.Normal, v.Text(text))
	}
	_, _ = io.WriteString(w, v.Out.String())
}

// comparison adds the tables, unless there is nothing to be seen in them.
func comparison(p *console.Page, a *compared) {
	if len(a.Quantities) == 0 {
		return
	}
	against := "against " + p.Text(string(a.Arms[0].Arm))
	rows, ratios := [][]string{{"", "runs", "median", "lowest", "highest"}}, 0
	for i := range a.Quantities {
		q := &a.Quantities[i]
		rows = append(rows, []string{"  " + p.Text(string(q.Arm)), fmt.Sprint(q.Runs), measure(q, q.Median), measure(q, q.Lowest), measure(q, q.Highest)})
		ratios = max(ratios, len(ratioText(q)))
	}
	lines := aligned(rows)
	ratios = max(ratios, len(against)) + 2
	if narrow(p, lines[0], ratios) {
		for i := range rows {
			rows[i] = rows[i][:3]
		}
		lines = aligned(rows)
	}
	below := narrow(p, lines[0], ratios) // the ratio has a line of its own
	for i, line := range lines {
		style, ratio := console.Dim, against
		if i > 0 {
			style, ratio = console.Normal, ratioText(&a.Quantities[i-1])
			quantityHead(p, a, i-1)
		}
		switch {
		case !below:
			p.Line(style.Of(line + "  " + ratio))
		case ratio != "":
			p.Line(style.Of(line))
			p.Line(style.Of("    " + ratio))
		default:
			p.Line(style.Of(line))
		}
	}
	comparedUse(p, a)
}

// narrow reports whether the terminal has no room for that much after a line.
func narrow(p *console.Page, line string, more int) bool {
	return p.Term.Width > 0 && console.Cells(line)+more > p.Term.Width
}

// quantityHead begins the lines of a quantity.
func quantityHead(p *console.Page, a *compared, i int) {
	q := &a.Quantities[i]
	if i == 0 || a.Quantities[i-1].Command != q.Command || a.Quantities[i-1].Name != q.Name {
		p.Line(console.Normal.Of(p.Text(quantityTitle(q))))
	}
}

// comparedUse is the table of what the GPUs did.
func comparedUse(p *console.Page, a *compared) {
	rows := [][]string{{"of the GPUs", "load", "memory", "power", "energy", "clock"}}
	for i := range a.Arms {
		u := &a.Arms[i].Use
		rows = append(rows, []string{"  " + p.Text(string(a.Arms[i].Arm)), console.PercentText(u.Load), bytesOrDash(u.Memory), unit(u.Power, "W"), unit(u.Energy, "J"), unit(u.Clock, "MHz")})
	}
	lines := aligned(rows)
	for narrow(p, lines[0], 0) && len(rows[0]) > 2 {
		for i := range rows {
			rows[i] = rows[i][:len(rows[i])-1]
		}
		lines = aligned(rows)
	}
	for i, line := range lines {
		style := console.Normal
		if i == 0 {
			style = console.Dim
		}
		p.Line(style.Of(line))
	}
}

// aligned makes lines of rows: the first cell is on the left, the others on the right, and wider where one has to be.
func aligned(rows [][]string) (lines []string) {
	widths := []int{18, 5, 8, 8, 8, 8}
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], console.Cells(text))
		}
	}
	for _, row := range rows {
		line := row[0] + strings.Repeat(" ", widths[0]-console.Cells(row[0]))
		for i, text := range row[1:] {
			line += " " + strings.Repeat(" ", widths[i+1]-console.Cells(text)) + text
		}
		lines = append(lines, line)
	}
	return lines
}

func quantityTitle(q *core.Quantity) string {
	if q.Command == core.Everything {
		switch {
		case q.Time():
			return "all, until the last has ended"
		default:
			return "all, energy"
		}
	}
	if q.Time() {
		return q.Command + ", time"
	}
	return q.Command + ", " + q.Name
}

// measure is a number of a quantity in its unit.
func measure(q *core.Quantity, v float64) string {
	switch {
	case q.Time():
		return digits(v, 3) + " s"
	case q.Metric:
		return digits(v, 4)
	}
	return unit(&v, "J")
}

func ratioText(q *core.Quantity) string {
	if q.Ratio == nil {
		return ""
	}
	return q.Ratio.Short()
}

func unit(v *float64, name string) string {
	if v == nil {
		return "-"
	}
	return digits(*v, 3) + " " + name
}

// digits rounds to so many digits, and has an exponent only below 0.001 and from 1e9.
func digits(v float64, n int) string {
	if size := math.Abs(v); size < 0.001 || size >= 1e9 {
		return strconv.FormatFloat(v, 'g', n, 64)
	}
	text := strconv.FormatFloat(v, 'f', max(0, n-1-int(math.Floor(math.Log10(math.Abs(v))))), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func bytesOrDash(v *gpu.Bytes) string {
	if v == nil {
		return "-"
	}
	return v.String()
}
