package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// deviceColumns are how wide the parts of a line about a device are: the name at the left, the band, the figures, and whose it is.
type deviceColumns struct{ left, band, right, whose int }

// deviceView draws the lines about the devices.
type deviceView struct {
	*model
	c deviceColumns
	w bandWindow
	// There is room for a line with names below each band.
	twice bool
	tall  int // lines of each band
}

func columnsFor(width int) deviceColumns {
	switch {
	case width < 60:
		c := deviceColumns{left: 3, right: 11, whose: 14}
		c.band = max(4, width-c.left-c.right-c.whose-2)
		return c
	case width < 100:
		c := deviceColumns{left: 18, right: 14, whose: 18}
		c.band = width - c.left - c.right - c.whose - 2
		return c
	}
	c := deviceColumns{left: 28, right: 21, whose: max(16, min(34, width/6))}
	c.band = width - c.left - c.right - c.whose - 2

	return c
}

// deviceLines are the lines about the devices, room at most: a line of time, and for each some lines of band, and one for its trouble. spare is
// what is left where every row below is shown.
func (f *frame) deviceLines(room, spare int) (lines []string) {
	for _, u := range f.seen.Report.Unavailable {
		lines = append(lines, f.theme.paintText(f.say(u.Text), f.theme.bad), f.say(u.Remedy))
	}

	all := f.seen.Report.Devices
	if len(all) == 0 {
		return lines
	}

	d := &deviceView{model: f.model, c: columnsFor(f.width)}
	d.w = windowOf(f.seen.Report.Taken, bandSpans()[f.span], d.c.band)
	room = max(1, min(room, max(4, f.height*3/5, spare)))
	troubles := 0
	for i := range all {
		troubles += min(1, len(deviceTroubles(&all[i])))
	}

	// Lines, with one for names.
	names := len(all)*2 + troubles + 1
	d.twice = f.knowsUsers() && names <= min(room, max(6, f.height*2/5, spare))
	d.tall = 1

	for d.twice && d.tall < 3 && names+d.tall*len(all) <= min(room, spare, f.height*3/5) {
		d.tall++
	}

	if len(all)+troubles+1 <= room {
		lines = append(lines, d.axisLine())
	}

	first := d.firstDevice(room - len(lines))
	if first > 0 {
		lines = append(lines, f.theme.dimText(f.say(fmt.Sprintf("and %s above", countText(first, "more GPU", "more GPUs")))))
	}

	for i := first; i < len(all); i++ {
		of, last := d.linesOfDevice(&all[i]), 1
		if i == len(all)-1 {
			last = 0
		}

		if len(lines)+1+last <= room && len(lines)+len(of)+last > room {
			of = of[:room-last-len(lines)]
		}

		if len(lines)+len(of)+last > room {
			return append(lines, f.theme.dimText("   "+f.say(fmt.Sprintf("and %s", countText(len(all)-i, "more GPU", "more GPUs")))))
		}

		lines = append(lines, of...)
	}

	return lines
}

// knowsUsers reports whether there is a name to write below a band.
func (f *frame) knowsUsers() bool {
	for _, p := range f.pasts {
		if len(p.stays) > 0 {
			return true
		}
	}
	return false
}

// firstDevice is the first one that is shown, so that the one of the chosen row is there.
func (v *deviceView) firstDevice(room int) int {
	all := len(v.seen.Report.Devices)
	if all <= room || room < 4 {
		// There is no line for what is above.
		return 0
	}

	rows := v.allRows()
	if len(rows) == 0 {
		return 0
	}

	at := firstOf(rows[v.chosenPlace(rows)])
	visible := max(1, room-2)
	if at < visible {
		return 0
	}

	return min(at-visible+1, max(0, all-visible-1))
}

func countText(n int, one, several string) string {
	if n == 1 {
		several = one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// axisLine is the line of time above the bands.
func (v *deviceView) axisLine() string {
	now := v.say("now")
	line := []rune(strings.Repeat(" ", max(0, v.c.band-ansi.StringWidth(now))))
	for _, t := range v.w.roundTicks(v.seen.Report.Taken.Local().Location()) {
		for i, r := range []rune("╷" + t.text) {
			if at := t.place + i; at < len(line) {
				line[at] = r
			}
		}
	}

	head := padRight("GPU", v.c.left) + " "
	figures := padLeft(v.say("LOAD"), 4) + " " + padLeft(v.say("MEMORY"), v.c.right-5)

	return v.theme.dimText(head+string(line)+now+" "+figures) + " " + v.theme.dimText(v.say("USE"))
}

// deviceTroubles are what is wrong with a device. What the driver says of its clocks is left out where the health says it in words.
func deviceTroubles(d *status.Device) (all []string) {
	why := strings.Join(d.Why, "; ")
	for _, text := range slices.Concat(d.Why, d.Throttled) {
		said := text == "hw_thermal_slowdown" && strings.Contains(why, "heat") || text == "hw_power_brake_slowdown" && strings.Contains(why, "power supply")
		if !said && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// linesOfDevice are the lines about one device.
func (v *deviceView) linesOfDevice(d *status.Device) (lines []string) {
	cells := v.pastOf(d.UUID).windowCells(v.w, d.UUID, slices.Concat(v.before, v.seen.Minutes), v.seen.Width)
	indent := strings.Repeat(" ", v.c.left+1)
	for level := v.tall - 1; level > 0; level-- {
		lines = append(lines, indent+v.bandLine(cells, level))
	}

	lines = append(lines, v.leftColumn(d)+" "+v.bandLine(cells, 0)+" "+v.figuresText(d)+" "+v.useText(d))
	if v.twice {
		lines = append(lines, indent+v.nameLine(cells))
	}

	wrong := deviceTroubles(d)
	if len(wrong) > 0 {
		lines = append(lines, "   "+v.theme.paintText(v.language.Join("; ", wrong...), v.theme.bad))
	}

	return lines
}

// leftColumn is the number, the model, the temperature and the power.
func (v *deviceView) leftColumn(d *status.Device) string {
	index := padLeft(fmt.Sprint(d.Index), 2)
	if v.c.left <= 3 {
		return index + " "
	}

	degrees, watts := "- ", "- "
	if d.Temperature != nil {
		degrees = fmt.Sprintf("%dC", *d.Temperature)
	}

	if d.Power != nil {
		watts = fmt.Sprintf("%.0fW", *d.Power)
	}

	hot := ""
	if d.Margin != nil && *d.Margin <= 3 || slices.Contains(d.Throttled, "hw_thermal_slowdown") {
		hot = v.theme.bad
	}

	temperature := v.theme.paintText(padLeft(degrees, 4), hot)
	if v.c.left < 28 {
		return index + " " + padRight(modelIn(d.Name, 10), 10) + " " + temperature
	}

	return index + " " + padRight(modelIn(d.Name, 14), 14) + " " + temperature + " " + padLeft(watts, 5)
}

// modelIn is the name of a model in few columns: "A100-80GB" for an A100-SXM4-80GB.
func modelIn(name string, width int) string {
	name = strings.TrimPrefix(strings.TrimSuffix(gpu.ModelName(name), " GPU"), "GeForce ")
	if ansi.StringWidth(name) > width {
		name = strings.TrimSuffix(name, " Laptop")
	}

	parts := strings.Split(name, "-")
	if n := len(parts); ansi.StringWidth(name) > width && n > 2 {
		return parts[0] + "-" + parts[n-1]
	}

	return name
}

// figuresText are load and memory.
func (v *deviceView) figuresText(d *status.Device) string {
	load := v.theme.dimText(padLeft("-", 4))
	if d.Utilization != nil {
		load = v.theme.paintText(padLeft(fmt.Sprintf("%.0f%%", 100**d.Utilization), 4), v.theme.loadColour(*d.Utilization))
	}

	memory := "-"
	if used, all := d.InUse(), d.InAll(); used != nil && all != nil {
		memory = formatSize(*used) + "/" + formatSize(*all)
		if width := v.c.right - 5; ansi.StringWidth(memory) > width {
			memory = strings.TrimSuffix(formatSize(*used), "G") + "/" + fmt.Sprintf("%.0fG", float64(*all)/(1<<30))
		}
		if width := v.c.right - 5; ansi.StringWidth(memory) > width {
			memory = formatSize(*used)
		}
	}

	return load + " " + padLeft(memory, v.c.right-5)
}

// useText is the state of a device, in the word of gpuard status, and whose it is.
func (v *deviceView) useText(d *status.Device) string {
	word := d.State()
	said := v.say(word)
	if d.Use == status.Draining && word == string(status.Draining) {
		// The word of the first line.
		said = v.say("drained")
	}

	switch {
	case word == string(d.Health):
		said = v.theme.paintText(said, v.theme.bad)
	case d.Use == status.Free && word == string(status.Free):
		said = boldText(v.theme.paintText(said, v.theme.good))
	case d.Use == status.Draining, d.Use == status.Busy, d.Use == status.Unknown:
		said = v.theme.paintText(said, v.theme.warn)
	}

	if d.Health != health.OK && len(d.Why) == 0 {
		// Else the lines below say it.
		said += " " + v.theme.paintText(string(d.Health), v.theme.bad)
	}

	if free := freeSlices(d); free > 0 {
		said += " " + boldText(v.theme.paintText(v.say(fmt.Sprintf("%d free", free)), v.theme.good))
	}

	names := v.usersOf(d)
	if len(names) > 0 {
		said += " " + strings.Join(names, ",")
	}

	return ansi.Truncate(said, v.c.whose, "…")
}

// freeSlices is how many slices of a device are free.
func freeSlices(d *status.Device) (free int) {
	for i := range d.MIG {
		if d.MIG[i].State() == string(status.Free) {
			free++
		}
	}
	return free
}

// usersOf are who has a device, or uses it without a lease, in their colours. Who should not, or uses too much, is marked.
func (v *deviceView) usersOf(d *status.Device) (painted []string) {
	var names, marked []string
	add := func(name, mark string) {
		if name == "" || slices.Contains(names, name) {
			return
		}

		names = append(names, name)
		text := v.theme.paintText(name, v.colourOf(name))
		if mark != "" {
			// First, where nothing is cut off.
			marked = append(marked, v.theme.paintText(name+mark, v.theme.bad))
			return
		}

		painted = append(painted, text)
	}

	spots := spotsOf(d)
	leased := false
	for _, spot := range spots {
		for i := range spot.Leases {
			leased = true
			mark := ""
			if spot.Leases[i].Over() {
				mark = "!"
			}
			add(spot.Leases[i].User, mark)
		}
	}

	for _, spot := range spots {
		for _, p := range spot.Processes {
			switch {
			case p.Display || !p.Foreign && leased:
			case leased:
				add(p.Owner(), "!")
			default:
				add(p.Owner(), "")
			}
		}
	}

	return append(marked, painted...)
}

// Glyphs of a band. The height of the bar is the load.
const (
	barGlyphs = "▁▂▃▄▅▆▇█"
	// Leased, and nobody measured.
	unmeasuredGlyph = "░"
	// Not leased, and idle.
	freeGlyph = "·"
)

// bandLine is one line of a band, 0 for the lowest. Without a line for names, the first cell of each lease is the first letter of its user, so
// that it needs no colour.
func (v *deviceView) bandLine(cells []bandCell, level int) string {
	letters := !v.twice
	var b strings.Builder

	for i := range cells {
		x := &cells[i]
		text := " "
		switch {
		case letters && x.lease != "" && (i == 0 || cells[i-1].lease != x.lease):
			text = string([]rune(x.users[0] + "?")[0])
		case x.load >= 0 && (x.load >= idleTrace || x.lease != ""):
			text = barAt(x.load*float64(v.tall)-float64(level), level == 0)
		case level > 0:
		case x.load < 0 && x.lease != "":
			text = unmeasuredGlyph
		case x.load >= 0:
			text = freeGlyph
		}
		b.WriteString(v.theme.paintText(text, v.cellColour(x)))
	}

	return b.String()
}

// idleTrace is a load that is not drawn on a device that nobody has leased.
const idleTrace = 0.02

// barAt is a bar of a height in lines; the lowest line is never empty.
func barAt(height float64, lowest bool) string {
	eighths := int(height * 8)
	switch {
	case eighths < 1 && !lowest:
		return " "
	case height >= 1:
		return "█"
	}
	return string([]rune(barGlyphs)[min(7, max(0, eighths))])
}

// cellColour is by user where the band alone says whose it was, or where that was asked for; else by load.
func (v *deviceView) cellColour(x *bandCell) string {
	switch {
	case x.lease == "" && x.load >= idleTrace:
		// Nobody has leased it.
		return v.theme.warn
	case x.lease == "":
		return v.theme.dim
	case !v.twice || v.byUser:
		if len(x.users) > 1 {
			return v.theme.dim
		}
		return v.colourOf(x.users[0])
	case x.load < 0:
		return v.theme.dim
	}
	return v.theme.loadColour(x.load)
}

// nameLine says below a band who had the device.
func (v *deviceView) nameLine(cells []bandCell) string {
	var b strings.Builder
	for i := 0; i < len(cells); {
		name, colour := v.nameOf(&cells[i])
		end := i + 1
		for end < len(cells) {
			next, _ := v.nameOf(&cells[end])
			if next != name {
				break
			}
			end++
		}

		line := strings.Repeat(" ", end-i)
		if name != "" {
			text := ansi.Truncate(name, end-i, "")
			line = text + strings.Repeat("─", end-i-ansi.StringWidth(text))
		}

		b.WriteString(v.theme.paintText(line, colour))
		i = end
	}
	return b.String()
}

// nameOf is who had the device in a cell; "" nobody.
func (v *deviceView) nameOf(x *bandCell) (name, colour string) {
	switch {
	case len(x.users) == 1:
		return x.users[0], v.colourOf(x.users[0])
	case len(x.users) > 1:
		return strings.Join(x.users, ","), v.theme.dim
	case x.load >= 2*idleLoad:
		return v.say("no lease"), v.theme.warn
	}
	return "", ""
}
