// Package band draws who had a device over the last hours or days: a frame per lease in the colour of its user, as high inside as the load,
// a thin line for the memory, hatchings for what was no lease, and marks where a trouble began. What it draws follows from values alone:
//
//	p := &band.Painter{Picture: picture, Ranks: ranks, Say: say, Zone: time.Local}
//	p.Band(&picture.Bands[0], "GPU 0, the last 24 hours")
//
// It must not decide what a lease or a trouble is.
package band

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gpuard/internal/core/timeline"
)

// bandHeight is that of a band, in the units of its picture; the style sheet stretches it.
const bandHeight = 36

// Colours is how many users have a colour of their own, in the style sheet; the others share grey hatchings, of which there are three.
const (
	Colours       = 8
	hatchingCount = 3
)

// Painter draws bands and the axis above them.
type Painter struct {
	timeline.Picture
	// The ranks of users: which colour.
	Ranks map[string]int
	Say   func(string) string // translates
	Zone  *time.Location      // of the reader
	// The time of the report, for the right end of the axis; zero: the end of the picture.
	Now time.Time
}

// xPosition is a moment as a part of the width: "37.5%".
func (p *Painter) xPosition(at time.Time) string {
	part := float64(at.Sub(p.From)) / float64(p.To.Sub(p.From))
	return formatNumber(100*min(max(part, 0), 1)) + "%"
}

// widthBetween is the width between two moments.
func (p *Painter) widthBetween(from, to time.Time) string {
	whole := float64(p.To.Sub(p.From))
	left, right := float64(from.Sub(p.From))/whole, float64(to.Sub(p.From))/whole
	return formatNumber(100*max(min(right, 1)-max(left, 0), 0.001)) + "%"
}

// formatNumber writes a number with two digits behind the point at most.
func formatNumber(v float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}

// UserAttributes is how a user is drawn: a class, and a hatching for those without a colour.
func (p *Painter) UserAttributes(user string) string {
	rank, known := p.Ranks[user]
	if known && rank < Colours {
		return fmt.Sprintf(`class="u%d"`, rank)
	}
	return fmt.Sprintf(`class="ux" fill="url(#grey%d)"`, (rank-Colours+hatchingCount*1000)%hatchingCount)
}

// Band draws one device. name is said to those who do not see it.
func (p *Painter) Band(b *timeline.Band, name string) template.HTML {
	var w strings.Builder
	fmt.Fprintf(&w, `<svg class="band" width="100%%" height="%d" role="group" tabindex="0" aria-label="%s">`, bandHeight, html.EscapeString(name))

	for _, tick := range p.axisTicks() {
		at := p.xPosition(tick.at)
		fmt.Fprintf(&w, `<line class="grid" x1="%s" x2="%s" y2="%d"/>`, at, at, bandHeight)
	}

	p.drawReadTimes(&w, b)

	for i := range b.Spans {
		p.drawLease(&w, &b.Spans[i])
	}

	p.drawOutages(&w, b)
	p.drawCurves(&w, b)

	p.drawNames(&w, b)

	for _, m := range b.Marks {
		// The line below joins it to its band.
		fmt.Fprintf(&w, `<svg class="mark" x="%s" overflow="visible" role="img" tabindex="-1" aria-label="%s"><path class="stem" d="M0 0v36"/><path d="M-6 0h12L0 10z"/></svg>`, p.xPosition(m.At),
			html.EscapeString(p.momentText(m.At)+"\n"+p.Say(m.Text)))
	}

	w.WriteString(`</svg>`)

	return template.HTML(w.String()) //nolint:gosec // what others chose is escaped
}

// drawLease draws the frame of one; the load inside it is drawn by curves.
func (p *Painter) drawLease(w *strings.Builder, s *timeline.Span) {
	top, tall := laneBounds(s)
	fmt.Fprintf(w, `<g %s><rect class="lease" x="%s" y="%s" width="%s" height="%s" role="img" tabindex="-1" aria-label="%s"/></g>`, p.UserAttributes(s.User), p.xPosition(s.Since), formatNumber(top),
		p.widthBetween(s.Since, s.Until), formatNumber(tall), html.EscapeString(p.DescribeSpan(s)))
}

// charWidth is how wide a letter of a name is at most, as a part of the width of a band; charWidthNarrow where there is little room. The
// style sheet knows what that is.
const (
	charWidth       = 0.0125
	charWidthNarrow = 0.026
	minNameHeight   = 14
)

// drawNames writes on each lease that is long enough whose it is, and what it is where there is room for that, too. What has no room is hidden
// by its class where there is little.
func (p *Painter) drawNames(w *strings.Builder, b *timeline.Band) {
	whole := float64(p.To.Sub(p.From))
	for i := range b.Spans {
		s := &b.Spans[i]
		top, tall := laneBounds(s)
		from := max(0, float64(s.Since.Sub(p.From))/whole)
		part := min(1, float64(s.Until.Sub(p.From))/whole) - from
		user, both := float64(1+utf8.RuneCountInString(s.User)), float64(2+utf8.RuneCountInString(s.User+s.Command))
		if s.User == "" || tall < minNameHeight || part < user*charWidth {
			continue
		}

		class := "whose"
		if part < user*charWidthNarrow {
			class = "whose roomy"
		}

		fmt.Fprintf(w, `<text class="%s" x="%s%%" dx="4" y="%s" aria-hidden="true">%s`, class, formatNumber(100*from), formatNumber(top+12), html.EscapeString(s.User))

		if part >= both*charWidth && s.Command != "" {
			class = ""
			if part < both*charWidthNarrow {
				class = ` class="roomy"`
			}
			fmt.Fprintf(w, `<tspan%s> %s</tspan>`, class, html.EscapeString(s.Command))
		}

		w.WriteString(`</text>`)
	}
}

// gap is between two leases that lie above each other.
const gap = 2

// laneBounds is where a span lies, with a gap between two of them that many leave smaller.
func laneBounds(s *timeline.Span) (top, tall float64) {
	between := min(gap, bandHeight/float64(4*s.Lanes))
	tall = (bandHeight - between*float64(s.Lanes-1)) / float64(s.Lanes)
	return (tall + between) * float64(s.Lane), tall
}

// DescribeSpan says what a span is, in lines.
func (p *Painter) DescribeSpan(s *timeline.Span) string {
	until := p.Say("now")
	if !s.Open {
		until = p.momentText(s.Until)
	}

	who := s.User
	switch {
	case s.Jobs > 1 && s.Command != "":
		who += " · " + s.Command + " · " + p.Say(fmt.Sprintf("%d short jobs", s.Jobs))
	case s.Jobs > 1:
		who += " · " + p.Say(fmt.Sprintf("%d short jobs", s.Jobs))
	default:
		who += " · " + s.Command
	}

	lines := []string{who, p.momentText(s.Since) + " – " + until + " · " + DurationText(s.Until.Sub(s.Since))}
	var used []string
	if s.Load != nil {
		used = append(used, fmt.Sprintf("%s %.0f %%", p.Say("mean load"), 100**s.Load))
	}

	if s.Peak > 0 {
		used = append(used, p.Say("peak memory")+" "+s.Peak.String())
	}

	if s.Share > 0 {
		used = append(used, p.Say("share "+s.Share.String()))
	}

	if s.Failed {
		used = append(used, p.Say("it failed"))
	}

	if len(used) > 0 {
		lines = append(lines, strings.Join(used, " · "))
	}

	return strings.Join(lines, "\n")
}

// DurationText is a duration in its two largest units.
func DurationText(d time.Duration) string {
	switch minutes := int(d.Minutes()); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case minutes < 60:
		return fmt.Sprintf("%d min", minutes)
	case minutes < 24*60 && minutes%60 == 0:
		return fmt.Sprintf("%d h", minutes/60)
	case minutes < 24*60:
		return fmt.Sprintf("%d h %02d min", minutes/60, minutes%60)
	case minutes/60%24 == 0:
		return fmt.Sprintf("%d d", minutes/60/24)
	default:
		return fmt.Sprintf("%d d %d h", minutes/60/24, minutes/60%24)
	}
}

// momentText is a time of the picture: on the day of its right end the time of day, else with the day.
func (p *Painter) momentText(at time.Time) string {
	at, to := at.In(p.Zone), p.To.In(p.Zone)
	if p.To.Sub(p.From) <= 24*time.Hour && (at.YearDay() == to.YearDay() || to.Sub(at) < 24*time.Hour) {
		return at.Format("15:04")
	}
	return p.Say(at.Format("2 Jan 15:04"))
}

// drawOutages draws what was in use without a lease, out of use, or not there.
func (p *Painter) drawOutages(w *strings.Builder, b *timeline.Band) {
	names := map[string]string{"busy": "in use without a lease", "draining": "drained", "unhealthy": "lost or not answering"}
	for i := 0; i < len(b.States); {
		j := i + 1
		for j < len(b.States) && b.States[j] == b.States[i] {
			j++
		}
		if name := names[b.States[i]]; name != "" {
			from, to := p.From.Add(time.Duration(i)*p.Step), p.From.Add(time.Duration(j)*p.Step)
			until := p.momentText(to)
			if j == len(b.States) {
				until = p.Say("now")
			}
			fmt.Fprintf(w, `<rect class="out %s" fill="url(#%[1]s)" x="%s" width="%s" height="%d" role="img" tabindex="-1" aria-label="%s"/>`, b.States[i], p.xPosition(from), p.widthBetween(from, to),
				bandHeight, html.EscapeString(p.Say(name)+"\n"+p.momentText(from)+" – "+until+" · "+DurationText(to.Sub(from))))
		}
		i = j
	}
}

// drawReadTimes draws a line at the bottom for as long as somebody looked: no line is no reading.
func (p *Painter) drawReadTimes(w *strings.Builder, b *timeline.Band) {
	for i := 0; i < len(b.Load); i++ {
		if b.Load[i] == nil {
			continue
		}

		j := i
		for j+1 < len(b.Load) && b.Load[j+1] != nil {
			j++
		}

		from, to := p.From.Add(time.Duration(i)*p.Step), p.From.Add(time.Duration(j+1)*p.Step)
		fmt.Fprintf(w, `<rect class="seen" x="%s" width="%s" y="%d" height="1"/>`, p.xPosition(from), p.widthBetween(from, to), bandHeight-1)
		i = j
	}
}
