package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/timeline"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/band"
)

// gpuRow is a device: what it is, its band, and who has it now.
type gpuRow struct {
	*status.Device
	Place int // in the report
	// The ids of the row and of its band.
	ID, Part string
	Title    string // "GPU 5"
	// Shows its details, or hides them.
	Href   string
	Chosen bool
	// Where the devices differ.
	Model string
	Now   []nowLine
	More  int
	Strip *timeline.Band
}

// nowLine is what happens on a device now.
type nowLine struct {
	User, Job, Text string
	Bad             bool
	// The colour of the user.
	Shape template.HTMLAttr
}

// Used is what is used of the memory, of all of it: "61 / 80 GiB"; "" not known.
func (g gpuRow) Used() string {
	if g.InUse() == nil || g.InAll() == nil {
		return ""
	}

	used, all := g.InUse().String(), g.InAll().String()
	number, unit, _ := strings.Cut(used, " ")
	if *g.InUse() == 0 || strings.HasSuffix(all, " "+unit) {
		used = number
	}

	return used + " / " + all
}

// Blank reports whether nothing was read of it.
func (g gpuRow) Blank() bool { return g.Utilization == nil && g.InUse() == nil && g.Temperature == nil }

// maxNowLines is how many lines a row has; the details have all.
const maxNowLines = 2

// deviceRow is the device at a place of the report.
func (c *bandSection) deviceRow(i int) gpuRow {
	d := &c.Report.Devices[i]
	r := gpuRow{Device: d, Place: i, ID: rowID(d), Part: "band-" + string(d.UUID), Title: fmt.Sprintf("GPU %d", d.Index), Strip: &c.Bands[i], Chosen: c.gpu != "" && d.UUID == c.gpu}
	if d.UUID == "" {
		r.Part = "band-" + r.ID
	}

	r.Href = c.pageAddress(c.days, d.UUID)
	if r.Chosen {
		r.Href = c.pageAddress(c.days, "")
	}

	if c.Models() == "" {
		r.Model = gpu.ModelName(d.Name)
	}

	r.Now = c.nowLines(i, d, r.Strip)
	if len(r.Now) > maxNowLines {
		r.More = len(r.Now) - maxNowLines
		r.Now = r.Now[:maxNowLines]
	}

	return r
}

// nowLines says what is wrong with a device, and who has it until when.
func (c *bandSection) nowLines(place int, d *status.Device, b *timeline.Band) (all []nowLine) {
	if len(d.Why) > 0 {
		all = append(all, nowLine{Text: c.Say(d.Why[0]), Bad: d.Health != health.OK})
	}

	if d.Drained != "" {
		all = append(all, nowLine{Text: c.Say("drained: " + d.Drained)})
	}

	all = append(all, c.useLines(d)...)
	for i := range d.MIG {
		for _, line := range c.useLines(&d.MIG[i]) {
			line.Text = d.MIG[i].Profile + ", " + line.Text
			all = append(all, line)
		}
	}

	since := b.FreeSince()
	if len(all) == 0 && d.State() == string(status.Free) && !since.IsZero() {
		all = append(all, nowLine{Text: c.Say("free since " + prose.NearTime(since, c.reportTime()))})
	}

	for _, claim := range c.Claims {
		if claim.Place == place {
			all = append(all, nowLine{Text: c.Say(claim.Text)})
		}
	}

	for _, m := range b.PastMarks(d) {
		if c.days == 1 && len(all) < maxNowLines {
			all = append(all, nowLine{Text: c.Say(pastTrouble{Mark: m}.Says()) + " (" + c.Say(prose.NearTime(m.At, c.reportTime())) + ")"})
		}
	}

	return all
}

// reportTime is the moment of the report, where the reader is.
func (c *pageData) reportTime() time.Time { return c.Report.Now.In(c.Zone) }

// useLines are the leases on a device or a slice, and the processes without one.
func (c *bandSection) useLines(d *status.Device) (all []nowLine) {
	for i := range d.Leases {
		l := &d.Leases[i]
		line := nowLine{User: l.User, Job: l.Command, Text: c.Say(c.untilText(l)), Shape: template.HTMLAttr(c.UserAttributes(l.User))} //nolint:gosec // a class of ours
		if l.Over() {
			line.Text, line.Bad = c.Say(l.ShareText()), true
		}

		if l.Ended {
			line.Text, line.Bad = c.Say("its command has ended"), l.KeptUntil == nil
		}

		all = append(all, line)
	}
	for _, p := range d.Processes {
		if p.Foreign && !p.Display {
			all = append(all, c.outsiderLine(p, len(d.Leases) > 0))
		}
	}
	return all
}

// outsiderLine is a process without a lease, in the colour of the first line.
func (c *bandSection) outsiderLine(p status.Process, intrudes bool) nowLine {
	line := nowLine{User: p.Owner(), Job: p.Command, Text: c.Say("without a lease"), Bad: intrudes}
	if name := p.Nameless(); name != "" {
		line.Job = c.Say(name)
	}

	if p.PID == 0 {
		line.User, line.Job = c.Say("another PID namespace"), fmt.Sprintf("%s %d", c.Say("process"), p.Outside)
	}

	if p.Memory != nil {
		line.Text = p.Memory.String() + " " + line.Text
	}

	return line
}

// untilText is when a lease is over, else since when it lives.
func (c *pageData) untilText(l *status.Lease) string {
	if at, estimated, known := l.EndsAt(c.reportTime()); known {
		return endText(at, c.reportTime(), estimated)
	}
	if l.Since != nil {
		return "since " + prose.NearTime(*l.Since, c.reportTime())
	}
	return ""
}

// endText says when something ends, certainly or by an estimate.
func endText(at, now time.Time, estimated bool) string {
	if estimated {
		return "until about " + prose.NearTime(at, now)
	}
	return "until " + prose.NearTime(at, now)
}

// chosenDetail is the device whose details are shown; nil none.
func (s *screen) chosenDetail() *detailView {
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Chosen {
			v := &detailView{gpuRow: r, screen: s}
			for k := range r.Strip.Spans {
				// The last first.
				v.Spans = append([]spanView{{r.Strip.Spans[k], s.Painter}}, v.Spans...)
			}

			v.Spans = v.Spans[:min(len(v.Spans), 30)]
			head := min(len(v.Spans), mostSpans)
			v.Spans, v.Older = v.Spans[:head], v.Spans[head:]

			return v
		}
	}
	return nil
}

// detailView is what the pane beside the bands shows.
type detailView struct {
	*gpuRow
	*screen
	Spans []spanView // the last leases
	// That are folded away.
	Older []spanView
}

// mostSpans is how many leases the details show at once.
const mostSpans = 4

// Close is the address without the details.
func (d *detailView) Close() string { return d.pageAddress(d.days, "") }

// Curve is a small curve of the last day: temperature or power.
func (d *detailView) Curve(of string) template.HTML {
	read := func(m trend.Mean) *float64 { return m.Temperature }
	top := 100.0
	if of == "power" {
		read = func(m trend.Mean) *float64 { return m.Power }
		top = 0
		if d.PowerLimit != nil {
			top = *d.PowerLimit
		}
	}

	minutes := d.site.lastSeen().Minutes
	values := make([]*float64, bandColumns)
	to := d.reportTime().Truncate(time.Minute).Add(time.Minute)
	step := 24 * time.Hour / bandColumns
	for _, m := range minutes {
		if at := int(m.At.Sub(to.Add(-24*time.Hour)) / step); at >= 0 && at < bandColumns && !m.At.Before(to.Add(-24*time.Hour)) {
			if x := read(m.Devices[d.UUID]); x != nil {
				values[at] = x
			}
		}
	}

	if top == 0 {
		for _, x := range values {
			if x != nil {
				top = max(top, *x)
			}
		}
	}

	return band.SparkLine(values, top)
}

// spanView is a line of the list of leases of a device.
type spanView struct {
	timeline.Span
	p *band.Painter
}

// Lines are what the band says of it, in parts.
func (s spanView) Lines() []string { return strings.Split(s.p.DescribeSpan(&s.Span), "\n") }

// Shape is the colour of its user.
func (s spanView) Shape() template.HTMLAttr { return template.HTMLAttr(s.p.UserAttributes(s.User)) } //nolint:gosec // a class of ours
