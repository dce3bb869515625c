package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/queue"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// asked is what a request asks for, in a few words.
func asked(s *job.Spec) string {
	text := plural(s.GPUs, "GPU")
	switch {
	case s.CPU:
		return "no GPU"
	case s.MIG != "":
		text = "MIG " + s.MIG
	case len(s.Devices) > 0:
		text = "GPU " + strings.Join(s.Devices, ", ")
	}
	switch {
	case s.Share > 0:
		text += ", share " + s.Share.String()
	case s.Memory > 0:
		text += ", " + s.Memory.String()
	}
	return text
}

// queueView writes what gpuard queue shows; more jobs wait than are in the answer.
func queueView(w io.Writer, a *queueAnswer, more int, now time.Time, t Term) {
	v := &page{term: t}
	if len(a.Jobs) == 0 {
		v.sentence("no job of yours runs or waits; hand one in: gpuard submit -- COMMAND")
	}
	for i := range a.Jobs {
		e := &a.Jobs[i]
		since := e.Submitted
		where := e.Asks
		if e.State == queue.Running {
			since = *e.Started
			where = gpusOf(e)
		}
		state, style := string(e.State), yellow
		switch e.State {
		case queue.Running:
			style = green
		case queue.Held:
			style = dim
		case queue.After:
			state = "after " + joinNumbers(e.Awaits)
		}
		v.job(e, span{style, state}, where, age(now.Sub(since)), startText(e, now))
	}
	if more > 0 {
		v.sentence(fmt.Sprintf("  and %d more; all: gpuard queue --json", more))
	}
	for i := range a.Jobs {
		if e := &a.Jobs[i]; e.State == queue.Waiting && e.Why != "" {
			v.paragraph(span{dim, fmt.Sprintf("job %d waits: ", e.Number)}, normal, v.text(e.Why))
			v.reasons(a.Reasons)
			if e.Remedy != "" {
				v.paragraph(span{dim, "sooner: "}, normal, v.text(e.Remedy))
			}
		}
	}
	if a.Paused {
		v.sentence("the queue is paused: nothing is started before gpuard queue resume")
	}
	if a.Problem != "" && !a.Kept {
		v.sentence("the processes of the queue had ended: " + a.Problem)
	}
	if len(a.Others) > 0 {
		v.sentence("Other requests in the line:")
	}
	for i := range a.Others {
		o := &a.Others[i]
		text := fmt.Sprintf("  %d. %s of %s (%s), %s", o.Place, v.text(o.Command), v.text(o.User), pick.PIDText(o.PID, o.Apart), wanted(o))
		if o.Since != nil {
			text += ", for " + age(now.Sub(*o.Since))
		}
		v.sentence(text)
	}
	_, _ = io.WriteString(w, v.out.String())
}

// job is one line of a job.
func (p *page) job(e *queue.Entry, state span, where, when, more string) {
	p.line(span{normal, pad(strconv.Itoa(e.Number), 4, true, "")}, span{normal, "  "}, span{state.style, pad(state.text, 10, false, "")}, span{normal, " " + pad(where, 16, false, "…") + " " + pad(when, 8, true, "") + "  "},
		span{normal, p.text(e.Name)}, span{normal, more}, span{dim, noteOf(p, e)})
}

// startText is when a job may start.
func startText(e *queue.Entry, now time.Time) string {
	if e.Expected == nil || e.State != queue.Waiting {
		return ""
	}
	left := e.Expected.Sub(now)
	if left < time.Minute {
		return ", may start now"
	}
	return ", in about " + age(left)
}

func noteOf(v *page, e *queue.Entry) string {
	if e.Note == "" {
		return ""
	}
	return "  " + v.text(e.Note)
}

// sentence is text of its own, cut at the width of the terminal.
func (p *page) sentence(text string) { p.line(span{normal, p.text(text)}) }

// historyView writes what gpuard history shows.
func historyView(w io.Writer, list []queue.Entry, t Term) {
	v := &page{term: t}
	if len(list) == 0 {
		v.sentence("no job of yours has ended; what runs or waits: gpuard queue")
	}
	for i := range list {
		e := &list[i]
		style := red
		switch e.State {
		case queue.Done:
			style = green
		case queue.Cancelled:
			style = dim
		}
		took := "-"
		if e.Seconds > 0 {
			took = elapsed(time.Duration(e.Seconds * float64(time.Second)))
		}
		v.job(e, span{style, e.Ending()}, gpusOf(e), took, usedText(e))
		if e.Why != "" {
			v.sentence("        " + e.Why)
		}
	}
	_, _ = io.WriteString(w, v.out.String())
}

// usedText is what was measured of a job.
func usedText(e *queue.Entry) string {
	text := ""
	if e.Peak != nil {
		text += ", " + e.Peak.String()
	}
	if e.Load != nil {
		text += fmt.Sprintf(", load %.0f %%", *e.Load*100)
	}
	return text
}

// endText says in one line how a job ended.
func endText(e *queue.Entry) string {
	text := fmt.Sprintf("job %d (%s): %s", e.Number, gpu.Clean(e.Name), e.Ending())
	if e.Seconds > 0 {
		text += " after " + elapsed(time.Duration(e.Seconds*float64(time.Second)))
	}
	if e.Why != "" {
		text += ", " + gpu.Clean(e.Why)
	}
	return text
}

func gpusOf(e *queue.Entry) string {
	if len(e.Devices) == 0 {
		return "no GPU"
	}
	var numbers []int
	for _, d := range e.Devices {
		numbers = append(numbers, d.Index)
	}
	return "GPU " + joinNumbers(numbers)
}

func joinNumbers(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ", ")
}
