package web

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/check"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/timeline"
	"gpuard/internal/core/trend"
)

// finding is one of doctor's, or of what somebody does to the others, with the time since when it is known.
type finding struct {
	check.Finding
	// When this process has seen it first.
	Since time.Time
	// When it began; zero where nobody knows.
	Began time.Time
	// Anchor of the device; "" of doctor's.
	Row string
	// The PID of a process that may be ended here; 0 none.
	PID   int
	Owner string // of that process
}

// Findings are those that ask for something, the gravest first. What somebody does to the others is of the report, as the first line is.
func (s sectionView) Findings() (all []finding) {
	rank := map[check.Severity]int{check.Error: 0, check.Warning: 1, check.Info: 2}
	var ids []string
	here := glance.Findings(&s.Report)
	if a, ok := s.Answer.(interface{ Grave() []check.Finding }); ok {
		grave := a.Grave()
		for _, f := range grave {
			if s.isToldAlready(&f, grave, len(here)) {
				continue
			}

			row, began := "", s.troubleBegan(&f)
			if d := s.deviceOf(&f); d != nil {
				row = rowID(d)
			}
			ids, all = append(ids, f.Code), append(all, finding{Finding: s.findingOfRow(f, began), Began: began, Row: row})
		}
	}

	for i := range here {
		ids, all = append(ids, here[i].ID()), append(all, s.ofReport(&here[i]))
	}

	for i, since := range s.site.live.firstSeen(ids, s.site.live.pages.clockFunc()()) {
		all[i].Since = since
	}

	slices.SortStableFunc(all, func(a, b finding) int { return rank[a.Severity] - rank[b.Severity] })

	return all
}

// step is one way to do what a finding asks for.
type step struct {
	Text string
	// It is a whole command: it can be copied.
	Typed bool
}

// placeholder is what a person has to fill in.
var placeholder = regexp.MustCompile(` [A-Z]{4,}( |$)`)

// Steps are the ways to do it, each command by itself.
func (f finding) Steps() (all []step) {
	if f.Do == "" {
		return nil
	}

	ways := strings.Split(f.Do, ", or: ")
	for _, way := range ways {
		if !isCommand(way) {
			return []step{{Text: f.Do}}
		}
		all = append(all, step{way, true})
	}

	return all
}

// isCommand reports whether a text is a whole command, and nothing besides.
func isCommand(text string) bool {
	program, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{"gpuard", "sudo", "nvidia-smi"}, program) && !strings.Contains(text, "; ") && !placeholder.MatchString(text)
}

// pastTrouble is a mark in a band whose trouble is over.
type pastTrouble struct {
	trend.Mark
	Row, Device string
}

// Says is what it was: "slowed down because of heat, over".
func (p pastTrouble) Says() string {
	text := p.Text
	if p.What == "throttle" {
		switch {
		case strings.Contains(text, "thermal"):
			text = "slowed down because of heat"
		case strings.Contains(text, "power_brake"):
			text = "slowed down because of the power supply"
		default:
			text = "slowed down by its hardware"
		}
	}

	return text + ", over"
}

// maxPastTroubles is how many are listed.
const maxPastTroubles = 8

// Past are the troubles of the last day that are over, the latest first.
func (s sectionView) Past() (all []pastTrouble) {
	if s.days != 1 {
		return nil
	}
	for i := range s.Bands {
		d := &s.Report.Devices[i]
		for _, m := range s.Bands[i].PastMarks(d) {
			all = append(all, pastTrouble{m, rowID(d), fmt.Sprintf("GPU %d", d.Index)})
		}
	}

	slices.SortStableFunc(all, func(a, b pastTrouble) int { return b.At.Compare(a.At) })

	return all[:min(len(all), maxPastTroubles)]
}

// ofReport is a finding of the report.
func (s sectionView) ofReport(f *glance.Finding) finding {
	out := finding{Finding: check.Finding{Severity: check.Warning, Seen: f.Seen, Do: f.Do}, Row: rowID(&s.Report.Devices[f.Place])}
	if f.Grave {
		out.Severity = check.Error
	}

	if s.mayEnd(f.User) {
		out.PID, out.Owner = f.PID, f.User
	}

	switch {
	case f.Since != nil:
		out.Began = *f.Since
	case f.Key == glance.Over:
		out.Began = timeline.MarkedSince(s.site.lastSeen().Minutes, s.Report.Devices[f.Place].UUID, "breach")
	}

	return out
}

// troubleBegan is when the trouble of a finding began, as far as the minutes know it or the driver has said it.
func (c *pageData) troubleBegan(f *check.Finding) time.Time {
	d := c.deviceOf(f)
	if d == nil {
		return time.Time{}
	}

	switch f.Code {
	case "gpu-answers":
		return c.laid.silent[d.UUID]
	case "xid-errors":
		for i := len(d.XIDs) - 1; i >= 0; i-- {
			if at := d.XIDs[i].At; at != nil && strings.Contains(f.Seen, fmt.Sprintf("XID %d", d.XIDs[i].Code)) {
				return *at
			}
		}
	case "clock-events":
		return timeline.MarkedSince(c.site.lastSeen().Minutes, d.UUID, "throttle")
	}

	return time.Time{}
}

// deviceOf is the device that a finding of doctor is about; nil where it is about none, or several.
func (c *pageData) deviceOf(f *check.Finding) *status.Device {
	for i := range c.Report.Devices {
		d := &c.Report.Devices[i]
		if name := fmt.Sprintf("GPU %d", d.Index); strings.HasPrefix(f.Seen, name+" ") || strings.HasPrefix(f.Seen, name+": ") {
			return d
		}
	}
	return nil
}

// xidMoment is the time in a sentence about an error of the driver.
var xidMoment = regexp.MustCompile(` on \d+ [A-Z][a-z]+ at \d\d:\d\d`)

// findingOfRow is a finding of doctor as the page says it: a state has the word that the row has, with the reason behind it, and the time stands once.
func (c *pageData) findingOfRow(f check.Finding, began time.Time) check.Finding {
	d := c.deviceOf(&f)
	if d == nil {
		f.Seen = strings.Replace(f.Seen, c.everyDevice(), "every GPU", 1)
		return f
	}

	if name := fmt.Sprintf("GPU %d", d.Index); f.Code == "gpu-answers" {
		f.Seen = strings.Replace(f.Seen, name+": ", name+" "+string(d.Health)+": ", 1)
	}

	if f.Code == "xid-errors" && !began.IsZero() {
		f.Seen = xidMoment.ReplaceAllString(f.Seen, "")
	}

	return f
}

// everyDevice is how a sentence of doctor lists all devices of several.
func (c *pageData) everyDevice() string {
	var numbers []string
	for i := range c.Report.Devices {
		numbers = append(numbers, strconv.Itoa(c.Report.Devices[i].Index))
	}

	return "GPU " + prose.JoinWords(numbers, "and")
}

// isToldAlready reports whether another finding says the same of the device: the same processes as a list, or that it is slowed down by the heat.
func (c *pageData) isToldAlready(f *check.Finding, all []check.Finding, here int) bool {
	switch f.Code {
	case "memory-holders":
		return here > 0 && f.Severity == check.Info
	case "temperature":
		d := c.deviceOf(f)
		return d != nil && slices.ContainsFunc(all, func(o check.Finding) bool {
			return o.Code == "clock-events" && c.deviceOf(&o) == d && strings.Contains(o.Seen, "heat")
		})
	}
	return false
}

// firstSeen is when each finding was seen first, by what names it; one that is gone is forgotten.
func (p *pageUpdater) firstSeen(ids []string, now time.Time) (out []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]time.Time{}
	for _, id := range ids {
		first, known := p.found[id]
		if !known {
			first = now
		}
		found[id] = first
		out = append(out, first)
	}

	p.found = found

	return out
}
