package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

// Explain writes what a program sees: logical number, index, model, PCI address and UUID of each device, then the
// notes. Below 60 columns each device takes several lines.
func Explain(w io.Writer, v visible.View, m gpu.Machine, term Term) {
	p := page{term: term}
	if len(v.Visible) == 0 {
		p.line(span{bold, "No GPU is visible."})
	} else {
		p.entries(v, &m)
	}
	if len(v.Notes) > 0 {
		p.line()
	}
	for _, n := range v.Notes {
		word := span{yellow, "note: "}
		if n.Widens() {
			word = span{red, "error: "}
		}
		p.paragraph(word, normal, p.text(n.Text))
	}
	_, _ = io.WriteString(w, p.out.String())
}

// ExplainProcess writes the process, its container, job and lease, and the variables that decide. Call Explain after
// it.
func ExplainProcess(w io.Writer, x *explain.Explanation, term Term) {
	p := page{term: term}
	e := x.Process
	p.paragraph(span{bold, fmt.Sprintf("Process %d ", e.PID)}, normal, cut(p.text("of "+cmp.Or(e.User, "an unknown user")+": "+e.Command), 300, p.dots()))
	if e.Container != "" {
		p.paragraph(span{normal, "  "}, normal, p.text("container "+e.Container[:min(12, len(e.Container))]))
	}
	if e.Job != "" {
		p.paragraph(span{normal, "  "}, normal, p.text("job "+e.Job))
	}
	if e.Lease != "" {
		fit := "what it sees is what the lease holds"
		if e.MatchesLease != nil && !*e.MatchesLease {
			fit = "what it sees is not what the lease holds"
		}
		p.paragraph(span{normal, "  "}, normal, "lease "+e.Lease+": "+fit)
	}
	decides := "no variable restricts it"
	if len(e.Variables) > 0 {
		decides = "decided by " + strings.Join(e.Variables, " ")
	}
	if len(e.Beaten) > 0 {
		decides += ", which wins over " + strings.Join(e.Beaten, " ")
	}
	p.paragraph(span{normal, "  "}, normal, p.text(decides))
	p.line()
	_, _ = io.WriteString(w, p.out.String())
}

func (p *page) entries(v visible.View, m *gpu.Machine) {
	table := [][]string{{"PROGRAM", "GPU", "MODEL", "PCI", "UUID"}}
	for _, e := range v.Visible {
		table = append(table, p.entry(e, m))
	}
	if p.term.Width > 0 && p.term.Width < tableWidth {
		for _, row := range table[1:] {
			p.line(span{cyan, row[0]}, span{normal, "  GPU " + row[1] + "  " + row[2]})
			p.line(span{normal, "  PCI " + row[3]})
			lead := "  "
			if p.term.Width < len(lead)+cells(row[4]) { // users copy it
				lead = ""
			}
			p.paragraph(span{normal, lead}, normal, row[4])
		}
		return
	}
	widths, over := p.columns(table)
	if over > 0 { // users copy the UUID, so the PCI address and then the model are shortened
		for _, row := range table {
			row[3] = strings.TrimPrefix(row[3], "0000:")
		}
		if widths, over = p.columns(table); over > 0 {
			widths[2] = max(widths[2]-over, len("MODEL"))
		}
	}
	for n, row := range table {
		program, rest := cyan, normal
		if n == 0 {
			program, rest = dim, dim
		}
		line := pad(row[1], widths[1], true, "") + between + pad(row[2], widths[2], false, p.dots()) + between + pad(row[3], widths[3], false, "") + between + row[4]
		p.line(span{program, pad(row[0], widths[0], false, "") + between}, span{rest, line})
	}
}

// columns returns the widths that the table needs, and by how much they exceed the terminal.
func (p *page) columns(table [][]string) (widths [5]int, over int) {
	for _, row := range table {
		for i, text := range row {
			widths[i] = max(widths[i], cells(text))
		}
	}
	if p.term.Width <= 0 {
		return widths, 0
	}
	over = (len(widths)-1)*len(between) - p.term.Width
	for _, w := range widths {
		over += w
	}
	return widths, over
}

func (p *page) entry(e visible.Entry, m *gpu.Machine) []string {
	model, pci := "?", "?"
	if d, _, ok := m.Find(e.UUID); ok {
		model, pci = gpu.Model(d.Name), d.PCI
	}
	if e.Profile != "" {
		model = fmt.Sprintf("MIG %s of %s", e.Profile, model)
	}
	return []string{fmt.Sprintf("%s:%d", e.Runtime, e.Logical), fmt.Sprint(e.Index), p.text(model), p.text(pci), p.text(string(e.UUID))}
}
