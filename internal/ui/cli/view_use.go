package cli

import (
	"fmt"
	"io"
	"math"
	"strings"

	"gpuard/internal/core/trend"
)

// useView writes what gpuard history --by shows: for each name a line with figures, and a bar below it.
func useView(w io.Writer, list []trend.Use, t Term) {
	v := &page{term: t}
	if len(list) == 0 {
		v.sentence("no lease has ended in that time")
	} else {
		v.line(span{dim, "leases   granted      used      idle  in hours of one GPU"})
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
		v.line(span{normal, fmt.Sprintf("%6d %9.2f %9.2f %9.2f  ", u.Jobs, u.Granted, u.Used, u.Idle)}, span{bold, v.text(u.Name)}, span{normal, memory})
		v.useBar(u, most)
	}
	if most > 0 {
		v.line(span{green, v.pick("█", "#")}, span{normal, " used  "}, span{yellow, v.pick("▒", "-")}, span{normal, " idle  "}, span{dim, v.pick("·", ".")}, span{normal, " granted, not measured"})
	}
	if unseen {
		v.paragraph(span{}, dim, "The hours of leases that ended while nobody looked (after kill -9) are not known, and not counted.")
	}
	_, _ = io.WriteString(w, v.out.String())
}

// useBar is as wide as the terminal for the largest use, and has three parts.
func (p *page) useBar(u trend.Use, most float64) {
	width := p.term.Width
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
	p.line(span{green, strings.Repeat(p.pick("█", "#"), used)}, span{yellow, strings.Repeat(p.pick("▒", "-"), idle)}, span{dim, strings.Repeat(p.pick("·", "."), whole-used-idle)})
}
