package checkcmd

import (
	"cmp"
	"fmt"
	"strings"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/console"
)

// explainView writes what a program sees: logical number, index, model, PCI address and UUID of each device, then the
// notes. Below 60 columns each device takes several lines.
func explainView(p *console.Page, v visible.View, m gpu.Machine) {
	if len(v.Visible) == 0 {
		p.Line(console.Bold.Span("No GPU is visible."))
	} else {
		writeEntries(p, v, &m)
	}

	if len(v.Notes) > 0 {
		p.Line()
	}

	for _, n := range v.Notes {
		word := console.Yellow.Span("note: ")
		if n.Widens() {
			word = console.Red.Span("error: ")
		}
		p.WriteParagraph(word, console.Normal, p.Text(n.Text))
	}
}

// explainProcessView writes the process, its container, job and lease, and the variables that decide. Call Explain
// after it.
func explainProcessView(p *console.Page, x *explain.Explanation) {
	e := x.Process
	p.WriteParagraph(console.Bold.Span(fmt.Sprintf("Process %d ", e.PID)), console.Normal, console.Cut(p.Text("of "+cmp.Or(e.User, "an unknown user")+": "+e.Command), 300, p.Ellipsis()))
	if e.Container != "" {
		p.WriteParagraph(console.Normal.Span("  "), console.Normal, p.Text("container "+e.Container[:min(12, len(e.Container))]))
	}

	if e.Job != "" {
		p.WriteParagraph(console.Normal.Span("  "), console.Normal, p.Text("job "+e.Job))
	}

	if e.Lease != "" {
		fit := "what it sees is what the lease holds"
		if e.MatchesLease != nil && !*e.MatchesLease {
			fit = "what it sees is not what the lease holds"
		}
		p.WriteParagraph(console.Normal.Span("  "), console.Normal, "lease "+e.Lease+": "+fit)
	}

	decides := "no variable restricts it"
	if len(e.Variables) > 0 {
		decides = "decided by " + strings.Join(e.Variables, " ")
	}

	if len(e.Beaten) > 0 {
		decides += ", which wins over " + strings.Join(e.Beaten, " ")
	}

	p.WriteParagraph(console.Normal.Span("  "), console.Normal, p.Text(decides))
	p.Line()
}

func writeEntries(p *console.Page, v visible.View, m *gpu.Machine) {
	table := [][]string{{"PROGRAM", "GPU", "MODEL", "PCI", "UUID"}}
	for _, e := range v.Visible {
		table = append(table, entryCells(p, e, m))
	}

	if p.Term.Width > 0 && p.Term.Width < console.TableWidth {
		for _, row := range table[1:] {
			p.Line(console.Cyan.Span(row[0]), console.Normal.Span("  GPU "+row[1]+"  "+row[2]))
			p.Line(console.Normal.Span("  PCI " + row[3]))
			lead := "  "
			if p.Term.Width < len(lead)+console.CellWidth(row[4]) {
				// Users copy it.
				lead = ""
			}

			p.WriteParagraph(console.Normal.Span(lead), console.Normal, row[4])
		}
		return
	}

	widths, over := p.ColumnWidths(table)
	if over > 0 {
		// Users copy the UUID, so the PCI address and then the model are shortened.
		for _, row := range table {
			row[3] = strings.TrimPrefix(row[3], "0000:")
		}
		widths, over = p.ColumnWidths(table)
		if over > 0 {
			widths[2] = max(widths[2]-over, len("MODEL"))
		}
	}

	for n, row := range table {
		program, rest := console.Cyan, console.Normal
		if n == 0 {
			program, rest = console.Dim, console.Dim
		}
		line := console.Pad(row[1], widths[1], true, "") + console.ColumnGap + console.Pad(row[2], widths[2], false, p.Ellipsis()) + console.ColumnGap + console.Pad(row[3], widths[3], false, "") + console.ColumnGap + row[4]
		p.Line(program.Span(console.Pad(row[0], widths[0], false, "")+console.ColumnGap), rest.Span(line))
	}
}

// entryCells are the columns of a device that a program sees.
func entryCells(p *console.Page, e visible.Entry, m *gpu.Machine) []string {
	model, pci := "?", "?"
	if d, _, ok := m.FindDevice(e.UUID); ok {
		model, pci = gpu.ModelName(d.Name), d.PCI
	}
	if e.Profile != "" {
		model = fmt.Sprintf("MIG %s of %s", e.Profile, model)
	}

	return []string{fmt.Sprintf("%s:%d", e.Runtime, e.Logical), fmt.Sprint(e.Index), p.Text(model), p.Text(pci), p.Text(string(e.UUID))}
}
