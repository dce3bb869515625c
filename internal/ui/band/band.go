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

	"gpuard/internal/core/timeline"
)

// height is that of a band, in the units of its picture; the style sheet stretches it.
const height = 36

// Colours is how many users have a colour of their own, in the style sheet; the others share grey hatchings, of which there are three.
const (
	Colours   = 8
	hatchings = 3
)

// Painter draws bands and the axis above them.
type Painter struct {
	timeline.Picture
	Ranks map[string]int      // of users: which colour
	Say   func(string) string // translates
	Zone  *time.Location      // of the reader
	Now   time.Time           // of the report, for the right end of the axis; zero: the end of the picture
}

// place is a moment as a part of the width: "37.5%".
func (p *Painter) place(at time.Time) string {
	part := float64(at.Sub(p.From)) / float64(p.To.Sub(p.From))
	return short(100*min(max(part, 0), 1)) + "%"
}

// stretch is the width between two moments.
func (p *Painter) stretch(from, to time.Time) string {
	whole := float64(p.To.Sub(p.From))
	left, right := float64(from.Sub(p.From))/whole, float64(to.Sub(p.From))/whole
	return short(100*max(min(right, 1)-max(left, 0), 0.001)) + "%"
}

// short writes a number with two digits behind the point at most.
func short(v float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}

// Paint is how a user is drawn: a class, and a hatching for those without a colour.
func (p *Painter) Paint(user string) string {
	rank, known := p.Ranks[user]
	if known && rank < Colours {
		return fmt.Sprintf(`class="u%d"`, rank)
	}
	return fmt.Sprintf(`class="ux" fill="url(#grey%d)"`, (rank-Colours+hatchings*1000)%hatchings)
}

// Band draws one device. name is said to those who do not see it.
func (p *Painter) Band(b *timeline.Band, name string) template.HTML {
	var w strings.Builder
	fmt.Fprintf(&w, `<svg class="band" width="100%%" height="%d" role="group" tabindex="0" aria-label="%s">`, height, html.EscapeString(name))
	for _, tick := range p.ticks() {
		at := p.place(tick.at)
		fmt.Fprintf(&w, `<line class="grid" x1="%s" x2="%s" y2="%d"/>`, at, at, height)
	}
	p.idle(&w, b)
	for i := range b.Spans {
		p.lease(&w, &b.Spans[i])
	}
	p.outages(&w, b)
	p.curves(&w, b)
	for _, m := range b.Marks {
		fmt.Fprintf(&w, `<svg class="mark" x="%s" overflow="visible" role="img" tabindex="-1" aria-label="%s"><path d="M-4.5 0h9L0 8z"/></svg>`, p.place(m.At),
			html.EscapeString(p.moment(m.At)+"\n"+p.Say(m.Text)))
	}
	w.WriteString(`</svg>`)
	return template.HTML(w.String()) //nolint:gosec // what others chose is escaped
}

// lease draws the frame of one; the load inside it is drawn by curves.
func (p *Painter) lease(w *strings.Builder, s *timeline.Span) {
	top, tall := lane(s)
	fmt.Fprintf(w, `<g %s><rect class="lease" x="%s" y="%s" width="%s" height="%s" role="img" tabindex="-1" aria-label="%s"/></g>`, p.Paint(s.User), p.place(s.Since), short(top),
		p.stretch(s.Since, s.Until), short(tall), html.EscapeString(p.About(s)))
}

// lane is where a span lies, with a gap between two of them.
func lane(s *timeline.Span) (top, tall float64) {
	tall = height / float64(s.Lanes)
	top = tall * float64(s.Lane)
	if s.Lanes > 1 {
		tall -= 0.5
	}
	return top, tall
}

// About says what a span is, in lines.
func (p *Painter) About(s *timeline.Span) string {
	until := p.Say("now")
	if !s.Open {
		until = p.moment(s.Until)
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
	lines := []string{who, p.moment(s.Since) + " – " + until + " · " + Lasting(s.Until.Sub(s.Since))}
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

// Lasting is a duration in its two largest units.
func Lasting(d time.Duration) string {
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

// moment is a time of the picture: on the day of its right end the time of day, else with the day.
func (p *Painter) moment(at time.Time) string {
	at, to := at.In(p.Zone), p.To.In(p.Zone)
	if p.To.Sub(p.From) <= 24*time.Hour && (at.YearDay() == to.YearDay() || to.Sub(at) < 24*time.Hour) {
		return at.Format("15:04")
	}
	return at.Format("2 Jan 15:04")
}

// outages draws what was in use without a lease, out of use, or not there.
func (p *Painter) outages(w *strings.Builder, b *timeline.Band) {
	names := map[string]string{"busy": "in use without a lease", "draining": "drained", "unhealthy": "lost or not answering"}
	for i := 0; i < len(b.States); {
		j := i + 1
		for j < len(b.States) && b.States[j] == b.States[i] {
			j++
		}
		if name := names[b.States[i]]; name != "" {
			from, to := p.From.Add(time.Duration(i)*p.Step), p.From.Add(time.Duration(j)*p.Step)
			until := p.moment(to)
			if j == len(b.States) {
				until = p.Say("now")
			}
			fmt.Fprintf(w, `<rect class="out %s" fill="url(#%[1]s)" x="%s" width="%s" height="%d" role="img" tabindex="-1" aria-label="%s"/>`, b.States[i], p.place(from), p.stretch(from, to),
				height, html.EscapeString(p.Say(name)+"\n"+p.moment(from)+" – "+until+" · "+Lasting(to.Sub(from))))
		}
		i = j
	}
}

// idle draws a line at the bottom for as long as somebody looked: no line is no reading.
func (p *Painter) idle(w *strings.Builder, b *timeline.Band) {
	for i := 0; i < len(b.Load); i++ {
		if b.Load[i] == nil {
			continue
		}
		j := i
		for j+1 < len(b.Load) && b.Load[j+1] != nil {
			j++
		}
		from, to := p.From.Add(time.Duration(i)*p.Step), p.From.Add(time.Duration(j+1)*p.Step)
		fmt.Fprintf(w, `<rect class="seen" x="%s" width="%s" y="%d" height="1"/>`, p.place(from), p.stretch(from, to), height-1)
		i = j
	}
}
