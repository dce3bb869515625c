package top

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
)

// Colours are those of the terminal, so that they fit its background.
func red(s string) string    { return lipgloss.NewStyle().Foreground(lipgloss.Red).Render(s) }
func green(s string) string  { return lipgloss.NewStyle().Foreground(lipgloss.Green).Render(s) }
func yellow(s string) string { return lipgloss.NewStyle().Foreground(lipgloss.Yellow).Render(s) }
func faint(s string) string  { return lipgloss.NewStyle().Faint(true).Render(s) }
func marked(s string) string { return lipgloss.NewStyle().Reverse(true).Render(s) }

// screen is everything on it, in at most height lines of width columns.
func (m model) screen() string {
	var lines []string
	add := func(line string) { lines = append(lines, ansi.Truncate(line, m.width, "…")) }
	add(m.head())
	for i := range m.seen.Report.Devices {
		for _, line := range m.device(&m.seen.Report.Devices[i]) {
			add(line)
		}
	}
	for _, u := range m.seen.Report.Unavailable {
		add(red(u.Text))
		add(u.Remedy)
	}
	add("")
	rows := m.rows()
	add(faint(m.columns("GPU", "WHO", "WHAT", "MEMORY", "SINCE", "")))
	room := max(1, m.height-len(lines)-2)
	first := max(0, min(m.chosen(rows)-room/2, len(rows)-room))
	for i := first; i < len(rows) && i < first+room; i++ {
		add(m.line(rows[i], i == m.chosen(rows)))
	}
	if len(rows) == 0 {
		add(faint("no leases, no processes, nothing waits"))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], ansi.Truncate(m.foot(), m.width, "…"))
	return strings.Join(lines, "\n")
}

func (m model) head() string {
	s := &m.seen.Report
	free := 0
	for _, d := range s.Devices {
		if d.Use == status.Free {
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
	if d.MemoryUsed != nil && d.MemoryTotal != nil {
		memory = fmt.Sprintf("%s/%s", short(*d.MemoryUsed), short(*d.MemoryTotal))
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
	word := string(d.Use)
	switch d.Use {
	case status.Free:
		word = green(word)
	case status.Draining, status.Busy:
		word = yellow(word)
	}
	if d.Health != "ok" {
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

func (m model) foot() string {
	switch {
	case m.ask != nil:
		return marked(" " + m.ask.question + " y/n ")
	case m.typing:
		return "filter: " + m.filter + "▏ Enter keeps it, Esc clears it"
	case m.said != "":
		return m.said
	case m.width < 70:
		return faint("↑↓ s:" + m.order() + " / r e d q")
	}
	keys := "↑↓ choose  s sort: " + m.order() + "  / filter"
	if m.filter != "" {
		keys += ": " + m.filter
	}
	return faint(keys + "  r release  e evict  d drain  q quit")
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
