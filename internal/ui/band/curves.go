package band

import (
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/timeline"
)

// drawCurves draws the load of each lease from its bottom, and the memory as a line. They are stretched with the picture; x counts
// columns.
func (p *Painter) drawCurves(w *strings.Builder, b *timeline.Band) {
	columns := len(b.Load)
	fmt.Fprintf(w, `<svg class="curves" viewBox="0 0 %d %d" preserveAspectRatio="none" width="100%%" height="%[2]d">`, columns, bandHeight)
	covered := make([]bool, columns)
	for i := range b.Spans {
		s := &b.Spans[i]
		from, to := p.columnAt(s.Since), p.columnAt(s.Until)
		for c := int(from); c < columns && float64(c) < to; c++ {
			covered[c] = true
		}

		top, tall := laneBounds(s)
		path := stepOutline(b.Load, s.Load, from, to, top+tall, tall)
		fmt.Fprintf(w, `<path %s d="%s"/>`, p.UserAttributes(s.User), path)
	}

	p.drawUnleased(w, b, covered)
	line := polyline(p.memory(b), bandHeight-1, bandHeight-2)
	if line != "" && p.To.Sub(p.From) <= 24*time.Hour {
		// Of more there are no readings.
		fmt.Fprintf(w, `<path class="case" d="%s"/><path class="memory" d="%[1]s"/>`, line)
	}

	w.WriteString(`</svg>`)
}

// memory are the readings that are drawn: where leases lie above each other, a line over the whole height would be that of none.
func (p *Painter) memory(b *timeline.Band) []*float64 {
	out := slices.Clone(b.Memory)
	for i := range b.Spans {
		s := &b.Spans[i]
		if s.Lanes < 2 {
			continue
		}

		for c := int(p.columnAt(s.Since)); c < len(out) && float64(c) < p.columnAt(s.Until); c++ {
			out[c] = nil
		}
	}
	return out
}

// columnAt is a moment in columns of the picture.
func (p *Painter) columnAt(at time.Time) float64 {
	return min(max(float64(at.Sub(p.From))/float64(p.Step), 0), float64(p.To.Sub(p.From))/float64(p.Step))
}

// drawUnleased draws load that no lease accounts for.
func (p *Painter) drawUnleased(w *strings.Builder, b *timeline.Band, covered []bool) {
	rest := make([]*float64, len(b.Load))
	found := false
	for i, load := range b.Load {
		if load != nil && !covered[i] && *load >= 0.02 {
			rest[i], found = load, true
		}
	}
	if found {
		fmt.Fprintf(w, `<path class="nobody" d="%s"/>`, stepOutline(rest, nil, 0, float64(len(rest)), bandHeight, bandHeight))
	}
}

// stepOutline is the outline of an area whose height follows the values of columns; where there is none it follows mean.
func stepOutline(values []*float64, mean *float64, from, to, bottom, tall float64) string {
	var w strings.Builder
	fmt.Fprintf(&w, "M%s %s", formatTenth(from), formatTenth(bottom))
	last := bottom
	for c := int(from); c < len(values) && float64(c) < to; c++ {
		y := bottom
		switch {
		case values[c] != nil:
			y = bottom - *values[c]*tall
		case mean != nil:
			y = bottom - *mean*tall
		}
		if formatTenth(y) != formatTenth(last) {
			if x := max(float64(c), from); c > int(from) {
				fmt.Fprintf(&w, "H%s", formatTenth(x))
			}
			fmt.Fprintf(&w, "V%s", formatTenth(y))
			last = y
		}
	}

	fmt.Fprintf(&w, "H%sV%sz", formatTenth(to), formatTenth(bottom))

	return w.String()
}

// formatTenth writes a number with one digit behind the point at most.
func formatTenth(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// polyline joins the values of columns, and breaks where there is none.
func polyline(values []*float64, bottom, tall float64) string {
	var w strings.Builder
	pen, last := false, ""
	for c, v := range values {
		if v == nil {
			if pen {
				fmt.Fprintf(&w, "H%d", c)
			}
			pen = false
			continue
		}
		y := formatTenth(bottom - *v*tall)
		switch {
		case !pen:
			fmt.Fprintf(&w, "M%d %s", c, y)
		case y != last:
			fmt.Fprintf(&w, "H%dV%s", c, y)
		}
		pen, last = true, y
	}

	if pen {
		fmt.Fprintf(&w, "H%d", len(values))
	}

	return w.String()
}

// axisTick is a line of the axis.
type axisTick struct {
	at    time.Time
	label string
	// Left out where there is little room.
	minor bool
}

// axisTicks are at round hours of a day, or at the begin of days.
func (p *Painter) axisTicks() (all []axisTick) {
	from, whole := p.From.In(p.Zone), p.To.Sub(p.From)
	if whole <= 48*time.Hour {
		for at := time.Date(from.Year(), from.Month(), from.Day(), 0, 0, 0, 0, p.Zone); at.Before(p.To); at = at.Add(3 * time.Hour) {
			if at.After(p.From) {
				all = append(all, axisTick{at, at.In(p.Zone).Format("15:04"), at.In(p.Zone).Hour()%6 != 0})
			}
		}
		return all
	}

	for day := 1; ; day++ {
		at := time.Date(from.Year(), from.Month(), from.Day()+day, 0, 0, 0, 0, p.Zone)
		if !at.Before(p.To) {
			return all
		}
		if whole <= 8*24*time.Hour || at.Weekday() == time.Monday {
			label := p.Say(at.Format("2 Jan"))
			if whole <= 8*24*time.Hour {
				label = p.Say(at.Format("Mon")) + at.Format(" 2")
			}
			all = append(all, axisTick{at, label, whole <= 8*24*time.Hour && day%2 == 0})
		}
	}
}

// underNow is the part of the width behind which a label would stand under the time at the right end; underNowNarrow where there is
// little room. The style sheet knows what that is.
const (
	underNow       = 0.89
	underNowNarrow = 0.87
)

// clockText is the time at the right end.
func (p *Painter) clockText() string {
	if p.Now.IsZero() {
		return p.To.In(p.Zone).Format("15:04")
	}
	return p.Now.In(p.Zone).Format("15:04")
}

// Axis is the line of times above the bands.
func (p *Painter) Axis() template.HTML {
	var w strings.Builder
	fmt.Fprintf(&w, `<svg class="axis" width="100%%" height="16" role="img" aria-label="%s">`, html.EscapeString(p.momentText(p.From)+" – "+p.Say("now")))
	whole := p.To.Sub(p.From)
	if ticks := p.axisTicks(); whole <= 24*time.Hour && len(ticks) > 0 && float64(ticks[0].at.Sub(p.From)) > 0.09*float64(whole) {
		// The left end has a label where the next one is far enough.
		fmt.Fprintf(&w, `<text class="minor" x="0" y="11">%s</text>`, p.From.In(p.Zone).Format("15:04"))
	}

	for _, t := range p.axisTicks() {
		part := float64(t.at.Sub(p.From)) / float64(whole)
		class := ""
		switch {
		case part < 0.02 || part > underNow:
			continue
		case t.minor && part > underNowNarrow:
			class = ` class="minor late"`
		case t.minor:
			class = ` class="minor"`
		case part > underNowNarrow:
			class = ` class="late"`
		}
		fmt.Fprintf(&w, `<text%s x="%s" y="11" text-anchor="middle">%s</text>`, class, p.xPosition(t.at), html.EscapeString(t.label))
	}

	fmt.Fprintf(&w, `<text class="now" x="100%%" y="11" text-anchor="end">%s<tspan class="clock"> %s</tspan></text></svg>`, html.EscapeString(p.Say("now")), p.clockText())

	return template.HTML(w.String()) //nolint:gosec // what others chose is escaped
}

// SparkLine is a small curve of a reading, for the details of a device.
func SparkLine(values []*float64, top float64) template.HTML {
	scaled := make([]*float64, len(values))
	for i, v := range values {
		if v != nil && top > 0 {
			scaled[i] = new(min(1, *v/top))
		}
	}

	line := polyline(scaled, bandHeight-2, bandHeight-4)
	if line == "" {
		return ""
	}

	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" width="100%%" height="%[2]d" aria-hidden="true"><path class="line" d="%s"/></svg>`, len(values), bandHeight, line)) //nolint:gosec // numbers
}
