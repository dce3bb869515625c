package seecmd

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/sim"
	"gpuard/internal/ui/console"
)

// simulationView writes what gpuard simulate shows.
func simulationView(w io.Writer, a *simulated, t console.Term) {
	v := &console.Page{Term: t}
	v.WriteText(fmt.Sprintf("%d jobs of %s over %s", a.Trace.Jobs, a.Trace.Format, span64(&a.Trace.Span)))
	for _, text := range a.Trace.Remarks {
		v.Paragraph(console.Dim.Of("in the trace:     "), console.Normal, v.Text(text))
	}
	for _, text := range a.Synthetic {
		v.Paragraph(console.Dim.Of("not in the trace: "), console.Normal, v.Text(text))
	}
	for _, text := range leftOut(a.Results) {
		v.Paragraph(console.Dim.Of("left out:         "), console.Normal, text)
	}
	v.Line(console.Dim.Of("GPUs policy     completion   median     wait     99 %  longest  8 GPUs+  in use"))
	for i := range a.Results {
		r := &a.Results[i]
		v.Line(console.Normal.Of(fmt.Sprintf("%4d %-10s %10s %8s %8s %8s %8s %8s %7s", r.GPUs, r.Policy, span64(r.CompletionMean), span64(r.CompletionMedian), span64(r.WaitMean),
			span64(r.WaitP99), span64(r.WaitMax), span64(r.WaitLarge), console.PercentText(r.Allocated))))
	}
	users(v, a)
	if text := enough(a.Results); text != "" {
		v.WriteText(text)
	}
	_, _ = io.WriteString(w, v.Out.String())
}

// leftOut says which jobs are too large for which sizes of the machine. A size that serves more of them has them in its
// waits.
func leftOut(results []sim.Result) (lines []string) {
	sizes, counts := map[int][]string{}, []int{}
	for i := range results {
		r := &results[i]
		if r.Policy != results[0].Policy {
			continue
		}
		if !slices.Contains(counts, r.TooLarge) {
			counts = append(counts, r.TooLarge)
		}
		sizes[r.TooLarge] = append(sizes[r.TooLarge], strconv.Itoa(r.GPUs))
	}
	for _, n := range counts {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%s that a machine of %s GPUs can never serve", prose.Count(n, "job"), prose.List(sizes[n], "or")))
		}
	}
	if len(counts) > 1 {
		lines = append(lines, "a size that serves larger jobs counts them and all that wait behind them: its waits can be longer than those of a smaller one")
	}
	return lines
}

// users adds what each user would have waited, where there is one result and there are users.
func users(p *console.Page, a *simulated) {
	const most = 20
	if len(a.Results) > 1 || a.Trace.Users < 2 {
		return
	}
	p.Line(console.Dim.Of("  jobs      wait completion GPU hours  user"))
	list := a.Results[0].Users
	for i := range list[:min(most, len(list))] {
		u := &list[i]
		p.Line(console.Normal.Of(fmt.Sprintf("%6d %9s %10s %9.1f  %s", u.Jobs, span64(&u.Wait), span64(&u.Completion), u.GPUSeconds/3600, p.Text(u.Name))))
	}
	if more := len(list) - most; more > 0 {
		p.WriteText(fmt.Sprintf("  and %d more; all: --json", more))
	}
}

// brieflyWaited is the mean wait up to which a machine counts as large enough.
const brieflyWaited = 10 * time.Minute

// enough names the smallest machine on which jobs wait briefly, where the first policy was replayed on several.
func enough(results []sim.Result) string {
	sizes := 0
	for i := range results {
		r := &results[i]
		if r.Policy != results[0].Policy {
			continue
		}
		if sizes++; r.WaitMean != nil && r.TooLarge == 0 && *r.WaitMean <= brieflyWaited.Seconds() && (sizes > 1 || len(results) > 1) {
			return fmt.Sprintf("%d GPUs are the fewest of these with a mean wait of at most 10 minutes", r.GPUs)
		}
	}
	if sizes > 1 {
		return "none of these has a mean wait of at most 10 minutes"
	}
	return ""
}

// span64 is a time in words, "-" for none.
func span64(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	switch d := time.Duration(*seconds * float64(time.Second)); {
	case d < 10*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 10*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.1f d", d.Hours()/24)
	}
}
