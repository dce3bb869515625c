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

// QueueView writes what gpuard queue shows; more jobs wait than are in the answer.
func QueueView(w io.Writer, a *queueAnswer, more int, now time.Time, t Term) {
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
		v.job(e, span{style, state}, where, age(now.Sub(since)))
	}
	if more > 0 {
		v.sentence(fmt.Sprintf("  and %d more; all: gpuard queue --json", more))
	}
	for i := range a.Jobs {
		if e := &a.Jobs[i]; e.State == queue.Waiting && e.Why != "" {
			v.paragraph(span{dim, fmt.Sprintf("job %d waits: ", e.Number)}, normal, v.text(e.Why))
			v.reasons(a.Reasons)
		}
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
func (p *page) job(e *queue.Entry, state span, where, when string) {
	p.line(span{normal, pad(strconv.Itoa(e.Number), 4, true, "")}, span{normal, "  "}, span{state.style, pad(state.text, 10, false, "")}, span{normal, " " + pad(where, 16, false, "…") + " " + pad(when, 8, true, "") + "  "},
		span{normal, p.text(e.Name)}, span{dim, noteOf(p, e)})
}

func noteOf(v *page, e *queue.Entry) string {
	if e.Note == "" {
		return ""
	}
	return "  " + v.text(e.Note)
}

// sentence is text of its own, cut at the width of the terminal.
func (p *page) sentence(text string) { p.line(span{normal, p.text(text)}) }

// HistoryView writes what gpuard history shows.
func HistoryView(w io.Writer, list []queue.Entry, now time.Time, t Term) {
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
		v.job(e, span{style, howJobEnded(e)}, gpusOf(e), took)
		if e.Why != "" {
			v.sentence("        " + e.Why)
		}
	}
	_, _ = io.WriteString(w, v.out.String())
	_ = now
}

// howJobEnded is the state of a job that has ended, in a word or two.
func howJobEnded(e *queue.Entry) string {
	switch {
	case e.State == queue.Failed && e.Starts == 0:
		return "not run"
	case e.State == queue.Failed && e.Signal != "":
		return e.Signal
	case e.State == queue.Failed && e.Exit != nil:
		return fmt.Sprintf("exit %d", *e.Exit)
	}
	return string(e.State)
}

// endText says in one line how a job ended.
func endText(e *queue.Entry) string {
	text := fmt.Sprintf("job %d (%s): %s", e.Number, gpu.Clean(e.Name), howJobEnded(e))
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
