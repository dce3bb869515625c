package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// TableRow is one line of ps, queue and history, which have the same columns.
type TableRow struct {
	Name  string
	State Span
	// The GPUs on which it runs, or what it asks for.
	Where string
	// The PID of its command; 0 none.
	PID   int
	Ended string // when it ended
	// How long it runs or waits, or ran.
	Since string
	// What it is, where its name does not say so.
	About string
	// The time behind that: ", in about 5 min".
	When string
	// The note behind that, for people.
	Note   string
	Remark string // below the line
}

// RowHeads are the titles of the columns. Where PID, Ended or About is empty there is no such column; only one of the
// first two is there.
type RowHeads struct {
	Name, State, PID, Ended, Since, About string
	// Names are numbers.
	Number bool
}

// rowTable writes such a table.
type rowTable struct {
	*Page
	heads RowHeads
	// Widths.
	name, state, where, mark, since int
}

// WriteTable writes the rows. No line is wider than the terminal; below 60 columns a row takes two lines.
func (p *Page) WriteTable(heads RowHeads, rows []TableRow) {
	v := rowTable{Page: p}
	if v.Term.Width <= 0 {
		v.Term.Width = UsualWidth
	}

	in := v.Term.Translate
	v.heads = RowHeads{in(heads.Name), in(heads.State), in(heads.PID), in(heads.Ended), in(heads.Since), in(heads.About), heads.Number}
	rows = v.translateRows(rows)
	v.measureColumns(rows)
	if v.Term.Width >= TableWidth {
		v.writeColumns(Dim, TableRow{Name: v.heads.Name, State: Dim.Span(v.heads.State), Where: in("ON"), Since: v.heads.Since, About: v.heads.About}, v.heads.PID+v.heads.Ended)
	}

	for i := range rows {
		v.writeRow(&rows[i])
	}
}

// translateRows says states, places and times in the language of the terminal. Names and commands stay as they are.
func (v *rowTable) translateRows(rows []TableRow) []TableRow {
	said := slices.Clone(rows)
	for i := range said {
		r := &said[i]
		r.State.Text, r.Where = v.Term.Translate(r.State.Text), v.Term.Translate(r.Where)
		r.Ended, r.Since, r.When = v.Term.Translate(r.Ended), v.Term.Translate(r.Since), v.Term.Translate(r.When)
	}
	return said
}

// measureColumns sets the widths of the columns.
func (v *rowTable) measureColumns(rows []TableRow) {
	v.name, v.state, v.where, v.mark, v.since = CellWidth(v.heads.Name), CellWidth(v.heads.State), CellWidth(v.Term.Translate("ON")), CellWidth(v.heads.PID+v.heads.Ended), CellWidth(v.heads.Since)
	for i := range rows {
		r := &rows[i]
		v.name = max(v.name, CellWidth(v.Text(r.Name)))
		v.state = max(v.state, CellWidth(r.State.Text))
		v.where = max(v.where, CellWidth(v.Text(r.Where)))
		v.since = max(v.since, CellWidth(r.Since))
		if v.hasMark() {
			v.mark = max(v.mark, CellWidth(v.markOf(r)))
		}
	}

	// Columns that it has at least.
	const about = 20
	most := v.Term.Width - v.state - v.mark - v.since - 4*len(ColumnGap)
	if v.heads.About != "" {
		most -= about
	}

	v.where = min(v.where, max(most-v.name, most/2, len("GPU 0")))
	v.name = min(v.name, max(most-v.where, 8))
}

// writeColumns writes a row in its columns.
func (v *rowTable) writeColumns(s Style, r TableRow, mark string) {
	line := []Span{s.Span(Pad(v.Text(r.Name), v.name, v.heads.Number, v.Ellipsis()) + ColumnGap), r.State.Style.Span(Pad(r.State.Text, v.state, false, "")), s.Span(ColumnGap + Pad(v.Text(r.Where), v.where, false, v.Ellipsis()) + ColumnGap)}
	if v.hasMark() {
		line = append(line, s.Span(Pad(mark, v.mark, true, "")+ColumnGap))
	}

	since := r.Since
	if v.heads.About != "" {
		since = Pad(since, v.since, true, "") + ColumnGap
	}

	v.Line(append(line, s.Span(since), s.Span(v.Text(r.About)+r.When), Dim.Span(v.Text(r.Note)))...)
}

// writeRow writes a row, in two lines on a narrow terminal, and what there is to say of it.
func (v *rowTable) writeRow(r *TableRow) {
	indent := "  "
	if v.Term.Width >= TableWidth {
		v.writeColumns(Normal, *r, v.markOf(r))
	} else {
		name := v.Text(strings.TrimSpace(r.Name+ColumnGap+r.About)) + r.When
		v.Line(Bold.Span(Cut(name, max(v.Term.Width-CellWidth(r.State.Text)-2, 4), v.Ellipsis())), Normal.Span(ColumnGap), r.State)
		facts := []string{v.Text(r.Where)}
		if r.PID != 0 {
			facts = append(facts, "pid "+pidText(r.PID))
		}

		if r.Ended != "" {
			facts = append(facts, r.Ended)
		}

		if r.Since != "" {
			facts = append(facts, r.Since)
		}

		if r.Note != "" {
			facts = append(facts, v.Text(strings.TrimSpace(r.Note)))
		}

		v.WriteParagraph(Normal.Span(indent), Normal, strings.Join(facts, ", "))
	}
	if r.Remark != "" {
		v.WriteParagraph(Dim.Span(indent+v.PickGlyph("└ ", "- ")), Normal, v.Translate(r.Remark))
	}
}

// hasMark reports whether there is a column behind the places: PIDs, or when something ended.
func (v *rowTable) hasMark() bool { return v.heads.PID+v.heads.Ended != "" }

// markOf is what a row has in that column.
func (v *rowTable) markOf(r *TableRow) string {
	if v.heads.Ended != "" {
		return cmp.Or(r.Ended, "-")
	}
	return pidText(r.PID)
}

// pidText is a PID as a table has it.
func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}
