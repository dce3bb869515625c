package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"gpuard/internal/app/services"
)

// Instances writes the instances of a project, one line each, with remarks below. No line is wider than the terminal;
// below 60 columns an instance takes two lines.
func Instances(w io.Writer, view *services.View, which func(*services.Row) bool, now time.Time, term Term) {
	if term.Width <= 0 {
		term.Width = usualWidth
	}
	v := &instancesPage{page: page{term: term}, now: now}
	var rows []*services.Row
	for i := range view.Rows {
		if row := &view.Rows[i]; which(row) {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		v.paragraph(span{}, normal, v.text(nothingUp(view)))
		_, _ = io.WriteString(w, v.out.String())
		return
	}
	v.measure(rows)
	if term.Width >= tableWidth {
		v.row(dim, "INSTANCE", span{dim, "STATE"}, "ON", "PID", "SINCE")
	}
	running := false
	for _, row := range rows {
		v.instance(row)
		running = running || alive(row)
	}
	if running && !view.Supervised {
		v.line()
		v.paragraph(span{yellow, "! "}, normal, "gpuard was killed: instances keep running, but nothing starts or ends them. To supervise them again: gpuard up -d")
	}
	_, _ = io.WriteString(w, v.out.String())
}

type instancesPage struct {
	page
	now                     time.Time
	name, state, where, pid int // widths
}

func (v *instancesPage) measure(rows []*services.Row) {
	v.name, v.state, v.where, v.pid = len("INSTANCE"), len("STATE"), len("ON"), len("PID")
	for _, row := range rows {
		state, _ := stateWord(row)
		v.name = max(v.name, cells(v.text(row.Name)))
		v.state = max(v.state, cells(state))
		v.where = max(v.where, cells(v.text(whereOf(row))))
		v.pid = max(v.pid, len(pidOf(row)))
	}
	const since = 7
	most := v.term.Width - v.state - v.pid - since - 4*len(between)
	v.where = min(v.where, max(most-v.name, most/2))
	v.name = min(v.name, max(most-v.where, 8))
}

func (v *instancesPage) row(s style, name string, state span, where, pid, since string) {
	v.line(span{s, pad(name, v.name, false, v.dots()) + between}, span{state.style, pad(state.text, v.state, false, "")},
		span{s, between + pad(where, v.where, false, v.dots()) + between + pad(pid, v.pid, true, "") + between + since})
}

func (v *instancesPage) instance(row *services.Row) {
	word, style := stateWord(row)
	name, where, since := v.text(row.Name), v.text(whereOf(row)), ""
	if !row.Since.IsZero() {
		since = age(v.now.Sub(row.Since))
	}
	indent := "  "
	if v.term.Width >= tableWidth {
		v.row(normal, name, span{style, word}, where, pidOf(row), since)
	} else {
		v.line(span{bold, cut(name, max(v.term.Width-cells(word)-2, 4), v.dots())}, span{normal, between}, span{style, word})
		facts := []string{where}
		if row.Main.PID != 0 {
			facts = append(facts, "pid "+pidOf(row))
		}
		if since != "" {
			facts = append(facts, since)
		}
		v.paragraph(span{normal, indent}, normal, strings.Join(facts, ", "))
	}
	if text := remark(row); text != "" {
		v.paragraph(span{dim, indent + v.pick("└ ", "- ")}, normal, v.text(text))
	}
}

func pidOf(row *services.Row) string {
	if row.Main.PID == 0 {
		return "-"
	}
	return fmt.Sprint(row.Main.PID)
}
