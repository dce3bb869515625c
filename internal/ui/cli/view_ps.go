package cli

import (
	"io"
	"time"

	"gpuard/internal/app/services"
)

// Instances writes the instances of a project, one line each, with remarks below.
func Instances(w io.Writer, view *services.View, which func(*services.Row) bool, now time.Time, term Term) {
	v := &rowsPage{page: page{term: term}}
	var rows []tableRow
	running := false
	for i := range view.Rows {
		row := &view.Rows[i]
		if !which(row) {
			continue
		}
		word, style := stateWord(row)
		since := ""
		if !row.Since.IsZero() {
			since = age(now.Sub(row.Since))
		}
		rows = append(rows, tableRow{name: row.Name, state: span{style, word}, where: whereOf(row), pid: row.Main.PID, since: since, remark: remark(row)})
		running = running || alive(row)
	}
	if len(rows) == 0 {
		v.paragraph(span{}, normal, v.text(nothingUp(view)))
		_, _ = io.WriteString(w, v.out.String())
		return
	}
	v.writeTable(rowHeads{name: "INSTANCE", state: "STATE", pid: "PID", since: "SINCE"}, rows)
	if running && !view.Supervised {
		v.line()
		v.paragraph(span{yellow, "! "}, normal, "gpuard was killed: instances keep running, but nothing starts or ends them. To supervise them again: gpuard up -d")
	}
	_, _ = io.WriteString(w, v.out.String())
}
