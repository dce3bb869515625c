package checkcmd

import (
	"fmt"
	"strings"

	"gpuard/internal/app/linter"
	"gpuard/internal/core/check"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/console"
)

// lintView writes each finding: its place, what is wrong, the reason, and the corrected line.
func lintView(p *console.Page, r linter.Report) {
	for _, f := range r.Findings {
		lintFinding(p, f)
	}
	lintSummary(p, r)
}

func lintFinding(p *console.Page, f linter.LocatedFinding) {
	place := fmt.Sprintf("%s:%d:%d: ", f.Path, f.Line, f.Column)
	if f.Cell > 0 {
		place = fmt.Sprintf("%s:cell %d:%d:%d: ", f.Path, f.Cell, f.Line, f.Column)
	}

	// Editors parse "path:line:column:", so the first line is never broken.
	p.WriteStyled(console.Bold, p.Text(place))
	if f.Fixed {
		p.WriteStyled(console.Green, "fixed")
	} else {
		p.WriteStyled(severityStyle(f.Severity), string(f.Severity))
	}

	p.Out.WriteString(": " + p.Text(f.Seen) + " (" + f.Code + ")\n")
	if f.Why != "" {
		p.WriteParagraph(console.Normal.Span("    "), console.Dim, p.Text(f.Why))
	}

	switch {
	case f.Instead != "":
		lintLines(p, console.Red, "  - ", f.Now)
		lintLines(p, console.Green, "  + ", f.Instead)
	case f.Do != "":
		p.WriteParagraph(console.Normal.Span("    "), console.Normal, p.Text(f.Do))
	}
}

// lintLines writes lines of a file in full, because users copy them.
func lintLines(p *console.Page, s console.Style, lead, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		p.WriteStyled(s, lead+p.Text(line))
		p.Out.WriteByte('\n')
	}
}

func severityStyle(s check.Severity) console.Style {
	switch s {
	case check.Error:
		return console.Red
	case check.Warning:
		return console.Yellow
	}
	return console.Cyan
}

// lintSummary writes the counts and what to type next.
func lintSummary(p *console.Page, r linter.Report) {
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
	}{{fixed, "fixed"}, {count[check.Error], "error"}, {count[check.Warning], "warning"}, {count[check.Info], "remark"}, {r.Silenced, "silenced"}, {len(r.Partial), "read in part"}, {len(r.Skipped), "not read"}} {
		if c.n > 0 {
			parts = append(parts, countText(c.n, c.what))
		}
	}

	text := "no findings in " + prose.CountNoun(r.Files, "file")
	if r.Files == 0 && len(r.Problems) > 0 {
		text = "nothing was checked"
	}

	if len(r.Findings) > 0 {
		text = prose.CountNoun(r.Files, "file")
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
		p.Out.WriteByte('\n')
	}

	writeAdvice(p, console.Span{}, console.Normal, text)
	unread := unreadLines(r)
	for i, text := range unread {
		if i == 3 && len(unread) > 4 {
			p.WriteParagraph(console.Normal.Span("  "), console.Dim, fmt.Sprintf("and %d more: --json lists them", len(unread)-i))
			break
		}
		p.WriteParagraph(console.Normal.Span("  "), console.Dim, p.Text(text))
	}
}

// countText is a number and its noun in the plural if needed. Adjectives have no plural.
func countText(n int, what string) string {
	if n != 1 && (what == "error" || what == "warning" || what == "remark") {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// unreadLines says of each file what of it was not read.
func unreadLines(r linter.Report) (all []string) {
	for _, part := range r.Partial {
		line := part.Path + ": " + prose.CountNoun(part.Lines, "line") + " could not be read"
		if part.First > 0 {
			line += fmt.Sprintf(", from line %d on", part.First)
		}
		all = append(all, line)
	}

	for _, o := range r.Skipped {
		all = append(all, o.Path+": "+o.Why)
	}

	return all
}
