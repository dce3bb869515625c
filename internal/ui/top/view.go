package top

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// Colours are those of the terminal, so that they fit its background.
func red(s string) string    { return lipgloss.NewStyle().Foreground(lipgloss.Red).Render(s) }
func green(s string) string  { return lipgloss.NewStyle().Foreground(lipgloss.Green).Render(s) }
func yellow(s string) string { return lipgloss.NewStyle().Foreground(lipgloss.Yellow).Render(s) }
func faint(s string) string  { return lipgloss.NewStyle().Faint(true).Render(s) }
func marked(s string) string { return lipgloss.NewStyle().Reverse(true).Render(s) }

// screen is everything on it, in height lines of at most width columns.
func (m model) screen() string {
	bottom := m.bottom()
	lines := append([]string{m.head()}, m.body(max(0, m.height-1-len(bottom)))...)
	for len(lines) < m.height-len(bottom) {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, m.height-len(bottom))], bottom...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return strings.Join(lines, "\n")
}

// body has so many lines at most: devices above, and what uses them below. What has no room is counted.
func (m model) body(room int) []string {
	if m.help {
		return keys()
	}
	rows := m.rows()
	list := 1 + min(2, max(1, len(rows)))
	lines := m.devices(max(1, room-list-1))
	if len(lines)+list < room {
		lines = append(lines, "")
	}
	return append(lines, m.list(rows, max(1, room-len(lines)-1))...)
}

// devices are the lines about the devices.
func (m model) devices(room int) (lines []string) {
	for _, u := range m.seen.Report.Unavailable {
		lines = append(lines, red(u.Text), u.Remedy)
	}
	all := m.seen.Report.Devices
	for i := range all {
		of, last := m.device(&all[i]), 1
		if i == len(all)-1 {
			last = 0
		}
		if len(lines)+len(of)+last > room {
			return append(lines, faint(fmt.Sprintf("   and %s", count(len(all)-i, "more GPU", "more GPUs"))))
		}
		lines = append(lines, of...)
	}
	return lines
}

func count(n int, one, several string) string {
	if n == 1 {
		several = one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// list is a heading with so many rows below, among them the chosen one.
func (m model) list(rows []row, room int) []string {
	if len(rows) == 0 {
		return []string{faint(m.columns("GPU", "WHO", "WHAT", "MEMORY", "SINCE", "")), faint("no leases, no processes, nothing waits")}
	}
	below, beside := "", ""
	if len(rows) > room {
		if room > 1 {
			room--
			below = fmt.Sprintf("    and %d more", len(rows)-room)
		} else {
			beside = fmt.Sprintf("and %d more", len(rows)-room)
		}
	}
	lines := []string{faint(m.columns("GPU", "WHO", "WHAT", "MEMORY", "SINCE", beside))}
	at := m.chosen(rows)
	first := max(0, min(at-room/2, len(rows)-room))
	for i := first; i < len(rows) && i < first+room; i++ {
		lines = append(lines, m.line(rows[i], i == at))
	}
	if below != "" {
		lines = append(lines, faint(below))
	}
	return lines
}

// keys say what each key does.
func keys() []string {
	return []string{"", "↑ ↓ PgUp PgDn Home End  choose a row", "s  sort by GPU, user, memory or age", "/  show only rows with a text; Esc shows all",
		"r  release the chosen lease", "e  end the chosen process without a lease", "d  take the GPU of the row out of use, or back", "?  these keys; any key goes back", "q  leave"}
}

func (m model) head() string {
	s := &m.seen.Report
	free := 0
	for _, d := range s.Devices {
		if d.State() == string(status.Free) {
			free++
		}
	}
	text := fmt.Sprintf("gpuard  %d of %d free  %d waiting", free, len(s.Devices), len(s.Waiting))
	if m.seen.Trouble != "" {
		return text + "  " + red(m.seen.Trouble)
	}
	return text + faint("  driver "+s.Driver+"  "+s.Taken.Local().Format("15:04:05"))
}

// device is one line per device, and one per trouble.
func (m model) device(d *status.Device) []string {
	narrow := m.width < 70
	bar := max(4, min(16, (m.width-44)/2))
	if narrow {
		bar = max(4, m.width-38)
	}
	load, memory := faint("  -  "), faint("-")
	if d.Utilization != nil {
		load = fmt.Sprintf("%3.0f %%", 100**d.Utilization)
	}
	if used, all := d.InUse(), d.InAll(); used != nil && all != nil {
		memory = fmt.Sprintf("%s/%s", short(*used), short(*all))
	}
	name := fmt.Sprintf("%2d ", d.Index)
	if !narrow {
		name += pad(gpu.Model(d.Name), 16)
	}
	degrees := "  -"
	if d.Temperature != nil {
		degrees = fmt.Sprintf("%3d", *d.Temperature)
	}
	line := name + " " + m.curve(d, bar) + " " + load + "  " + pad(memory, 12) + " " + degrees + " C "
	if !narrow {
		watts := "   -"
		if d.Power != nil {
			watts = fmt.Sprintf("%4.0f", *d.Power)
		}
		line += watts + " W "
	}
	lines := []string{line + " " + use(d)}
	for _, why := range append(append([]string{}, d.Why...), d.Throttled...) {
		lines = append(lines, "   "+red(why))
	}
	return lines
}

func use(d *status.Device) string {
	word := d.State()
	switch {
	case word == string(d.Health):
		return red(word)
	case d.Use == status.Free:
		word = green(word)
	case d.Use == status.Draining, d.Use == status.Busy, d.Use == status.Unknown:
		word = yellow(word)
	}
	if d.Health != health.OK && len(d.Why) == 0 { // else the lines below say it, and a narrow terminal would cut it off
		word += " " + red(string(d.Health))
	}
	return word
}

// curve is the load of the last seconds, the newest on the right.
func (m model) curve(d *status.Device, width int) string {
	const steps = "▁▂▃▄▅▆▇█"
	history := m.loads[string(d.UUID)]
	history = history[max(0, len(history)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(history)))
	for _, v := range history {
		if v < 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune([]rune(steps)[min(7, int(v*8))])
	}
	return b.String()
}

func (m model) line(r row, chosen bool) string {
	device := "-"
	if r.index >= 0 {
		device = fmt.Sprint(r.index)
	}
	memory := "-"
	if r.memory != nil {
		memory = short(*r.memory)
	}
	age := "-"
	if r.since != nil {
		age = brief(m.seen.Report.Taken.Sub(*r.since))
	}
	text := m.columns(device, r.user, r.command, memory, age, r.name+" "+r.remark)
	if chosen {
		return marked(pad(text, m.width))
	}
	if r.kind == process {
		return yellow(text)
	}
	return text
}

// columns puts words below each other; the last one takes what is left.
func (m model) columns(device, user, command, memory, age, rest string) string {
	who, what := 10, max(10, m.width-60)
	if m.width < 70 {
		who, what = 7, max(8, m.width-42)
	}
	return pad(device, 3) + " " + pad(user, who) + " " + pad(command, what) + " " + pad(memory, 8) + " " + pad(age, 6) + " " + rest
}

// bottom is the last answer, in as many lines as it needs, and what can be typed.
func (m model) bottom() []string {
	if m.said == "" {
		return []string{m.foot()}
	}
	said := strings.Split(ansi.Wrap(m.said, m.width, ""), "\n")
	return append(said[:min(len(said), max(1, m.height/2))], m.foot())
}

func (m model) foot() string {
	switch {
	case m.ask != nil:
		return marked(" " + m.ask.question + " y/n ")
	case m.typing:
		return "filter: " + m.filter + "▏ Enter keeps it, Esc clears it"
	case m.width < 48:
		return faint("? keys  q quit")
	case m.width < 80:
		return faint("s sort  / filter  r release  e evict  d drain  ?")
	}
	keys := "↑↓ choose  s sort: " + m.order() + "  / filter"
	if m.filter != "" {
		keys = "s sort: " + m.order() + "  / filter: " + m.filter
	}
	return faint(keys + "  r release  e evict  d drain  ? keys  q quit")
}

// pad makes text exactly as wide.
func pad(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// short is a size in few columns: "20.5G".
func short(b gpu.Bytes) string {
	switch {
	case b >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(b)/(1<<30))
	case b >= 1<<20:
		return fmt.Sprintf("%.0fM", float64(b)/(1<<20))
	}
	return fmt.Sprintf("%.0fK", float64(b)/(1<<10))
}

// brief is a duration in few columns: "5m", "3h", "12d".
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", max(0, d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
	return fmt.Sprintf("%.0fd", d.Hours()/24)
}
