package checkcmd

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/ui/console"
)

// doctorView writes a diagnosis as text: the verdict, then the findings, the worst first. It counts checks that passed;
// with all it lists them too.
func doctorView(p *console.Page, d check.Diagnosis, all bool) {
	writeVerdict(p, d.Verdict)
	writeDiagnosis(p, d, all)
}

// writeDiagnosis writes the findings, the worst first, and their number.
func writeDiagnosis(p *console.Page, d check.Diagnosis, all bool) {
	findings := d.Findings
	if !all {
		findings = joinUnknown(findings)
	}

	for _, s := range []check.Severity{check.Error, check.Warning, check.Unknown, check.Info, check.OK} {
		said := slices.DeleteFunc(groupAlike(findings), func(g []check.Finding) bool {
			return g[0].Severity != s || !all && (s == check.OK || isNotChecked(g[0]))
		})
		if len(said) > 0 {
			p.Line()
		}

		for _, g := range said {
			writeFindings(p, g)
		}
	}
	if len(d.Findings) > 0 {
		p.Line()
		writeAdvice(p, console.Span{}, console.Dim, p.Text(tallyText(d.Findings, all)))
	}
}

// writeVerdict writes one line to a file or a pipe, however long, so that a script gets all of it with the first line.
func writeVerdict(p *console.Page, v check.Verdict) {
	color := console.Yellow
	if v.Runs != nil {
		color = map[bool]console.Style{true: console.Green, false: console.Red}[*v.Runs]
	}

	text := strings.TrimRight(p.Text(v.Summary), ".")
	whole := text
	if v.Next != "" {
		whole += ". Next: " + p.Text(v.Next)
	}

	if !p.Term.TTY || console.CellWidth(whole) <= p.Term.Width {
		p.WriteStyled(color, whole)
		p.Out.WriteByte('\n')
		return
	}

	p.WriteParagraph(console.Span{}, color, text)
	if v.Next != "" {
		writeAdvice(p, console.Bold.Span("Next: "), console.Normal, p.Text(v.Next))
	}
}

// writeAdvice writes the lead and then what to do. A command in it is never broken, however long, because users copy
// it.
func writeAdvice(p *console.Page, lead console.Span, body console.Style, text string) {
	width := p.Term.Width - console.CellWidth(lead.Text)
	if p.Term.Width <= 0 {
		width = console.CellWidth(text)
	}

	var lines []string
	line := ""
	for _, part := range adviceParts(text) {
		if line == "" || console.CellWidth(line)+1+console.CellWidth(part) <= width {
			line = strings.TrimLeft(line+" "+part, " ")
		} else {
			lines, line = append(lines, line), part
		}
		if console.CellWidth(line) > width && !isCommandLine(part) {
			broken := console.Wrap(line, max(width, 12))
			lines, line = append(lines, broken[:len(broken)-1]...), broken[len(broken)-1]
		}
	}

	for i, text := range append(lines, line) {
		if i > 0 {
			lead = console.Normal.Span(strings.Repeat(" ", console.CellWidth(lead.Text)))
		}
		p.WriteStyled(lead.Style, lead.Text)
		p.WriteStyled(body, text)
		p.Out.WriteByte('\n')
	}
}

// adviceParts splits an advice into sentences and commands, between which a line may break. A colon separates only
// before a command.
func adviceParts(text string) (pieces []string) {
	for text != "" {
		end := len(text)
		for _, sign := range []string{"; ", ": ", ", or ", ". "} {
			if i := strings.Index(text, sign); i >= 0 && i+1 < end && (sign != ": " || isCommandLine(text[i+2:])) {
				end = i + 1
			}
		}
		pieces = append(pieces, strings.TrimSpace(text[:end]))
		text = strings.TrimLeft(text[end:], " ")
	}
	return pieces
}

// isCommandLine reports whether a part of an advice is a command line.
func isCommandLine(piece string) bool {
	word, _, more := strings.Cut(strings.TrimPrefix(piece, "or "), " ")
	return more && (strings.ContainsAny(word, "/=") || slices.Contains([]string{
		"sudo", "gpuard", "kubectl", "pip", "pip3", "python", "python3", "conda", "mamba", "uv", "nvidia-smi", "nvidia-ctk", "docker", "podman", "export", "unset", "echo", "apt", "dnf", "systemctl",
		"modprobe", "kill", "rm", "mv", "ls", "ldconfig", "mkdir", "chmod", "chown", "mount", "ulimit", "source", "eval"}, word))
}

// writeFindings writes a group of findings: what was seen of each, then the reason and the advice that they share.
func writeFindings(p *console.Page, alike []check.Finding) {
	first := alike[0]
	colors := map[check.Severity]console.Style{check.Error: console.Red, check.Warning: console.Yellow, check.Unknown: console.Blue, check.Info: console.Cyan, check.OK: console.Green}
	for i, f := range alike {
		text := p.Text(f.Seen)
		if i == len(alike)-1 {
			text += " (" + p.Text(f.Code) + ")"
		}
		p.WriteParagraph(colors[f.Severity].Span(string(f.Severity)+": "), console.Normal, text)
	}

	if first.Why != "" && first.Severity != check.OK {
		p.WriteParagraph(console.Normal.Span("  "), console.Dim, p.Text(asSentence(first.Why)))
	}

	if first.Do != "" {
		writeAdvice(p, console.Bold.Span("  do: "), console.Normal, p.Text(first.Do))
	}
}

// asSentence capitalises the first letter, unless the first word is an identifier, and adds a full stop.
func asSentence(s string) string {
	if word, _, _ := strings.Cut(s, " "); strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == "" && word != "" && word != "gpuard" {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if !strings.ContainsAny(s[max(len(s)-1, 0):], ".!?:") {
		s += "."
	}
	return s
}

// groupAlike groups findings that differ only in what was seen, such as the same setting of eight GPUs.
func groupAlike(findings []check.Finding) (groups [][]check.Finding) {
	for _, f := range findings {
		i := slices.IndexFunc(groups, func(g []check.Finding) bool {
			return g[0].Code == f.Code && g[0].Severity == f.Severity && g[0].Why == f.Why && g[0].Do == f.Do
		})
		if i < 0 {
			groups = append(groups, []check.Finding{f})
		} else {
			groups[i] = append(groups[i], f)
		}
	}
	return groups
}

// joinUnknown joins the checks that failed for the same reason into one finding. Without a driver that is a dozen.
func joinUnknown(findings []check.Finding) (out []check.Finding) {
	const blind, most = "cannot see ", 3
	type group struct {
		at          int // in out
		what, codes []string
	}

	// By reason.
	groups := map[string]*group{}
	for _, f := range findings {
		what, why, split := strings.Cut(strings.TrimPrefix(f.Seen, blind), ": ")
		if f.Severity != check.Unknown || !split || !strings.HasPrefix(f.Seen, blind) {
			out = append(out, f)
			continue
		}

		g := groups[why]
		if g == nil {
			g = &group{at: len(out)}
			groups[why], out = g, append(out, f)
		}

		g.what, g.codes = append(g.what, what), append(g.codes, f.Code)
		if out[g.at].Do == "" {
			out[g.at].Do = f.Do
		}
	}

	for why, g := range groups {
		what, codes := slices.Compact(g.what), slices.Compact(g.codes)
		if n := len(what); n > most {
			what = append(slices.Clone(what[:most-1]), fmt.Sprintf("and %d others", n-most+1))
		}
		if len(codes) > most {
			codes = append(slices.Clone(codes[:most-1]), "…")
		}
		out[g.at].Seen, out[g.at].Code = blind+strings.Join(what, ", ")+": "+why, strings.Join(codes, ", ")
	}

	return out
}

// isNotChecked reports whether a check was skipped on purpose, as for a recorded machine. Such findings are hidden.
func isNotChecked(f check.Finding) bool {
	return f.Severity == check.Unknown && strings.Contains(f.Seen, "not looked")
}

// tallyText counts the findings by severity, and names the flags that show more.
func tallyText(findings []check.Finding, all bool) string {
	count := map[check.Severity]int{}
	hidden := 0
	for _, f := range findings {
		count[f.Severity]++
		if f.Severity == check.OK || isNotChecked(f) {
			hidden++
		}
	}

	var parts []string
	for _, s := range []struct {
		check.Severity
		one, many string
	}{{check.Error, "error", "errors"}, {check.Warning, "warning", "warnings"}, {check.Unknown, "unknown", "unknown"},
		{check.Info, "info", "info"}, {check.OK, "ok", "ok"}} {
		switch n := count[s.Severity]; {
		case n == 1:
			parts = append(parts, "1 "+s.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, s.many))
		}
	}

	text := strings.Join(parts, ", ")
	if hidden > 0 && !all {
		text += "; --all shows the rest"
	}

	if hidden < len(findings) {
		text += "; what a code means: gpuard doctor --why CODE"
	}

	return text
}
