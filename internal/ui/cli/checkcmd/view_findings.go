package checkcmd

import (
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/cluster"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/suggest"
	"gpuard/internal/ui/console"
)

// FindingPages returns the page of every code: doctor's checks of a machine and of a cluster, then lint's rules.
func FindingPages() (pages []check.Page) {
	for _, c := range check.Checks() {
		pages = append(pages, c.Page)
	}

	for _, c := range cluster.Checks() {
		pages = append(pages, c.Page)
	}

	pages = append(pages, check.KubernetesPages()...)
	for _, d := range lint.Descriptions() {
		pages = append(pages, d.Page)
	}

	return pages
}

// nearestCodes suggests the code that was probably meant, else the codes that share the most words with the given one.
func nearestCodes(code string, pages []check.Page) string {
	const most = 4
	var known []string
	for _, page := range pages {
		known = append(known, page.Code)
	}

	if meant := suggest.ClosestWord(code, known); meant != "" {
		return "did you mean " + meant + "?"
	}

	shared := func(k string) (n int) {
		for word := range strings.SplitSeq(strings.ToLower(code), "-") {
			if len(word) > 2 && strings.Contains("-"+k, "-"+word) {
				n++
			}
		}
		return n
	}

	known = slices.DeleteFunc(known, func(k string) bool { return shared(k) == 0 })
	slices.SortStableFunc(known, func(a, b string) int { return cmp.Compare(shared(b), shared(a)) })
	if len(known) == 0 {
		return "gpuard doctor and gpuard lint show the code of a finding in parentheses after it"
	}

	return "did you mean " + strings.Join(known[:min(most, len(known))], " or ") + "?"
}

// findingPageView writes the page of a code for a terminal. It joins the lines of each Markdown paragraph.
func findingPageView(p *console.Page, about check.Page) {
	p.WriteParagraph(console.Cyan.Span(about.Code+": "), console.Bold, p.Text(about.Title))
	var joined []string
	flush := func() {
		if len(joined) > 0 {
			p.WriteParagraph(console.Span{}, console.Normal, p.Text(strings.Join(joined, " ")))
		}
		joined = nil
	}

	fenced := false
	for line := range strings.SplitSeq("\n"+strings.TrimSpace(about.Text), "\n") {
		fence := strings.HasPrefix(line, "```")
		code := fenced || strings.HasPrefix(line, "    ")
		if fence || code || line == "" || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "|") {
			flush()
		}

		switch {
		case fence:
			fenced = !fenced
		case code:
			// Never cut: users copy it.
			p.Out.WriteString("    " + p.Text(strings.TrimPrefix(line, "    ")) + "\n")
		case line == "":
			p.Line()
		default:
			joined = append(joined, line)
		}
	}

	flush()
	if len(about.From) > 0 {
		p.Line()
	}

	for _, from := range about.From {
		if strings.HasPrefix(from, "https://") {
			// Never broken: users copy it.
			p.WriteStyled(console.Dim, "from: "+p.Text(from))
			p.Out.WriteByte('\n')
			continue
		}
		p.WriteParagraph(console.Dim.Span("from: "), console.Dim, p.Text(from))
	}
}
