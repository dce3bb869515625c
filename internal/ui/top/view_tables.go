package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/prose"

	"github.com/charmbracelet/x/ansi"
)

// column is one of a table. Of all, one takes the width that is left.
type column struct {
	title string
	width int // 0: what is left
	right bool
	text  func(r *row) string
	paint func(r *row, text string) string // nil: as it is
}

// tables are the lists below the devices: what runs, and what waits.
type tables struct {
	*model
	running, waiting []row
	chosenID         string
}

func newTables(m *model, running, waiting []row) *tables {
	v := &tables{model: m, running: running, waiting: waiting}
	all := append(slices.Clone(running), waiting...)
	if len(all) > 0 {
		v.chosenID = all[v.chosenPlace(all)].id
	}

	return v
}

// drawTables are the lines of both.
func (t *tables) drawTables(room int) []string {
	running, waiting := t.running, t.waiting
	forWaiting := 0
	if len(waiting) > 0 {
		forWaiting = 1 + min(len(waiting), max(1, room/3))
	}

	if len(running)+2+len(waiting)+1 <= room {
		forWaiting = 1 + len(waiting)
		if len(waiting) == 0 {
			forWaiting = 0
		}
	}

	if room < 4 && forWaiting > 0 {
		// The chosen row has to be there.
		forWaiting = 0
		if slices.ContainsFunc(waiting, func(r row) bool { return r.id == t.chosenID }) {
			return t.tableLines(t.waitingColumns(), waiting, room)
		}
	}

	lines := t.tableLines(t.jobColumns(), running, room-forWaiting)
	if forWaiting == 0 {
		if hidden := len(waiting); hidden > 0 && len(lines) > 0 {
			lines[0] = t.appendCount(lines[0], hidden)
		}
		return lines
	}

	for len(lines) < room-forWaiting && len(lines) < len(running)+2 {
		lines = append(lines, "")
	}

	return append(lines, t.tableLines(t.waitingColumns(), waiting, forWaiting)...)
}

// appendCount counts at the end of a line what has no room.
func (t *tables) appendCount(line string, hidden int) string {
	note := t.say(fmt.Sprintf("and %d more", hidden))
	room := t.width - ansi.StringWidth(note) - 1
	return ansi.Truncate(line, room, "") + strings.Repeat(" ", max(1, t.width-min(room, ansi.StringWidth(line))-ansi.StringWidth(note))) + t.theme.dimText(note)
}

// tableLines is a heading with so many lines below, among them the chosen row.
func (t *tables) tableLines(columns []column, rows []row, room int) []string {
	if room < 1 {
		return nil
	}

	fitColumns(columns, t.width)
	heading := t.theme.dimText(t.headingLine(columns))
	if len(rows) == 0 {
		return []string{heading, t.theme.dimText(t.say("no leases, no processes"))}[:min(2, room)]
	}

	room--
	below := ""
	if len(rows) > room {
		if room > 2 {
			room--
			below = fmt.Sprintf("and %d more", len(rows)-room)
		} else {
			heading = t.appendCount(t.headingLine(columns), len(rows)-room)
		}
	}

	lines := []string{heading}
	chosen := t.chosenID
	at := 0
	for i := range rows {
		if rows[i].id == chosen {
			at = i
		}
	}

	first := max(0, min(at-room/2, len(rows)-room))
	for i := first; i < len(rows) && i < first+room; i++ {
		lines = append(lines, t.rowLine(columns, &rows[i], rows[i].id == chosen))
	}

	if below != "" {
		lines = append(lines, t.theme.dimText("    "+t.say(below)))
	}

	return lines
}

// fitColumns gives the column without a width what is left.
func fitColumns(columns []column, width int) {
	left, open := width, -1
	for i := range columns {
		left -= columns[i].width + 1
		if columns[i].width == 0 {
			open = i
		}
	}
	if open >= 0 {
		columns[open].width = max(6, left+1)
	}
}

func (t *tables) headingLine(columns []column) string {
	var parts []string
	for _, c := range columns {
		parts = append(parts, alignCell(&c, t.say(c.title)))
	}
	return strings.Join(parts, " ")
}

func alignCell(c *column, text string) string {
	if c.right {
		return padLeft(text, c.width)
	}
	return padRight(text, c.width)
}

func (t *tables) rowLine(columns []column, r *row, chosen bool) string {
	var parts []string
	for i := range columns {
		c := &columns[i]
		text := alignCell(c, c.text(r))
		if c.paint != nil && !chosen {
			text = c.paint(r, text)
		}
		parts = append(parts, text)
	}

	text := strings.Join(parts, " ")
	if chosen {
		return invertText(padRight(ansi.Strip(text), t.width))
	}

	return text
}

// jobColumns are those of what runs.
func (t *tables) jobColumns() []column {
	wide, narrow := t.width >= 120, t.width < 70
	who := 8
	if wide {
		who = 12
	}

	gpus := column{title: "GPU", width: 5, text: func(r *row) string { return gpusOf(r, 5) }}
	user := column{title: "USER", width: who, text: func(r *row) string { return r.user }, paint: t.paintUser}
	job := column{title: "JOB", text: jobText, paint: t.paintOdd}
	load := column{title: "LOAD", width: 4, right: true, text: loadText, paint: func(r *row, text string) string {
		return prose.ValueOr(r.load, t.theme.dimText(text), func(load float64) string { return t.theme.paintText(text, t.theme.loadColour(load)) })
	}}

	memory := column{title: "MEMORY", width: 6, right: true, text: memoryText}
	since := column{title: "SINCE", width: 5, right: true, text: func(r *row) string { return t.ageText(r) }}
	if narrow {
		return []column{gpus, user, job, load, memory, since}
	}

	curve := column{title: "", width: 6, text: func(r *row) string { return curveOf(t.curves[r.id], 6) }, paint: func(_ *row, text string) string { return t.theme.paintText(text, t.theme.high) }}
	processors := column{title: "CPUS", width: 5, right: true, text: processorText}
	resident := column{title: "RAM", width: 6, right: true, text: residentText}
	end := column{title: "END", width: 8, text: func(r *row) string { return t.say(r.end) }, paint: t.paintOdd}
	if !wide {
		return []column{gpus, user, job, load, curve, memory, processors, resident, since, end}
	}

	gpus.width, gpus.text = 8, func(r *row) string { return gpusOf(r, 8) }
	curve.width, curve.text = 20, func(r *row) string { return curveOf(t.curves[r.id], 20) }
	if t.width < 150 {
		return []column{gpus, user, job, load, curve, memory, processors, resident, since, end}
	}

	job.width = 26
	id := column{title: "LEASE", width: 7, text: func(r *row) string { return r.name }}
	line := column{title: "COMMAND", text: func(r *row) string { return r.line }, paint: t.paintFaint}

	return []column{gpus, user, job, load, curve, memory, processors, resident, since, end, id, line}
}

// waitingColumns are those of what waits.
func (t *tables) waitingColumns() []column {
	who, what := 8, max(10, min(26, t.width/5))
	if t.width >= 120 {
		who = 12
	}

	place := column{title: "WAIT", width: 4, text: func(r *row) string { return t.placeInLine(r) }}
	user := column{title: "USER", width: who, text: func(r *row) string { return r.user }, paint: t.paintUser}
	job := column{title: "JOB", width: what, text: jobText}
	asks := column{title: "ASKS", width: 11, text: func(r *row) string { return t.say(r.where) }}
	start := column{title: "START", width: 7, text: func(r *row) string { return t.say(r.end) }}
	since := column{title: "SINCE", width: 5, right: true, text: func(r *row) string { return t.ageText(r) }}
	why := column{title: "WHY", text: func(r *row) string { return t.say(r.remark) }, paint: t.paintFaint}
	if t.width < 70 {
		asks.width, job.width = 6, 0
		return []column{place, user, job, asks, start, since}
	}

	return []column{place, user, job, asks, start, since, why}
}

// placeInLine is the place of a request among those that are shown to wait.
func (t *tables) placeInLine(r *row) string {
	for i := range t.seen.Report.Waiting {
		if w := &t.seen.Report.Waiting[i]; w.ID == r.name && r.kind == request {
			return fmt.Sprint("#", w.Place)
		}
	}
	return "·"
}

// gpusOf are the devices of a row, or how many where they have no room.
func gpusOf(r *row, width int) string {
	if r.kind == worker {
		return ""
	}
	text := strings.ReplaceAll(r.where, ", ", ",")
	if ansi.StringWidth(text) > width {
		return fmt.Sprintf("%d×", 1+strings.Count(r.where, ","))
	}

	return text
}

func jobText(r *row) string {
	if r.kind == worker {
		return strings.Repeat("  ", max(0, r.depth-1)) + "└ " + r.name + " " + r.command
	}
	if r.job > 0 {
		return fmt.Sprintf("%d %s", r.job, r.command)
	}
	return r.command
}

func loadText(r *row) string {
	return prose.ValueOr(r.load, "-", func(load float64) string { return fmt.Sprintf("%.0f%%", 100*load) })
}

func memoryText(r *row) string { return prose.ValueOr(r.memory, "-", formatSize) }

func processorText(r *row) string {
	if r.work == nil || r.work.processors < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.work.processors)
}

func residentText(r *row) string {
	if r.work == nil || r.work.memory == 0 {
		return "-"
	}
	return formatSize(r.work.memory)
}

func (t *tables) ageText(r *row) string {
	return prose.ValueOr(r.since, "-", func(at time.Time) string { return briefDuration(t.seen.Report.Taken.Sub(at)) })
}

// curveOf is the share of the memory that was in use, the newest at the right.
func curveOf(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(values)))

	for _, v := range values {
		if v < 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune([]rune(barGlyphs)[min(7, int(v*8))])
	}

	return b.String()
}
