package cli

import (
	"fmt"
	"io"

	core "gpuard/internal/core/compare"
	"gpuard/internal/core/gpu"
)

// comparedView writes what gpuard compare shows.
func comparedView(w io.Writer, a *compared, t Term) {
	v := &page{term: t}
	for i := range a.Commands {
		c := &a.Commands[i]
		text := asTyped(c.Argv)
		if c.Service != "" {
			text = v.text(c.Service) + ": " + text
		}
		v.paragraph(span{dim, c.Command + "  "}, normal, text)
	}
	if !a.Complete {
		v.sentence("interrupted: only the runs that were complete count")
	}
	v.comparison(a)
	for _, text := range a.Conclusion {
		v.paragraph(span{}, normal, v.text(text))
	}
	for _, text := range a.Warnings {
		v.paragraph(span{dim, "warning: "}, normal, v.text(text))
	}
	_, _ = io.WriteString(w, v.out.String())
}

// comparison adds the tables, unless there is nothing to be seen in them.
func (p *page) comparison(a *compared) {
	if len(a.Quantities) == 0 {
		return
	}
	p.line(span{dim, "                   runs   median   lowest  highest  against " + p.text(string(a.Arms[0].Arm))})
	for i := range a.Quantities {
		q := &a.Quantities[i]
		if i == 0 || a.Quantities[i-1].Command != q.Command || a.Quantities[i-1].Name != q.Name {
			p.line(span{normal, p.text(quantityTitle(q))})
		}
		p.line(span{normal, fmt.Sprintf("  %-16s %5d %8s %8s %8s  %s", p.text(string(q.Arm)), q.Runs, measure(q, q.Median), measure(q, q.Lowest), measure(q, q.Highest), ratioText(q))})
	}
	p.line(span{dim, "of the GPUs        load   memory    power   energy    clock"})
	for i := range a.Arms {
		u := &a.Arms[i].Use
		p.line(span{normal, fmt.Sprintf("  %-16s %5s %8s %8s %8s %8s", p.text(string(a.Arms[i].Arm)), percent64(u.Load), bytesOrDash(u.Memory), unit(u.Power, "W"), unit(u.Energy, "J"), unit(u.Clock, "MHz"))})
	}
}

func quantityTitle(q *core.Quantity) string {
	if q.Command == core.Everything {
		switch {
		case q.Time():
			return "all, until the last has ended"
		default:
			return "all, energy"
		}
	}
	if q.Time() {
		return q.Command + ", time"
	}
	return q.Command + ", " + q.Name
}

// measure is a number of a quantity in its unit.
func measure(q *core.Quantity, v float64) string {
	switch {
	case q.Time():
		return fmt.Sprintf("%.3g s", v)
	case q.Metric:
		return fmt.Sprintf("%.4g", v)
	}
	return unit(&v, "J")
}

func ratioText(q *core.Quantity) string {
	if q.Ratio == nil {
		return ""
	}
	return q.Ratio.Short()
}

func unit(v *float64, name string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g %s", *v, name)
}

func bytesOrDash(v *gpu.Bytes) string {
	if v == nil {
		return "-"
	}
	return v.String()
}
