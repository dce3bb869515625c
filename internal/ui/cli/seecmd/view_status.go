package seecmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
)

// frameText is the same text for a screen that is redrawn. On a terminal it starts at the top left corner, clears the
// rest of an earlier frame, and never scrolls; the last line has the time and the key to leave. If not everything fits,
// devices in use come before free ones. On other outputs an empty line follows each frame.
func frameText(s status.Report, term console.Term, leave string) string {
	if !term.TTY {
		return statusText(s, term) + "\n"
	}

	lines := screenLines(s, term)
	foot := s.Now.Format("15:04:05") + "  " + leave
	if more := len(lines) - (term.Height - 2); term.Height > 0 && more > 0 {
		// One line for the foot, one for the cursor.
		s.Devices = slices.Clone(s.Devices)
		slices.SortStableFunc(s.Devices, func(a, b status.Device) int { return cmp.Compare(useRank(&a), useRank(&b)) })
		lines = screenLines(s, term)
		shown := max(term.Height-2, 0)
		foot = fmt.Sprintf("%d more lines  %s", len(lines)-shown, foot)
		lines = lines[:shown:shown]
	}

	p := console.Page{Term: term}
	p.Line(console.Dim.Span(foot))
	lines = append(lines, strings.TrimSuffix(p.Out.String(), "\n"))

	return "\x1b[H" + strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J"
}

func screenLines(s status.Report, term console.Term) []string {
	return strings.Split(strings.TrimSuffix(statusText(s, term), "\n"), "\n")
}

// useRank sorts devices in use first, then unhealthy ones, then free ones.
func useRank(d *status.Device) int {
	switch {
	case d.Use != status.Free, slices.ContainsFunc(d.MIG, func(s status.Device) bool { return s.Use != status.Free }):
		return 0
	case d.Health != health.OK:
		return 1
	}
	return 2
}

// statusText is the machine as text: one line per device with load, memory, temperature and use, and below it its
// jobs and problems. No line is wider than the terminal (80 columns if the width is unknown); below 60 columns each
// device takes two lines.
func statusText(s status.Report, term console.Term) string {
	if term.Width <= 0 {
		term.Width = console.UsualWidth
	}

	v := statusPage{Page: console.Page{Term: term}, s: s}
	v.writeHeader()
	if len(s.Devices) > 0 {
		v.Line()
		v.writeDevices()
	}

	v.writeWaiting()
	v.writeRemarks()

	return v.Out.String()
}

type statusPage struct {
	console.Page
	s status.Report
	// Leases whose keepers were written.
	kept []string
}

// statusRow is one line of the table: a GPU or a slice.
type statusRow struct {
	label, model string
	device       *status.Device
	// Split: its slices follow.
	parent bool
}

func (v *statusPage) deviceRows() []statusRow {
	var rows []statusRow
	for i := range v.s.Devices {
		d := &v.s.Devices[i]
		label := fmt.Sprint(d.Index)
		if d.Vendor != v.s.Devices[0].Vendor || d.Vendor != v.s.Devices[len(v.s.Devices)-1].Vendor {
			label = fmt.Sprintf("%s:%d", d.Vendor, d.Index)
		}

		rows = append(rows, statusRow{label, v.Text(gpu.ModelName(d.Name)), d, len(d.MIG) > 0})
		for j := range d.MIG {
			slice := &d.MIG[j]
			rows = append(rows, statusRow{fmt.Sprintf("%s:%d", label, slice.Index), v.Text("MIG " + slice.Profile), slice, false})
		}
	}
	return rows
}

// writeHeader writes the count of devices by use, and the source of the readings.
func (v *statusPage) writeHeader() {
	var parts []string
	if v.s.Driver != "" {
		parts = append(parts, "driver "+v.Text(v.s.Driver))
	}

	if v.s.CUDA != "" {
		parts = append(parts, "CUDA "+v.Text(v.s.CUDA))
	}

	switch v.s.Source {
	case "invented":
		parts = append(parts, "invented machine")
	case "nvidia-smi":
		parts = append(parts, "read by nvidia-smi")
	case "file":
		if v.s.Taken.IsZero() {
			parts = append(parts, "recorded machine")
		} else {
			parts = append(parts, "recorded "+console.AgeText(v.s.Now.Sub(v.s.Taken))+" ago")
		}
	}

	summary := v.summaryText()
	rest := v.Term.Language.Join(v.PickGlyph(" · ", ", "), parts...)
	if gap := v.Term.Width - console.CellWidth(summary) - console.CellWidth(rest); gap >= 2 {
		v.Line(console.Bold.Span(summary), console.Dim.Span(strings.Repeat(" ", gap)+rest))
		return
	}

	v.WriteParagraph(console.Span{}, console.Bold, summary)
	if rest != "" {
		v.WriteParagraph(console.Span{}, console.Dim, rest)
	}
}

func (v *statusPage) summaryText() string {
	if len(v.s.Devices) == 0 {
		if v.s.Source == "file" && len(v.s.Unavailable) == 0 {
			return v.Term.Translate("No GPU: the machine file has none")
		}
		return v.Term.Translate("No GPU")
	}

	slices, split := 0, 0
	count := map[string]int{}
	for _, r := range v.deviceRows() {
		if r.parent {
			split++
			continue
		}
		if r.device.Profile != "" {
			slices++
		}
		count[r.device.State()]++
	}

	things := prose.CountNoun(len(v.s.Devices), "GPU")
	switch {
	case split == 1 && len(v.s.Devices) == 1:
		things += " split into " + prose.CountNoun(slices, "MIG slice")
	case split > 0:
		things += fmt.Sprintf(" (%d split into %s)", split, prose.CountNoun(slices, "MIG slice"))
	}

	var uses []string
	for _, word := range []string{"free", "leased", "shared", "draining", "busy", "use unknown", "degraded", "unhealthy", "unknown"} {
		if n := count[word]; n > 0 {
			uses = append(uses, fmt.Sprintf("%d %s", n, word))
		}
	}

	join := v.Term.Language.Join

	return join(": ", things, join(", ", uses...))
}

// useStyle is the colour of a state.
func useStyle(word string) console.Style {
	switch word {
	case "free":
		return console.Green
	case "leased", "shared":
		return console.Cyan
	case "busy", "draining", "degraded", "use unknown":
		return console.Yellow
	case "split":
		return console.Dim
	}
	return console.Red
}

func (v *statusPage) writeRemarks() {
	if len(v.s.Unavailable)+len(v.s.Problems)+len(v.s.Notes) > 0 {
		v.Line()
	}
	for _, u := range v.s.Unavailable {
		v.WriteParagraph(console.Red.Span("! "), console.Normal, v.Translate(u.Text))
		if u.Remedy != "" {
			v.WriteParagraph(console.Normal.Span("  "), console.Bold, v.Translate(u.Remedy))
		}
	}
	for _, problem := range v.s.Problems {
		v.WriteParagraph(console.Red.Span("! "), console.Normal, v.Translate(problem))
	}
	for _, note := range v.s.Notes {
		v.WriteParagraph(console.Yellow.Span(v.Translate("note:")+" "), console.Normal, v.Translate(note))
	}
}

// drawBar draws a share as a bar of width cells; an unknown share is blank.
func drawBar(p *console.Page, share *float64, width int) console.Span {
	if share == nil || width <= 0 {
		return console.Normal.Span(strings.Repeat(" ", max(width, 0)))
	}

	halves := int(min(max(*share, 0), 1)*float64(2*width) + 0.5)
	if halves == 0 && *share > 0.005 {
		halves = 1
	}

	full, half := p.PickGlyph("━", "#"), p.PickGlyph("╸", "-")
	drawn := strings.Repeat(full, halves/2)
	if halves%2 == 1 {
		drawn += half
	}

	return console.Normal.Span(drawn + strings.Repeat(p.PickGlyph("┈", "."), width-halves/2-halves%2))
}

func memoryShare(d *status.Device) *float64 {
	used, all := d.InUse(), d.InAll()
	if all == nil || used == nil || *all <= 0 {
		return nil
	}
	return new(float64(*used) / float64(*all))
}

// memoryText writes "51.2/80.0 GiB".
func memoryText(d *status.Device) string {
	gib := func(b *gpu.Bytes) string {
		return prose.ValueOr(b, "?", func(n gpu.Bytes) string { return fmt.Sprintf("%.1f", float64(n)/float64(gpu.GiB)) })
	}
	used, all := d.InUse(), d.InAll()
	if all == nil && used == nil {
		return "-"
	}

	return gib(used) + "/" + gib(all) + " GiB"
}

func temperatureText(d *status.Device) string {
	return prose.ValueOr(d.Temperature, "-", func(degrees int) string { return fmt.Sprintf("%d C", degrees) })
}

func powerText(d *status.Device) string {
	switch {
	case d.Power == nil:
		return "-"
	case d.PowerLimit == nil:
		return fmt.Sprintf("%.0f W", *d.Power)
	}
	return fmt.Sprintf("%.0f/%.0f W", *d.Power, *d.PowerLimit)
}
