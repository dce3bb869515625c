package seecmd

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/sim"
	"gpuard/internal/ui/console"
)

// simulationView writes what gpuard simulate shows.
func simulationView(v *console.Page, a *simulateAnswer) {
	v.WriteText(fmt.Sprintf("%d jobs of %s over %s", a.Trace.Jobs, a.Trace.Format, spanText(&a.Trace.Span)))

	for _, text := range a.Trace.Remarks {
		v.WriteParagraph(console.Dim.Span("in the trace:     "), console.Normal, v.Text(text))
	}

	for _, text := range a.Synthetic {
		v.WriteParagraph(console.Dim.Span("not in the trace: "), console.Normal, v.Text(text))
	}

	for _, text := range leftOutText(a.Results) {
		v.WriteParagraph(console.Dim.Span("left out:         "), console.Normal, text)
	}

	v.Line(console.Dim.Span("GPUs policy     completion   median     wait     99 %  longest  8 GPUs+  in use"))

	for i := range a.Results {
		r := &a.Results[i]
		v.Line(console.Normal.Span(fmt.Sprintf("%4d %-10s %10s %8s %8s %8s %8s %8s %7s", r.GPUs, r.Policy, spanText(r.CompletionMean), spanText(r.CompletionMedian), spanText(r.WaitMean),
			spanText(r.WaitP99), spanText(r.WaitMax), spanText(r.WaitLarge), console.PercentText(r.Allocated))))
	}

	writeUsers(v, a)
	if text := enoughGPUsText(a.Results); text != "" {
		v.WriteText(text)
	}
}

// leftOutText says which jobs are too large for which sizes of the machine. A size that serves more of them has them in
// its waits.
func leftOutText(results []sim.Result) (lines []string) {
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
			lines = append(lines, fmt.Sprintf("%s that a machine of %s GPUs can never serve", prose.CountNoun(n, "job"), prose.JoinWords(sizes[n], "or")))
		}
	}

	if len(counts) > 1 {
		lines = append(lines, "a size that serves larger jobs counts them and all that wait behind them: its waits can be longer than those of a smaller one")
	}

	return lines
}

// writeUsers adds what each user would have waited, where there is one result and there are users.
func writeUsers(p *console.Page, a *simulateAnswer) {
	const most = 20
	if len(a.Results) > 1 || a.Trace.Users < 2 {
		return
	}

	p.Line(console.Dim.Span("  jobs      wait completion GPU hours  user"))
	list := a.Results[0].Users
	for i := range list[:min(most, len(list))] {
		u := &list[i]
		p.Line(console.Normal.Span(fmt.Sprintf("%6d %9s %10s %9.1f  %s", u.Jobs, spanText(&u.Wait), spanText(&u.Completion), u.GPUSeconds/3600, p.Text(u.Name))))
	}

	if more := len(list) - most; more > 0 {
		p.WriteText(fmt.Sprintf("  and %d more; all: --json", more))
	}
}

// maxBriefWait is the mean wait up to which a machine counts as large enough.
const maxBriefWait = 10 * time.Minute

// enoughGPUsText names the smallest machine on which jobs wait briefly, where the first policy was replayed on several.
func enoughGPUsText(results []sim.Result) string {
	sizes := 0
	for i := range results {
		r := &results[i]
		if r.Policy != results[0].Policy {
			continue
		}
		sizes++
		if r.WaitMean != nil && r.TooLarge == 0 && *r.WaitMean <= maxBriefWait.Seconds() && (sizes > 1 || len(results) > 1) {
			return fmt.Sprintf("%d GPUs are the fewest of these with a mean wait of at most 10 minutes", r.GPUs)
		}
	}
	if sizes > 1 {
		return "none of these has a mean wait of at most 10 minutes"
	}

	return ""
}

// spanText is a time in words, "-" for none.
func spanText(seconds *float64) string {
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
