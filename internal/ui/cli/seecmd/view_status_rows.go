package seecmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/verify"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
)

// columns are the widths of the table; 0 leaves a column out.
type columns struct{ label, model, bar, percent, memory, temperature, power, pci, use int }

// measure gives fixed columns what their content needs, and shares the rest between model and bars.
func (v *statusPage) measure(rows []row) columns {
	c := columns{label: 3, model: 5, percent: 5, memory: 6, temperature: 5, use: 4}
	if v.Term.Width >= console.PowerWidth {
		c.power = 5
	}
	if v.Term.Width >= console.RoomyWidth {
		c.pci = 4
	}
	for _, r := range rows {
		c.label = max(c.label, console.Cells(r.label))
		c.model = max(c.model, console.Cells(r.model))
		c.memory = max(c.memory, console.Cells(memory(r.device)))
		c.use = max(c.use, console.Cells(v.Term.Translate(r.device.State())))
		if c.power > 0 {
			c.power = max(c.power, console.Cells(power(r.device)))
		}
		if c.pci > 0 {
			c.pci = max(c.pci, console.Cells(r.device.PCI))
		}
	}
	gaps := 5 * len(console.Between)
	gaps += len(console.Between) * (min(c.power, 1) + min(c.pci, 1))
	rest := v.Term.Width - gaps - c.label - 1 - c.percent - 1 - c.memory - c.temperature - c.power - c.pci - c.use
	c.model = min(c.model, max(rest-2*6, 8))
	c.bar = min(max((rest-c.model)/2, 0), 20)
	return c
}

func (v *statusPage) devices() {
	rows := v.rows()
	c := v.measure(rows)
	if v.Term.Width < console.TableWidth {
		for _, r := range rows {
			v.narrow(r, c)
		}
		return
	}
	v.titles(c)
	for _, r := range rows {
		v.wide(r, c)
		v.below(r, c.label+len(console.Between))
	}
}

func (v *statusPage) titles(c columns) {
	head := func(word string, width int, right bool) string {
		return console.Pad(v.Term.Translate(word), width, right, "") + console.Between
	}
	line := head("GPU", c.label, true) + head("MODEL", c.model, false) + head("LOAD", c.bar+1+c.percent, false) + head("MEMORY", c.bar+1+c.memory, false) + head("TEMP", c.temperature, true)
	if c.power > 0 {
		line += head("POWER", c.power, true)
	}
	if c.pci > 0 {
		line += head("PCI", c.pci, false)
	}
	v.Line(console.Dim.Of(line + v.Term.Translate("USE")))
}

func (v *statusPage) wide(r row, c columns) {
	d, use := r.device, r.device.State()
	line := []console.Span{
		console.Bold.Of(console.Pad(r.label, c.label, true, "")), console.Normal.Of(console.Between + console.Pad(r.model, c.model, false, v.Dots()) + console.Between),
		bar(&v.Page, d.Utilization, c.bar), console.Normal.Of(" " + console.Pad(percent(d.Utilization), c.percent, true, "") + console.Between),
		bar(&v.Page, memoryShare(d), c.bar), console.Normal.Of(" " + console.Pad(memory(d), c.memory, true, "") + console.Between),
		console.Normal.Of(console.Pad(temperature(d), c.temperature, true, "") + console.Between),
	}
	if c.power > 0 {
		line = append(line, console.Normal.Of(console.Pad(power(d), c.power, true, "")+console.Between))
	}
	if c.pci > 0 {
		line = append(line, console.Normal.Of(console.Pad(d.PCI, c.pci, false, "")+console.Between))
	}
	v.Line(append(line, useStyle(use).Of(v.Term.Translate(use)))...)
}

// narrow writes a device for a narrow terminal: name and use, then the readings, then its users.
func (v *statusPage) narrow(r row, c columns) {
	d, use := r.device, r.device.State()
	label := r.label + " "
	room := v.Term.Width - console.Cells(label) - 1 - console.Cells(v.Term.Translate(use))
	v.Line(console.Bold.Of(label), console.Normal.Of(console.Pad(r.model, max(room, 0), false, v.Dots())+" "), useStyle(use).Of(v.Term.Translate(use)))
	const indent = 2
	text := console.Pad(percent(d.Utilization), c.percent, true, "") + console.Between + console.Pad(memory(d), c.memory, true, "") + console.Between + temperature(d)
	share := d.Utilization
	if d.Profile != "" || r.parent {
		share = memoryShare(d)
	}
	line := []console.Span{console.Normal.Of(strings.Repeat(" ", indent))}
	if width := min(v.Term.Width-indent-1-console.Cells(text), 12); width >= 4 && share != nil {
		line = append(line, bar(&v.Page, share, width), console.Normal.Of(" "))
	}
	if strings.Trim(text, "- ") != "" {
		v.Line(append(line, console.Normal.Of(text))...)
	}
	v.below(r, indent)
}

// below writes the problems of a device and the jobs that use it.
func (v *statusPage) below(r row, indent int) {
	d, blank := r.device, strings.Repeat(" ", indent)
	if d.Health != health.OK && d.Profile == "" {
		text := fmt.Sprintf("%s: %s", d.Health, strings.Join(d.Why, "; "))
		v.Paragraph(useStyle(string(d.Health)).Of(blank+"! "), console.Normal, v.Translate(text))
		if d.Remedy != "" {
			v.Paragraph(console.Normal.Of(blank+"  "), console.Bold, v.Translate(d.Remedy))
		}
	}
	if d.Profile == "" {
		v.noted(d, blank)
	}
	lead := blank + v.Pick("└ ", "- ")
	for _, l := range d.Leases {
		v.occupant(lead, v.lease(d, l))
		if l.Unhealthy != "" {
			v.Paragraph(console.Yellow.Of(blank+"  ! "), console.Normal, v.Translate("unhealthy: "+l.Unhealthy))
		}
		v.seen(blank, l)
		v.keepers(blank, l)
	}
	foreign := 0
	for _, p := range d.Processes {
		if p.Foreign {
			foreign++
			v.occupant(lead, v.process(p))
		}
	}
	if d.Use == status.Busy && foreign == 0 && d.Reason != "" {
		v.Paragraph(console.Normal.Of(lead), console.Normal, v.Translate(d.Reason))
	}
}

// seen writes where a job works, unless all is as it should be.
func (v *statusPage) seen(blank string, l status.Lease) {
	switch {
	case l.Seen == "" || l.Seen == string(verify.Proven) || l.Ended:
	case l.Seen == string(verify.TooEarly):
		v.Paragraph(console.Normal.Of(blank+"  "), console.Normal, v.Translate(l.SeenText))
	default:
		v.Paragraph(console.Yellow.Of(blank+"  ! "), console.Normal, v.Translate(l.SeenText))
	}
}

// noted writes a drain, and the driver's errors that do not affect the health of the device. Each code has one line,
// with its last time.
func (v *statusPage) noted(d *status.Device, blank string) {
	if d.Drained != "" {
		v.Paragraph(console.Yellow.Of(blank+"! "), console.Normal, v.Translate(fmt.Sprintf("drained: %s; to put it into use again: gpuard undrain %s", d.Drained, v.number(d))))
	}
	last, count := map[int]status.XID{}, map[int]int{}
	var order []int
	for _, x := range d.XIDs {
		if count[x.Code]++; count[x.Code] == 1 {
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
		v.Paragraph(console.Dim.Of(blank+"· "), console.Dim, v.Translate(text))
	}
}

// number is the device as --device takes it: "2", or "amd:0" on a machine with several vendors.
func (v *statusPage) number(d *status.Device) string {
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
	handle        []string // what to type to find or end it, the most useful first
}

func (v *statusPage) occupant(lead string, o occupant) {
	tail := console.Between + strings.Join(o.facts, console.Between)
	if len(o.facts) == 0 {
		tail = ""
	}
	handle := console.Between + strings.Join(o.handle, ", ")
	if v.Term.Width < console.TableWidth && console.Cells(lead)+console.Cells(o.user)+len(console.Between)+min(console.Cells(o.command), 8)+console.Cells(tail) > v.Term.Width {
		v.tall(lead, o)
		return
	}
	room := v.Term.Width - console.Cells(lead) - console.Cells(o.user) - len(console.Between) - console.Cells(tail)
	if room-console.Cells(handle) < 8 && v.Term.Width < console.TableWidth {
		handle = console.Between + o.handle[0]
	}
	if room-console.Cells(handle) < 6 && v.Term.Width < console.TableWidth {
		handle = ""
	}
	command := console.Cut(o.command, max(room-console.Cells(handle), 4), v.Dots())
	v.Line(console.Normal.Of(lead), o.style.Of(o.user), console.Normal.Of(console.Between+command+tail), console.Dim.Of(handle))
	if handle == "" { // on its own line: users need it to act
		v.Line(console.Normal.Of(strings.Repeat(" ", console.Cells(lead))), console.Dim.Of(o.handle[0]))
	}
}

// tall writes an occupant over as many lines as it takes.
func (v *statusPage) tall(lead string, o occupant) {
	blank := strings.Repeat(" ", console.Cells(lead))
	command := console.Cut(o.command, max(v.Term.Width-console.Cells(lead)-console.Cells(o.user)-len(console.Between), 4), v.Dots())
	v.Line(console.Normal.Of(lead), o.style.Of(o.user), console.Normal.Of(console.Between+command))
	if facts := strings.Join(o.facts, console.Between); console.Cells(blank+facts+console.Between+o.handle[0]) <= v.Term.Width {
		v.Line(console.Normal.Of(blank+facts), console.Dim.Of(console.Between+o.handle[0]))
		return
	}
	v.Paragraph(console.Normal.Of(blank), console.Normal, strings.Join(o.facts, console.Between))
	v.Line(console.Normal.Of(blank), console.Dim.Of(o.handle[0]))
}

func (v *statusPage) lease(d *status.Device, l status.Lease) occupant {
	o := occupant{style: console.Cyan, user: v.Text(l.User), command: v.Text(l.Command), handle: []string{v.Text(l.ID), fmt.Sprintf("pid %d", l.PID)}}
	program, arguments, _ := strings.Cut(l.Line, " ")
	if l.Command == program[strings.LastIndex(program, "/")+1:] { // it has no name of its own
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
	o.facts = append(o.facts, v.since(l.Since)...)
	if at, estimated, known := l.EndsAt(v.s.Now); known {
		o.facts = append(o.facts, v.Term.Translate(prose.EndTime(at, v.s.Now, estimated)))
	}
	return o
}

// keepers writes the processes that hold a lease after its command ended, and how to end it. A lease on several devices
// is written once.
func (v *statusPage) keepers(blank string, l status.Lease) {
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
	v.Paragraph(console.Yellow.Of(blank+"  ! "), console.Normal, v.Translate(text))
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

func (v *statusPage) process(p status.Process) occupant {
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
	o.facts = append(o.facts, v.since(p.Since)...)
	return o
}

func (v *statusPage) since(t *time.Time) []string {
	if t == nil {
		return nil
	}
	return []string{v.Term.Translate(console.AgeText(v.s.Now.Sub(*t)))}
}
