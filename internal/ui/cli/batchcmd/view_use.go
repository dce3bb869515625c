package batchcmd

import (
	"fmt"
	"math"
	"strings"

	"gpuard/internal/core/trend"
	"gpuard/internal/ui/console"
)

// useView writes what gpuard history --by shows: for each name a line with figures, and a bar below it.
func useView(v *console.Page, list []trend.Use) {
	if len(list) == 0 {
		v.WriteText(v.Term.Translate("no lease has ended in that time"))
	} else {
		v.Line(console.Dim.Span("leases   granted      used      idle  in hours of one GPU"))
	}

	most, unseen := 0.0, false
	for _, u := range list {
		most = max(most, u.Granted)
		unseen = unseen || u.Unseen > 0
	}

	for _, u := range list {
		memory := ""
		if u.Peak > 0 {
			memory = ", at most " + u.Peak.String() + " of a GPU"
		}
		v.Line(console.Normal.Span(fmt.Sprintf("%6d %9.2f %9.2f %9.2f  ", u.Jobs, u.Granted, u.Used, u.Idle)), console.Bold.Span(v.Text(u.Name)), console.Normal.Span(memory))
		useBar(v, u, most)
	}

	if most > 0 {
		v.Line(console.Green.Span(v.PickGlyph("█", "#")), console.Normal.Span(" used  "), console.Yellow.Span(v.PickGlyph("▒", "-")), console.Normal.Span(" idle  "), console.Dim.Span(v.PickGlyph("·", ".")), console.Normal.Span(" granted, not measured"))
	}

	if unseen {
		v.WriteParagraph(console.Span{}, console.Dim, "The hours of leases that ended while nobody looked (after kill -9) are not known, and not counted.")
	}
}

// useBar is as wide as the terminal for the largest use, and has three parts.
func useBar(p *console.Page, u trend.Use, most float64) {
	width := p.Term.Width
	if width <= 0 || width > 120 {
		width = 120
	}

	part := func(hours float64) int { return int(math.Round(float64(width) * hours / most)) }
	if u.Granted <= 0 || most <= 0 {
		return
	}

	whole := max(part(u.Granted), 1)
	used := min(part(u.Used), whole)
	idle := min(part(u.Used+u.Idle), whole) - used
	p.Line(console.Green.Span(strings.Repeat(p.PickGlyph("█", "#"), used)), console.Yellow.Span(strings.Repeat(p.PickGlyph("▒", "-"), idle)), console.Dim.Span(strings.Repeat(p.PickGlyph("·", "."), whole-used-idle)))
}
