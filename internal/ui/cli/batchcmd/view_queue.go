package batchcmd

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
	"gpuard/internal/ui/translate"
)

// askedText is what a request asks for, in a few words.
func askedText(s *job.Spec) string {
	text := prose.CountNoun(s.GPUs, "GPU")
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
func queueView(v *console.Page, a *QueueAnswer, more int, now time.Time) {
	if len(a.Jobs) == 0 {
		v.WriteText(v.Term.Translate("no job of yours runs or waits; hand one in: gpuard submit -- COMMAND"))
	} else {
		v.WriteTable(console.RowHeads{Number: true, Name: "JOB", State: "STATE", PID: "PID", Since: "SINCE", About: "COMMAND"}, waitingRows(a.Jobs, now))
	}

	if more > 0 {
		v.WriteText(v.Term.Translate(fmt.Sprintf("  and %d more; all: gpuard queue --json", more)))
	}

	whyWait(v, a)

	for i := range a.Hosts {
		v.WriteParagraph(console.Span{}, console.Normal, v.Translate(hostJobsText(&a.Hosts[i])))
	}

	for _, t := range a.Engines {
		v.WriteParagraph(console.Span{}, console.Normal, v.Text(fmt.Sprintf("%s does not answer, and its jobs are shown as they were last: %s", t.Engine, t.Problem)))
	}

	if a.Paused {
		v.WriteText(v.Term.Translate("the queue is paused: nothing is started before gpuard queue resume"))
	}

	for _, line := range a.OddLines {
		v.WriteText(v.Term.Translate(line))
	}

	if a.Problem != "" && !a.Kept {
		v.WriteText(v.Term.Translate("the processes of the queue had ended: " + a.Problem))
	}

	if len(a.Others) > 0 {
		v.WriteText(v.Term.Translate("Other requests in the line:"))
	}

	for i := range a.Others {
		o := &a.Others[i]
		text := fmt.Sprintf("  %d. %s of %s (%s), %s", o.Place, v.Text(o.Command), v.Text(o.User), pick.PIDText(o.PID, o.Apart), planview.WantedText(o))
		if o.Since != nil {
			text += ", for " + console.AgeText(now.Sub(*o.Since))
		}

		v.WriteText(v.Term.Translate(text) + v.Term.Translate(startText(o.Expected, "", o.Endless, now)))

		switch {
		case o.Why == "":
		case i > 0 && o.Why == a.Others[i-1].Why:
			v.WriteParagraph(console.Dim.Span("     "), console.Dim, v.Translate("for the same reason"))
		default:
			v.WriteParagraph(console.Dim.Span("     "), console.Dim, v.Translate(o.Why))
		}
	}
}

// waitingRows are the jobs that have not ended.
func waitingRows(jobs []userqueue.Entry, now time.Time) (rows []console.TableRow) {
	for i := range jobs {
		e := &jobs[i]
		r := console.TableRow{Name: strconv.Itoa(e.Number), State: console.Yellow.Span(string(e.State)), Where: e.Asks, PID: e.PID, About: titleOf(e), When: startText(e.Expected, e.HeldBack, e.Endless, now), Note: noteOf(e)}
		since := e.Submitted
		switch e.State {
		case userqueue.Running:
			r.State.Style = console.Green
			if e.Cancelling {
				r.State = console.Yellow.Span("ending")
			}
			if e.Started != nil {
				since, r.Where = *e.Started, gpusOf(e)
			}
		case userqueue.Held:
			r.State.Style = console.Dim
		case userqueue.After:
			r.State.Text = "after " + joinNumbers(e.Awaits)
		}

		r.Since = console.AgeText(now.Sub(since))
		rows = append(rows, r)
	}
	return rows
}

// hostJobsText says where other jobs of the user are.
func hostJobsText(h *userqueue.HostJobs) string {
	jobs := prose.CountNoun(h.Jobs, "job") + " of yours"
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
func whyWait(p *console.Page, a *QueueAnswer) {
	groups := map[string][]int{}
	for i := range a.Jobs {
		if e := &a.Jobs[i]; e.State == userqueue.Waiting && e.Why != "" {
			groups[e.Why] = append(groups[e.Why], e.Number)
		}
	}
	first := true
	for i := range a.Jobs {
		e := &a.Jobs[i]
		numbers := groups[e.Why]
		if e.State != userqueue.Waiting || len(numbers) == 0 {
			continue
		}

		delete(groups, e.Why)
		lead := fmt.Sprintf("job %d waits:", numbers[0])
		if len(numbers) > 1 {
			lead = fmt.Sprintf("job %d and %d more wait:", numbers[0], len(numbers)-1)
		}

		p.WriteParagraph(console.Dim.Span(p.Translate(lead)+" "), console.Normal, p.Translate(e.Why))
		if first {
			planview.WriteReasons(p, a.Reasons)
			first = false
		}

		if e.Remedy != "" {
			p.WriteParagraph(console.Dim.Span(p.Translate("sooner:")+" "), console.Normal, p.Translate(e.Remedy))
		}
	}
}

// titleOf tells jobs of one program apart: the name that its owner gave it, else the command.
func titleOf(e *userqueue.Entry) string {
	if e.Spec.Name != "" || len(e.Command) < 2 {
		return e.Name
	}
	return e.Name + " " + strings.Join(e.Command[1:], " ")
}

// startText is when a request may start: by estimates, or what keeps it, or what runs there of which no end is known.
func startText(expected *time.Time, heldBack, endless string, now time.Time) string {
	switch {
	case heldBack != "":
		return ", " + heldBack
	case expected == nil && endless != "":
		return ", no end known (" + endless + ")"
	case expected == nil:
		return ""
	}
	left := expected.Sub(now)
	switch {
	case left <= 0:
		return ", may start now"
	case left < time.Minute:
		return ", in less than a minute"
	}

	return ", in about " + console.AboutText(left)
}

func noteOf(e *userqueue.Entry) string {
	if e.Note == "" {
		return ""
	}
	return "  " + e.Note
}

// historyView writes what gpuard history shows.
func historyView(v *console.Page, list []userqueue.Entry, now time.Time) {
	if len(list) == 0 {
		v.WriteText(v.Term.Translate("no job of yours has ended; what runs or waits: gpuard queue"))
		return
	}

	var rows []console.TableRow
	for i := range list {
		e := &list[i]
		r := console.TableRow{Name: strconv.Itoa(e.Number), State: console.Red.Span(e.EndText()), Where: gpusOf(e), Since: "-", About: titleOf(e), When: usedText(e, v.Term.Language), Note: noteOf(e), Remark: e.Why}
		switch e.State {
		case userqueue.Done:
			r.State.Style = console.Green
		case userqueue.Cancelled:
			r.State.Style = console.Dim
		}

		if e.Ended != nil {
			r.Ended = prose.ClockTime(*e.Ended, now)
		}

		if e.Seconds > 0 {
			r.Since = console.ElapsedText(time.Duration(e.Seconds * float64(time.Second)))
		}

		rows = append(rows, r)
	}

	heads := console.RowHeads{Number: true, Name: "JOB", State: "STATE", Ended: "ENDED", Since: "RAN", About: "COMMAND"}
	if v.Term.Width >= console.TableWidth && v.Term.Width < console.UsualWidth {
		// Too narrow for one more column.
		heads.Ended = ""
	}

	v.WriteTable(heads, rows)
}

// usedText is how often a job was started, if more than once, and what was measured of it, behind its title.
func usedText(e *userqueue.Entry, l translate.Language) string {
	parts := []string{""}
	if e.Starts > 1 {
		parts = append(parts, fmt.Sprintf("%d starts", e.Starts))
	}

	if e.Peak != nil {
		parts = append(parts, e.Peak.String())
	}

	if e.Load != nil {
		parts = append(parts, fmt.Sprintf("load %.0f %%", *e.Load*100))
	}

	return l.Join(", ", parts...)
}

// EndText says in one line how a job ended.
func EndText(e *userqueue.Entry) string {
	text := fmt.Sprintf("job %d (%s): %s", e.Number, prose.Clean(e.Name), e.EndText())
	if e.Seconds > 0 {
		text += " after " + console.ElapsedText(time.Duration(e.Seconds*float64(time.Second)))
	}
	if e.Why != "" {
		text += ", " + prose.Clean(e.Why)
	}

	return text
}

func gpusOf(e *userqueue.Entry) string {
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
