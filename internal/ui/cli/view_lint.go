package cli

import (
	"fmt"
	"io"
	"strings"

	"gpuard/internal/app/linter"
	"gpuard/internal/core/check"
	"gpuard/internal/core/prose"
)

// Lint writes each finding: its place, what is wrong, the reason, and the corrected line.
func Lint(w io.Writer, r linter.Report, term Term) {
	p := &page{term: term}
	for _, f := range r.Findings {
		p.lintFinding(f)
	}
	p.lintSummary(r)
	_, _ = io.WriteString(w, p.out.String())
}

func (p *page) lintFinding(f linter.Mistake) {
	place := fmt.Sprintf("%s:%d:%d: ", f.Path, f.Line, f.Column)
	if f.Cell > 0 {
		place = fmt.Sprintf("%s:cell %d:%d:%d: ", f.Path, f.Cell, f.Line, f.Column)
	}
	// Editors parse "path:line:column:", so the first line is never broken.
	p.styled(bold, p.text(place))
	if f.Fixed {
		p.styled(green, "fixed")
	} else {
		p.styled(severityStyle(f.Severity), string(f.Severity))
	}
	p.out.WriteString(": " + p.text(f.Seen) + " (" + f.Code + ")\n")
	if f.Why != "" {
		p.paragraph(span{normal, "    "}, dim, p.text(f.Why))
	}
	switch {
	case f.Instead != "":
		p.lintLines(red, "  - ", f.Now)
		p.lintLines(green, "  + ", f.Instead)
	case f.Do != "":
		p.paragraph(span{normal, "    "}, normal, p.text(f.Do))
	}
}

// lintLines writes lines of a file in full, because users copy them.
func (p *page) lintLines(s style, lead, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		p.styled(s, lead+p.text(line))
		p.out.WriteByte('\n')
	}
}

func severityStyle(s check.Severity) style {
	switch s {
	case check.Error:
		return red
	case check.Warning:
		return yellow
	}
	return cyan
}

// lintSummary writes the counts and what to type next.
func (p *page) lintSummary(r linter.Report) {
	count := map[check.Severity]int{}
	fixed, fixable := 0, 0
	for _, f := range r.Findings {
		switch {
		case f.Fixed:
			fixed++
			continue
		case f.Fixable:
			fixable++
		}
		count[f.Severity]++
	}
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{fixed, "fixed"}, {count[check.Error], "error"}, {count[check.Warning], "warning"}, {count[check.Info], "remark"}, {r.Silenced, "silenced"}, {len(r.Skipped), "not read"}} {
		if c.n > 0 {
			parts = append(parts, counted(c.n, c.what))
		}
	}
	text := "no findings in " + prose.Count(r.Files, "file")
	if r.Files == 0 && len(r.Problems) > 0 {
		text = "nothing was checked"
	}
	if len(r.Findings) > 0 {
		text = prose.Count(r.Files, "file")
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	switch {
	case fixable > 0 && fixable == len(r.Findings):
		text += "; --fix mends that"
	case fixable > 0:
		text += fmt.Sprintf("; --fix mends %d", fixable)
	}
	if count[check.Error]+count[check.Warning]+count[check.Info] > 0 {
		text += "; what a code means: gpuard doctor --why CODE"
	}
	if len(r.Findings) > 0 {
		p.out.WriteByte('\n')
	}
	p.advice(span{}, normal, text)
	for i, o := range r.Skipped {
		if i == 3 && len(r.Skipped) > 4 {
			p.paragraph(span{normal, "  "}, dim, fmt.Sprintf("and %d more: --json lists them", len(r.Skipped)-i))
			break
		}
		p.paragraph(span{normal, "  "}, dim, p.text(o.Path+": "+o.Why))
	}
}

// counted is a number and its noun in the plural if needed. Adjectives have no plural.
func counted(n int, what string) string {
	if n != 1 && (what == "error" || what == "warning" || what == "remark") {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
