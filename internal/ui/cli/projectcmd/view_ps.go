package projectcmd

import (
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/ui/console"
)

// instancesView writes the instances of a project, one line each, with remarks below.
func instancesView(v *console.Page, view *services.View, which func(*services.Row) bool, now time.Time) {
	var rows []console.TableRow
	running := false
	for i := range view.Rows {
		row := &view.Rows[i]
		if !which(row) {
			continue
		}

		word, style := stateWord(row)
		since := ""
		if !row.Since.IsZero() {
			since = console.AgeText(now.Sub(row.Since))
		}

		rows = append(rows, console.TableRow{Name: row.Name, State: style.Span(word), Where: whereOf(row), PID: row.Main.PID, Since: since, Remark: remarkText(row)})
		running = running || isAlive(row)
	}

	if len(rows) == 0 {
		v.WriteParagraph(console.Span{}, console.Normal, v.Text(NothingUpText(view)))
		return
	}

	v.WriteTable(console.RowHeads{Name: "INSTANCE", State: "STATE", PID: "PID", Since: "SINCE"}, rows)
	if running && !view.Supervised {
		v.Line()
		v.WriteParagraph(console.Yellow.Span("! "), console.Normal, "gpuard was killed: instances keep running, but nothing starts or ends them. To supervise them again: gpuard up -d")
	}
}
