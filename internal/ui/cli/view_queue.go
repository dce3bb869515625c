package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/queue"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
)

// asked is what a request asks for, in a few words.
func asked(s *job.Spec) string {
	text := prose.Count(s.GPUs, "GPU")
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
	v := &rowsPage{page: page{term: t}, number: true}
	if len(a.Jobs) == 0 {
		v.sentence("no job of yours runs or waits; hand one in: gpuard submit -- COMMAND")
	} else {
		v.writeTable(rowHeads{name: "JOB", state: "STATE", pid: "PID", since: "SINCE", about: "COMMAND"}, waitingRows(a.Jobs, now))
	}
	if more > 0 {
		v.sentence(fmt.Sprintf("  and %d more; all: gpuard queue --json", more))
	}
	v.whyWait(a)
	for i := range a.Hosts {
		v.paragraph(span{}, normal, v.text(onHost(&a.Hosts[i])))
	}
	for _, t := range a.Engines {
		v.paragraph(span{}, normal, v.text(fmt.Sprintf("%s does not answer, and its jobs are shown as they were last: %s", t.Engine, t.Problem)))
	}
	if a.Paused {
		v.sentence("the queue is paused: nothing is started before gpuard queue resume")
	}
	for _, line := range a.OddLines {
		v.sentence(line)
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
		v.sentence(text + startText(o.Expected, now))
		if o.Why != "" {
			v.paragraph(span{dim, "     "}, dim, v.text(o.Why))
		}
	}
	_, _ = io.WriteString(w, v.out.String())
}

// waitingRows are the jobs that have not ended.
func waitingRows(jobs []queue.Entry, now time.Time) (rows []tableRow) {
	for i := range jobs {
		e := &jobs[i]
		r := tableRow{name: strconv.Itoa(e.Number), state: span{yellow, string(e.State)}, where: e.Asks, pid: e.PID, about: titleOf(e) + startText(e.Expected, now), note: noteOf(e)}
		since := e.Submitted
		switch e.State {
		case queue.Running:
			r.state.style = green
			if e.Started != nil {
				since, r.where = *e.Started, gpusOf(e)
			}
		case queue.Held:
			r.state.style = dim
		case queue.After:
			r.state.text = "after " + joinNumbers(e.Awaits)
		}
		r.since = age(now.Sub(since))
		rows = append(rows, r)
	}
	return rows
}

// onHost says where other jobs of the user are.
func onHost(h *queue.HostJobs) string {
	jobs := prose.Count(h.Jobs, "job") + " of yours"
	if h.Host == "" {
		return jobs + " in " + h.Folder + ", from a gpuard that kept one queue for all hosts; nothing starts them: hand them in again"
	}
	text := jobs + " on " + h.Host + ", which shares this home: gpuard queue there shows and runs them (" + h.Folder + ")"
	if h.Here != "" {
		text += "; if that was the name of this machine before it booted, and of no other: mkdir -pm 700 " + shellquote.Sh(filepath.Dir(h.Here)) +
			" && mv -T " + shellquote.Sh(h.Folder) + " " + shellquote.Sh(h.Here)
	}
	return text
}

// whyWait says why jobs wait, once for those that wait for the same.
func (p *page) whyWait(a *queueAnswer) {
	groups := map[string][]int{}
	for i := range a.Jobs {
		if e := &a.Jobs[i]; e.State == queue.Waiting && e.Why != "" {
			groups[e.Why] = append(groups[e.Why], e.Number)
		}
	}
	first := true
	for i := range a.Jobs {
		e := &a.Jobs[i]
		numbers := groups[e.Why]
		if e.State != queue.Waiting || len(numbers) == 0 {
			continue
		}
		delete(groups, e.Why)
		lead := fmt.Sprintf("job %d waits: ", numbers[0])
		if len(numbers) > 1 {
			lead = fmt.Sprintf("job %d and %d more wait: ", numbers[0], len(numbers)-1)
		}
		p.paragraph(span{dim, lead}, normal, p.text(e.Why))
		if first {
			p.reasons(a.Reasons)
			first = false
		}
		if e.Remedy != "" {
			p.paragraph(span{dim, "sooner: "}, normal, p.text(e.Remedy))
		}
	}
}

// titleOf tells jobs of one program apart: the name that its owner gave it, else the command.
func titleOf(e *queue.Entry) string {
	if e.Spec.Name != "" || len(e.Command) < 2 {
		return e.Name
	}
	return e.Name + " " + strings.Join(e.Command[1:], " ")
}

// startText is when a request may start.
func startText(expected *time.Time, now time.Time) string {
	if expected == nil {
		return ""
	}
	left := expected.Sub(now)
	switch {
	case left <= 0:
		return ", may start now"
	case left < time.Minute:
		return ", in less than a minute"
	}
	return ", in about " + age(left)
}

func noteOf(e *queue.Entry) string {
	if e.Note == "" {
		return ""
	}
	return "  " + e.Note
}

// sentence is text of its own, cut at the width of the terminal.
func (p *page) sentence(text string) { p.line(span{normal, p.text(text)}) }

// historyView writes what gpuard history shows.
func historyView(w io.Writer, list []queue.Entry, t Term) {
	v := &rowsPage{page: page{term: t}, number: true}
	if len(list) == 0 {
		v.sentence("no job of yours has ended; what runs or waits: gpuard queue")
		_, _ = io.WriteString(w, v.out.String())
		return
	}
	var rows []tableRow
	for i := range list {
		e := &list[i]
		r := tableRow{name: strconv.Itoa(e.Number), state: span{red, e.Ending()}, where: gpusOf(e), since: "-", about: titleOf(e) + usedText(e), note: noteOf(e), remark: e.Why}
		switch e.State {
		case queue.Done:
			r.state.style = green
		case queue.Cancelled:
			r.state.style = dim
		}
		if e.Seconds > 0 {
			r.since = elapsed(time.Duration(e.Seconds * float64(time.Second)))
		}
		rows = append(rows, r)
	}
	v.writeTable(rowHeads{name: "JOB", state: "STATE", since: "RAN", about: "COMMAND"}, rows)
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
	text := fmt.Sprintf("job %d (%s): %s", e.Number, prose.Clean(e.Name), e.Ending())
	if e.Seconds > 0 {
		text += " after " + elapsed(time.Duration(e.Seconds*float64(time.Second)))
	}
	if e.Why != "" {
		text += ", " + prose.Clean(e.Why)
	}
	return text
}

func gpusOf(e *queue.Entry) string {
	if e.Engine != "" {
		return strings.TrimSpace(e.Engine + " " + e.Node)
	}
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
