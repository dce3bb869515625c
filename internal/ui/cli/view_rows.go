package cli

import (
	"fmt"
	"strings"
)

// tableRow is one line of ps, queue and history, which have the same columns.
type tableRow struct {
	name   string
	state  span
	where  string // on which GPUs it runs, or what it asks for
	pid    int    // of its command; 0 none
	since  string // how long it runs or waits, or ran
	about  string // what it is, where its name does not say so
	note   string // behind that, for people
	remark string // below the line
}

// rowHeads are the titles of the columns. Where pid or about is empty there is no such column.
type rowHeads struct{ name, state, pid, since, about string }

// rowsPage writes such a table.
type rowsPage struct {
	page
	heads                          rowHeads
	number                         bool // names are numbers
	name, state, where, pid, since int  // widths
}

// writeTable writes the rows. No line is wider than the terminal; below 60 columns a row takes two lines.
func (v *rowsPage) writeTable(heads rowHeads, rows []tableRow) {
	if v.term.Width <= 0 {
		v.term.Width = usualWidth
	}
	v.heads = heads
	v.measureColumns(rows)
	if v.term.Width >= tableWidth {
		v.writeColumns(dim, tableRow{name: heads.name, state: span{dim, heads.state}, where: "ON", since: heads.since, about: heads.about}, heads.pid)
	}
	for i := range rows {
		v.writeRow(&rows[i])
	}
}

// measureColumns sets the widths of the columns.
func (v *rowsPage) measureColumns(rows []tableRow) {
	v.name, v.state, v.where, v.pid, v.since = len(v.heads.name), len(v.heads.state), len("ON"), len(v.heads.pid), len(v.heads.since)
	for i := range rows {
		r := &rows[i]
		v.name = max(v.name, cells(v.text(r.name)))
		v.state = max(v.state, cells(r.state.text))
		v.where = max(v.where, cells(v.text(r.where)))
		v.since = max(v.since, cells(r.since))
		if v.heads.pid != "" {
			v.pid = max(v.pid, len(pidText(r.pid)))
		}
	}
	const about = 20 // columns that it has at least
	most := v.term.Width - v.state - v.pid - v.since - 4*len(between)
	if v.heads.about != "" {
		most -= about
	}
	v.where = min(v.where, max(most-v.name, most/2))
	v.name = min(v.name, max(most-v.where, 8))
}

// writeColumns writes a row in its columns.
func (v *rowsPage) writeColumns(s style, r tableRow, pid string) {
	line := []span{{s, pad(v.text(r.name), v.name, v.number, v.dots()) + between}, {r.state.style, pad(r.state.text, v.state, false, "")}, {s, between + pad(v.text(r.where), v.where, false, v.dots()) + between}}
	if v.heads.pid != "" {
		line = append(line, span{s, pad(pid, v.pid, true, "") + between})
	}
	since := r.since
	if v.heads.about != "" {
		since = pad(since, v.since, true, "") + between
	}
	v.line(append(line, span{s, since}, span{s, v.text(r.about)}, span{dim, v.text(r.note)})...)
}

// writeRow writes a row, in two lines on a narrow terminal, and what there is to say of it.
func (v *rowsPage) writeRow(r *tableRow) {
	indent := "  "
	if v.term.Width >= tableWidth {
		v.writeColumns(normal, *r, pidText(r.pid))
	} else {
		name := v.text(strings.TrimSpace(r.name + between + r.about))
		v.line(span{bold, cut(name, max(v.term.Width-cells(r.state.text)-2, 4), v.dots())}, span{normal, between}, r.state)
		facts := []string{v.text(r.where)}
		if r.pid != 0 {
			facts = append(facts, "pid "+pidText(r.pid))
		}
		if r.since != "" {
			facts = append(facts, r.since)
		}
		if r.note != "" {
			facts = append(facts, v.text(strings.TrimSpace(r.note)))
		}
		v.paragraph(span{normal, indent}, normal, strings.Join(facts, ", "))
	}
	if r.remark != "" {
		v.paragraph(span{dim, indent + v.pick("└ ", "- ")}, normal, v.text(r.remark))
	}
}

// pidText is a PID as a table has it.
func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}
