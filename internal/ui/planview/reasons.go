// Package planview shows what a request got: the plan, the refusal with a reason for each device, the place in the
// line.
package planview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/console"
)

// WithLists replaces nil lists, which JSON would write as null, with empty ones.
func WithLists(plan job.Plan) job.Plan {
	plan.Devices = append([]job.Given{}, plan.Devices...)
	plan.Reasons = append([]job.Reason{}, plan.Reasons...)
	plan.Notes = append([]string{}, plan.Notes...)

	return plan
}

// QuotaText says how a share is enforced: " (watch)".
func QuotaText(q job.Quota) string {
	if q == job.NoQuota {
		return " (not enforced)"
	}
	return " (" + string(q) + ")"
}

// WriteRefusal writes why no device was given: the summary, one line per device, and what to do. The summary and the
// advice begin with "gpuard: ", because standard error is shared with the command.
func WriteRefusal(w io.Writer, r *job.Refusal, term console.Term) {
	p := console.Page{Term: term}
	p.WriteParagraph(console.Dim.Span("gpuard: "), console.Bold, p.Translate(r.Summary))
	told := RelevantReasons(r.Reasons)
	if len(told) == 1 && strings.HasSuffix(r.Summary, ": "+told[0].Text) {
		told = nil
	}

	WriteReasons(&p, told)
	if r.Remedy != "" {
		p.WriteParagraph(console.Dim.Span("gpuard: "), console.Normal, p.Translate(r.Remedy))
	}

	_, _ = io.WriteString(w, p.Out.String())
}

// WritePlan writes what would be given and why, for --dry-run: the devices with the numbers under which the program
// sees them, then one line per device, then the notes.
func WritePlan(w io.Writer, plan job.Plan, term console.Term) {
	p := console.Page{Term: term}
	if len(plan.Devices) == 0 {
		p.WriteParagraph(console.Dim.Span("gpuard: "), console.Bold, p.Translate("no GPU, as requested"))
	}

	for _, d := range plan.Devices {
		p.WriteParagraph(console.Dim.Span("gpuard: "), console.Bold, p.Translate(fmt.Sprintf("%s would be %s:%d", d, d.RuntimeName(), d.Logical)))
	}

	if plan.Share > 0 {
		p.WriteParagraph(console.Dim.Span("gpuard: "), console.Normal, p.Translate("a share of "+plan.Share.String()+QuotaText(plan.Quota)+" of each"))
	}

	if plan.Isolation != job.NoIsolation {
		p.WriteParagraph(console.Dim.Span("gpuard: "), console.Normal, p.Translate("isolated by "+string(plan.Isolation)+": it could not open the device files of other GPUs, and number 0 is the first of its own"))
	}

	WriteReasons(&p, RelevantReasons(plan.Reasons))

	for _, note := range append(slices.Clone(plan.Notes), isolate.LevelCosts(plan.Isolation)...) {
		p.WriteParagraph(console.Yellow.Span(p.Translate("note:")+" "), console.Normal, p.Translate(note))
	}

	_, _ = io.WriteString(w, p.Out.String())
}

// RelevantReasons leaves out the devices that --device does not name. The JSON answer has them all.
func RelevantReasons(reasons []job.Reason) []job.Reason {
	return slices.DeleteFunc(slices.Clone(reasons), func(r job.Reason) bool { return r.Code == "not-named" })
}

// WriteReasons writes one device per line, and those of which the same is to be said on one. The remedies are left out,
// because the refusal ends with what to do.
func WriteReasons(p *console.Page, reasons []job.Reason) {
	lines := reasonLines(p, reasons)
	width := 0
	column := len("chosen")
	for _, l := range lines {
		width, column = max(width, console.CellWidth(l.label)), max(column, console.CellWidth(p.Translate(l.word)))
	}

	for _, l := range lines {
		lead := "  " + console.Pad(l.label, width, false, "") + "  "
		word, text := p.Translate(l.word), p.Translate(l.text)
		verdict := console.Pad(word, column, false, "") + "  "
		if p.Term.Width > 0 && p.Term.Width < console.TableWidth {
			p.Line(console.Normal.Span("  "+l.label+"  "), verdictStyle(l.verdict).Span(word))
			if text != "" {
				p.WriteParagraph(console.Normal.Span("    "), console.Normal, text)
			}
			continue
		}

		writeReason(p, lead, verdictStyle(l.verdict).Span(verdict), text)
	}
}

// reasonLine is what is said of one device, or of several.
type reasonLine struct {
	label, word, text string
	verdict           job.Verdict
	// The indexes of devices that may be named together; nil of one with a name of its own.
	indexes []int
}

// reasonLines joins the devices of which the same is to be said, unless they are chosen: "GPU 0-3, 6".
func reasonLines(p *console.Page, reasons []job.Reason) (lines []reasonLine) {
	labels := deviceLabels(p, reasons)
	for i, r := range reasons {
		word, text := verdictWords(r)
		l := reasonLine{label: labels[i], word: word, text: text, verdict: r.Verdict}
		if labels[i] == deviceLabel(r.Index) && r.Verdict != job.Chosen {
			l.indexes = []int{r.Index}
		}

		k := slices.IndexFunc(lines, func(o reasonLine) bool {
			return o.indexes != nil && l.indexes != nil && o.word == word && o.text == text && o.verdict == r.Verdict
		})

		if k < 0 {
			lines = append(lines, l)
			continue
		}

		lines[k].indexes = append(lines[k].indexes, r.Index)
		lines[k].label = "GPU " + prose.Ranges(lines[k].indexes, ", ")
	}
	return lines
}

// verdictWords returns the verdict and the text of a reason. It cuts off a verdict with which the text begins.
func verdictWords(r job.Reason) (word, text string) {
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
	if r.Code == "drained" || r.Code == "unhealthy" {
		// "busy" would be wrong: the device has no user.
		if state, why, told := strings.Cut(r.Text, ": "); told {
			return state, why
		}
	}
	return string(r.Verdict), r.Text
}

func writeReason(p *console.Page, lead string, verdict console.Span, text string) {
	width := p.Term.Width - console.CellWidth(lead+verdict.Text)
	if p.Term.Width <= 0 {
		width = 0
	}

	for i, part := range console.Wrap(text, width) {
		if i > 0 {
			lead, verdict.Text = strings.Repeat(" ", console.CellWidth(lead)), strings.Repeat(" ", console.CellWidth(verdict.Text))
		}
		p.Line(console.Normal.Span(lead), verdict, console.Normal.Span(part))
	}
}

// deviceLabels returns the names of the devices. It adds the model if two have the same index (MIG slices, two
// vendors).
func deviceLabels(p *console.Page, reasons []job.Reason) []string {
	count := map[int]int{}
	for _, r := range reasons {
		count[r.Index]++
	}

	labels := make([]string, len(reasons))
	for i, r := range reasons {
		labels[i] = deviceLabel(r.Index)
		if count[r.Index] > 1 {
			name := r.Name
			if _, profile, ok := strings.Cut(r.Name, " MIG "); ok {
				name = "MIG " + profile
			}
			labels[i] += " " + console.Cut(p.Text(gpu.ModelName(name)), 20, p.Ellipsis())
		}
	}

	return labels
}

func deviceLabel(index int) string { return fmt.Sprintf("GPU %d", index) }

func verdictStyle(v job.Verdict) console.Style {
	switch v {
	case job.Chosen, job.Eligible:
		return console.Green
	case job.Busy:
		return console.Yellow
	}
	return console.Red
}
