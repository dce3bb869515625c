package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Refusal writes why no device was given: the summary, one line per device, and what to do. The summary and the advice
// begin with "gpuard: ", because standard error is shared with the command.
func Refusal(w io.Writer, r *job.Refusal, term Term) {
	p := page{term: term}
	p.paragraph(span{dim, "gpuard: "}, bold, p.text(r.Summary))
	told := relevant(r.Reasons)
	if len(told) == 1 && strings.HasSuffix(r.Summary, ": "+told[0].Text) {
		told = nil
	}
	p.reasons(told)
	if r.Remedy != "" {
		p.paragraph(span{dim, "gpuard: "}, normal, p.text(r.Remedy))
	}
	_, _ = io.WriteString(w, p.out.String())
}

// Plan writes what would be given and why, for --dry-run: the devices with the numbers under which the program sees
// them, then one line per device, then the notes.
func Plan(w io.Writer, plan job.Plan, term Term) {
	p := page{term: term}
	if len(plan.Devices) == 0 {
		p.paragraph(span{dim, "gpuard: "}, bold, "no GPU, as requested")
	}
	for _, d := range plan.Devices {
		p.paragraph(span{dim, "gpuard: "}, bold, p.text(fmt.Sprintf("%s would be %s:%d", d, d.Runtime(), d.Logical)))
	}
	if plan.Share > 0 {
		p.paragraph(span{dim, "gpuard: "}, normal, "a share of "+plan.Share.String()+level(plan.Quota)+" of each")
	}
	p.reasons(relevant(plan.Reasons))
	for _, note := range plan.Notes {
		p.paragraph(span{yellow, "note: "}, normal, p.text(note))
	}
	_, _ = io.WriteString(w, p.out.String())
}

// relevant leaves out the devices that --device does not name. The JSON answer has them all.
func relevant(reasons []job.Reason) []job.Reason {
	return slices.DeleteFunc(slices.Clone(reasons), func(r job.Reason) bool { return r.Code == "not-named" })
}

// reasons writes one device per line. The remedies are left out, because the refusal ends with what to do.
func (p *page) reasons(reasons []job.Reason) {
	labels := p.labels(reasons)
	width := 0
	column := len("chosen")
	for i, l := range labels {
		word, _ := inWords(reasons[i])
		width, column = max(width, cells(l)), max(column, cells(word))
	}
	for i, r := range reasons {
		lead := "  " + pad(labels[i], width, false, "") + "  "
		word, text := inWords(r)
		text = p.text(text)
		verdict := pad(word, column, false, "") + "  "
		if p.term.Width > 0 && p.term.Width < tableWidth {
			p.line(span{normal, "  " + labels[i] + "  "}, span{verdictStyle(r.Verdict), word})
			if text != "" {
				p.paragraph(span{normal, "    "}, normal, text)
			}
			continue
		}
		p.reason(lead, span{verdictStyle(r.Verdict), verdict}, text)
	}
}

// inWords returns the verdict and the text of a reason. It cuts off a verdict with which the text begins.
func inWords(r job.Reason) (word, text string) {
	switch r.Verdict {
	case job.Chosen:
		return "chosen", strings.TrimPrefix(strings.TrimPrefix(r.Text, "chosen: "), "chosen ")
	case job.Eligible:
		for _, state := range []string{"free", "use unknown"} {
			if rest, ok := strings.CutPrefix(r.Text, state); ok {
				return state, strings.TrimPrefix(rest, ", ")
			}
		}
		return "free", r.Text
	}
	if r.Code == "drained" || r.Code == "unhealthy" { // "busy" would be wrong: the device has no user
		if state, why, told := strings.Cut(r.Text, ": "); told {
			return state, why
		}
	}
	return string(r.Verdict), r.Text
}

func (p *page) reason(lead string, verdict span, text string) {
	width := p.term.Width - cells(lead+verdict.text)
	if p.term.Width <= 0 {
		width = 0
	}
	for i, part := range wrap(text, width) {
		if i > 0 {
			lead, verdict.text = strings.Repeat(" ", cells(lead)), strings.Repeat(" ", cells(verdict.text))
		}
		p.line(span{normal, lead}, verdict, span{normal, part})
	}
}

// labels returns the names of the devices. It adds the model if two have the same index (MIG slices, two vendors).
func (p *page) labels(reasons []job.Reason) []string {
	count := map[int]int{}
	for _, r := range reasons {
		count[r.Index]++
	}
	labels := make([]string, len(reasons))
	for i, r := range reasons {
		labels[i] = fmt.Sprintf("GPU %d", r.Index)
		if count[r.Index] > 1 {
			name := r.Name
			if _, profile, ok := strings.Cut(r.Name, " MIG "); ok {
				name = "MIG " + profile
			}
			labels[i] += " " + cut(p.text(gpu.Model(name)), 20, p.dots())
		}
	}
	return labels
}

func verdictStyle(v job.Verdict) style {
	switch v {
	case job.Chosen, job.Eligible:
		return green
	case job.Busy:
		return yellow
	}
	return red
}
