package seecmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
)

// columnWidths are the widths of the table; 0 leaves a column out.
type columnWidths struct{ label, model, bar, percent, memory, temperature, power, pci, use int }

// columnWidths gives fixed columns what their content needs, and shares the rest between model and bars.
func (v *statusPage) columnWidths(rows []statusRow) columnWidths {
	c := columnWidths{label: 3, model: 5, percent: 5, memory: 6, temperature: 5, use: 4}
	if v.Term.Width >= console.PowerWidth {
		c.power = 5
	}

	if v.Term.Width >= console.RoomyWidth {
		c.pci = 4
	}

	for _, r := range rows {
		c.label = max(c.label, console.CellWidth(r.label))
		c.model = max(c.model, console.CellWidth(r.model))
		c.memory = max(c.memory, console.CellWidth(memoryText(r.device)))
		c.use = max(c.use, console.CellWidth(v.Term.Translate(r.device.State())))
		if c.power > 0 {
			c.power = max(c.power, console.CellWidth(powerText(r.device)))
		}

		if c.pci > 0 {
			c.pci = max(c.pci, console.CellWidth(r.device.PCI))
		}
	}

	gaps := 5 * len(console.ColumnGap)
	gaps += len(console.ColumnGap) * (min(c.power, 1) + min(c.pci, 1))
	rest := v.Term.Width - gaps - c.label - 1 - c.percent - 1 - c.memory - c.temperature - c.power - c.pci - c.use
	c.model = min(c.model, max(rest-2*6, 8))
	c.bar = min(max((rest-c.model)/2, 0), 20)

	return c
}

func (v *statusPage) writeDevices() {
	rows := v.deviceRows()
	c := v.columnWidths(rows)
	if v.Term.Width < console.TableWidth {
		for _, r := range rows {
			v.writeNarrow(r, c)
		}
		return
	}

	v.writeTitles(c)

	for _, r := range rows {
		v.writeWide(r, c)
		v.writeBelow(r, c.label+len(console.ColumnGap))
	}
}

func (v *statusPage) writeTitles(c columnWidths) {
	head := func(word string, width int, right bool) string {
		return console.Pad(v.Term.Translate(word), width, right, "") + console.ColumnGap
	}

	line := head("GPU", c.label, true) + head("MODEL", c.model, false) + head("LOAD", c.bar+1+c.percent, false) + head("MEMORY", c.bar+1+c.memory, false) + head("TEMP", c.temperature, true)
	if c.power > 0 {
		line += head("POWER", c.power, true)
	}

	if c.pci > 0 {
		line += head("PCI", c.pci, false)
	}

	v.Line(console.Dim.Span(line + v.Term.Translate("USE")))
}

func (v *statusPage) writeWide(r statusRow, c columnWidths) {
	d, use := r.device, r.device.State()
	line := []console.Span{
		console.Bold.Span(console.Pad(r.label, c.label, true, "")), console.Normal.Span(console.ColumnGap + console.Pad(r.model, c.model, false, v.Ellipsis()) + console.ColumnGap),
		drawBar(&v.Page, d.Utilization, c.bar), console.Normal.Span(" " + console.Pad(console.PercentText(d.Utilization), c.percent, true, "") + console.ColumnGap),
		drawBar(&v.Page, memoryShare(d), c.bar), console.Normal.Span(" " + console.Pad(memoryText(d), c.memory, true, "") + console.ColumnGap),
		console.Normal.Span(console.Pad(temperatureText(d), c.temperature, true, "") + console.ColumnGap),
	}

	if c.power > 0 {
		line = append(line, console.Normal.Span(console.Pad(powerText(d), c.power, true, "")+console.ColumnGap))
	}

	if c.pci > 0 {
		line = append(line, console.Normal.Span(console.Pad(d.PCI, c.pci, false, "")+console.ColumnGap))
	}

	v.Line(append(line, useStyle(use).Span(v.Term.Translate(use)))...)
}

// writeNarrow writes a device for a narrow terminal: name and use, then the readings, then its users.
func (v *statusPage) writeNarrow(r statusRow, c columnWidths) {
	d, use := r.device, r.device.State()
	label := r.label + " "
	room := v.Term.Width - console.CellWidth(label) - 1 - console.CellWidth(v.Term.Translate(use))
	v.Line(console.Bold.Span(label), console.Normal.Span(console.Pad(r.model, max(room, 0), false, v.Ellipsis())+" "), useStyle(use).Span(v.Term.Translate(use)))
	const indent = 2
	text := console.Pad(console.PercentText(d.Utilization), c.percent, true, "") + console.ColumnGap + console.Pad(memoryText(d), c.memory, true, "") + console.ColumnGap + temperatureText(d)
	share := d.Utilization
	if d.Profile != "" || r.parent {
		share = memoryShare(d)
	}

	line := []console.Span{console.Normal.Span(strings.Repeat(" ", indent))}
	if width := min(v.Term.Width-indent-1-console.CellWidth(text), 12); width >= 4 && share != nil {
		line = append(line, drawBar(&v.Page, share, width), console.Normal.Span(" "))
	}

	if strings.Trim(text, "- ") != "" {
		v.Line(append(line, console.Normal.Span(text))...)
	}

	v.writeBelow(r, indent)
}

// writeBelow writes the problems of a device and the jobs that use it.
func (v *statusPage) writeBelow(r statusRow, indent int) {
	d, blank := r.device, strings.Repeat(" ", indent)
	if d.Health != health.OK && d.Profile == "" {
		text := fmt.Sprintf("%s: %s", d.Health, strings.Join(d.Why, "; "))
		v.WriteParagraph(useStyle(string(d.Health)).Span(blank+"! "), console.Normal, v.Translate(text))
		if d.Remedy != "" {
			v.WriteParagraph(console.Normal.Span(blank+"  "), console.Bold, v.Translate(d.Remedy))
		}
	}

	if d.Profile == "" {
		v.writeDrainAndXIDs(d, blank)
	}

	lead := blank + v.PickGlyph("└ ", "- ")
	for _, l := range d.Leases {
		v.writeOccupant(lead, v.leaseOccupant(d, l))
		if l.Unhealthy != "" {
			v.WriteParagraph(console.Yellow.Span(blank+"  ! "), console.Normal, v.Translate("unhealthy: "+l.Unhealthy))
		}
		v.writeSeen(blank, l)
		v.writeKeepers(blank, l)
	}

	foreign := 0
	for _, p := range d.Processes {
		if p.Foreign {
			foreign++
			v.writeOccupant(lead, v.processOccupant(p))
		}
	}

	if d.Use == status.Busy && foreign == 0 && d.Reason != "" {
		v.WriteParagraph(console.Normal.Span(lead), console.Normal, v.Translate(d.Reason))
	}
}

// writeSeen writes where a job works, unless all is as it should be.
func (v *statusPage) writeSeen(blank string, l status.Lease) {
	switch {
	case l.Seen == "" || l.Seen == string(proof.Proven) || l.Ended:
	case l.Seen == string(proof.TooEarly):
		v.WriteParagraph(console.Normal.Span(blank+"  "), console.Normal, v.Translate(l.SeenText))
	default:
		v.WriteParagraph(console.Yellow.Span(blank+"  ! "), console.Normal, v.Translate(l.SeenText))
	}
}

// writeDrainAndXIDs writes a drain, and the driver's errors that do not affect the health of the device. Each code has
// one line, with its last time.
func (v *statusPage) writeDrainAndXIDs(d *status.Device, blank string) {
	if d.Drained != "" {
		v.WriteParagraph(console.Yellow.Span(blank+"! "), console.Normal, v.Translate(fmt.Sprintf("drained: %s; to put it into use again: gpuard undrain %s", d.Drained, v.deviceNumber(d))))
	}

	last, count := map[int]status.XID{}, map[int]int{}
	var order []int
	for _, x := range d.XIDs {
		count[x.Code]++
		if count[x.Code] == 1 {
			order = append(order, x.Code)
		}
		last[x.Code] = x
	}

	for _, code := range order {
		x := last[code]
		told := func(why string) bool { return strings.HasPrefix(why, fmt.Sprintf("XID %d ", code)) }
		if slices.ContainsFunc(d.Why, told) {
			continue
		}

		text := fmt.Sprintf("XID %d: %s", code, x.Meaning)
		if x.At != nil {
			text += ", " + console.AgeText(v.s.Now.Sub(*x.At)) + " ago"
		}

		if x.PID != 0 {
			text += fmt.Sprintf(", process %d", x.PID)
		}

		if count[code] > 1 {
			text += fmt.Sprintf(" (%d times)", count[code])
		}

		v.WriteParagraph(console.Dim.Span(blank+"· "), console.Dim, v.Translate(text))
	}
}

// deviceNumber is the device as --device takes it: "2", or "amd:0" on a machine with several vendors.
func (v *statusPage) deviceNumber(d *status.Device) string {
	if slices.ContainsFunc(v.s.Devices, func(o status.Device) bool { return o.Vendor != d.Vendor }) {
		return fmt.Sprintf("%s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprint(d.Index)
}

// occupant is a job on a device. Only its command may be cut: the rest is needed to find or end it.
type occupant struct {
	style         console.Style
	user, command string
	facts         []string // memory, age
	// What to type to find or end it, the most useful first.
	handle []string
}

func (v *statusPage) writeOccupant(lead string, o occupant) {
	tail := console.ColumnGap + strings.Join(o.facts, console.ColumnGap)
	if len(o.facts) == 0 {
		tail = ""
	}

	handle := console.ColumnGap + strings.Join(o.handle, ", ")
	if v.Term.Width < console.TableWidth && console.CellWidth(lead)+console.CellWidth(o.user)+len(console.ColumnGap)+min(console.CellWidth(o.command), 8)+console.CellWidth(tail) > v.Term.Width {
		v.writeTall(lead, o)
		return
	}

	room := v.Term.Width - console.CellWidth(lead) - console.CellWidth(o.user) - len(console.ColumnGap) - console.CellWidth(tail)
	if room-console.CellWidth(handle) < 8 && v.Term.Width < console.TableWidth {
		handle = console.ColumnGap + o.handle[0]
	}

	if room-console.CellWidth(handle) < 6 && v.Term.Width < console.TableWidth {
		handle = ""
	}

	command := console.Cut(o.command, max(room-console.CellWidth(handle), 4), v.Ellipsis())
	v.Line(console.Normal.Span(lead), o.style.Span(o.user), console.Normal.Span(console.ColumnGap+command+tail), console.Dim.Span(handle))
	if handle == "" {
		// On its own line: users need it to act.
		v.Line(console.Normal.Span(strings.Repeat(" ", console.CellWidth(lead))), console.Dim.Span(o.handle[0]))
	}
}

// writeTall writes an occupant over as many lines as it takes.
func (v *statusPage) writeTall(lead string, o occupant) {
	blank := strings.Repeat(" ", console.CellWidth(lead))
	command := console.Cut(o.command, max(v.Term.Width-console.CellWidth(lead)-console.CellWidth(o.user)-len(console.ColumnGap), 4), v.Ellipsis())
	v.Line(console.Normal.Span(lead), o.style.Span(o.user), console.Normal.Span(console.ColumnGap+command))
	if facts := strings.Join(o.facts, console.ColumnGap); console.CellWidth(blank+facts+console.ColumnGap+o.handle[0]) <= v.Term.Width {
		v.Line(console.Normal.Span(blank+facts), console.Dim.Span(console.ColumnGap+o.handle[0]))
		return
	}

	v.WriteParagraph(console.Normal.Span(blank), console.Normal, strings.Join(o.facts, console.ColumnGap))
	v.Line(console.Normal.Span(blank), console.Dim.Span(o.handle[0]))
}

func (v *statusPage) leaseOccupant(d *status.Device, l status.Lease) occupant {
	o := occupant{style: console.Cyan, user: v.Text(l.User), command: v.Text(l.Command), handle: []string{v.Text(l.ID), fmt.Sprintf("pid %d", l.PID)}}
	program, arguments, _ := strings.Cut(l.Line, " ")
	if l.Command == program[strings.LastIndex(program, "/")+1:] {
		// It has no name of its own.
		o.command = strings.TrimSpace(o.command + " " + v.Text(arguments))
	}

	if l.Apart {
		o.handle[1] = v.Term.Translate(o.handle[1] + " in its container")
	}

	if l.Here {
		o.handle[0] += " " + v.Term.Translate("(here)")
	}

	switch {
	case l.Unreadable:
		o.command, o.handle = v.Term.Translate("(a lease that cannot be read)"), o.handle[:1]
	case l.Ended:
		o.command, o.handle = o.command+" "+v.Term.Translate("(ended)"), o.handle[:1]
	}

	switch {
	case l.Share > 0:
		o.facts = []string{v.Term.Translate(l.ShareText() + planview.QuotaText(l.Quota))}
	case len(d.Leases) == 1:
		o.facts = v.leaseMemory(d)
	}

	if l.Isolation != job.NoIsolation {
		o.facts = append(o.facts, v.Term.Translate("isolated by "+string(l.Isolation)))
	}

	o.facts = append(o.facts, v.sinceText(l.Since)...)
	if at, estimated, known := l.EndsAt(v.s.Now); known {
		o.facts = append(o.facts, v.Term.Translate(prose.EndTime(at, v.s.Now, estimated)))
	}

	return o
}

// writeKeepers writes the processes that hold a lease after its command ended, and how to end it. A lease on several
// devices is written once.
func (v *statusPage) writeKeepers(blank string, l status.Lease) {
	if !l.Ended || slices.Contains(v.kept, l.ID) {
		return
	}

	v.kept = append(v.kept, l.ID)
	var names []string
	for _, k := range l.HeldBy[:min(len(l.HeldBy), 3)] {
		name := strings.TrimSpace(fmt.Sprintf("pid %d %s", k.PID, k.Command))
		if k.Stopped {
			name += " (stopped)"
		}
		names = append(names, name)
	}

	if more := len(l.HeldBy) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}

	if len(names) == 0 {
		names = []string{"an unknown process"}
	}

	text := fmt.Sprintf("the lease %s is still held by %s", l.ID, strings.Join(names, ", "))
	if l.KeptUntil != nil {
		text = fmt.Sprintf("the lease %s is kept for the next start of its command until %s", l.ID, l.KeptUntil.In(v.s.Now.Location()).Format(time.TimeOnly))
	}

	if l.Remedy != "" {
		text += "; " + l.Remedy
	}

	v.WriteParagraph(console.Yellow.Span(blank+"  ! "), console.Normal, v.Translate(text))
}

// leaseMemory is the memory of all processes of the device's lease, if the driver reports it.
func (v *statusPage) leaseMemory(d *status.Device) []string {
	var sum gpu.Bytes
	for _, p := range d.Processes {
		if !p.Foreign && p.Memory != nil {
			sum += *p.Memory
		}
	}
	if sum == 0 {
		return nil
	}

	return []string{sum.String()}
}

func (v *statusPage) processOccupant(p status.Process) occupant {
	o := occupant{style: console.Yellow, user: v.Text(p.Owner()), command: v.Text(p.Command), handle: []string{fmt.Sprintf("pid %d", p.PID), v.Term.Translate("no lease")}}
	if why := p.Nameless(); why != "" {
		o.command = v.Term.Translate(why)
	}

	switch {
	case p.PID == 0:
		o.handle[0] = v.Term.Translate(fmt.Sprintf("pid %d there", p.Outside))
	case p.Display:
		o.style, o.handle[1] = console.Normal, v.Term.Translate("display")
	}

	if p.Memory != nil {
		o.facts = append(o.facts, p.Memory.String())
	}

	o.facts = append(o.facts, v.sinceText(p.Since)...)

	return o
}

func (v *statusPage) sinceText(t *time.Time) []string {
	if t == nil {
		return nil
	}
	return []string{v.Term.Translate(console.AgeText(v.s.Now.Sub(*t)))}
}
