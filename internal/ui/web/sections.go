package web

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/check"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/status"
	"gpuard/internal/core/timeline"
	"gpuard/internal/core/trend"
)

// Lang is the language of the page.
func (c *pageData) Lang() string { return c.language }

// Period is what the bands and the history are of.
func (c *pageData) Period() string { return c.Say(periodName(c.days)) }

// periodChoice is a period that can be chosen.
type periodChoice struct {
	Label, Href string
	Current     bool
}

// Periods are all of them.
func (c *pageData) Periods() (all []periodChoice) {
	names := map[int]string{1: "24 h", 7: "7 days", 30: "30 days"}
	for _, days := range selectableDays() {
		all = append(all, periodChoice{c.Say(names[days]), c.pageAddress(days, c.gpu), days == c.days})
	}
	return all
}

// Shape is how a user is drawn.
func (c *pageData) Shape(user string) template.HTMLAttr {
	return template.HTMLAttr(c.UserAttributes(user)) //nolint:gosec // a class of ours
}

// MayEvict reports whether the page can end a process.
func (c *pageData) MayEvict(p status.Process) bool { return c.mayEnd(p.User) }

// MayDrain reports whether the page can take devices out of use.
func (c *pageData) MayDrain() bool { return c.site.Token != "" && c.laid.drains }

// useTable is the use by one property, on the page.
type useTable struct {
	By    string
	Title string
	Use   []trend.Use
	// Hours of the largest.
	Most float64
	// Rows that are left out.
	More int
}

// maxUseRows is how many rows a table of the history has.
const maxUseRows = 10

// tablesOf are the use by user, command and GPU.
func tablesOf(used []trend.EndedLease, s *status.Report) (all []useTable) {
	for _, by := range []string{"user", "command", "gpu"} {
		table := useTable{By: by, Title: strings.Replace("by "+by, "gpu", "GPU", 1), Use: slices.DeleteFunc(trend.SumUse(used, by, time.Local), func(u trend.Use) bool { return u.Granted <= 0 })}
		if len(table.Use) == 0 {
			continue
		}

		table.Most = table.Use[0].Granted
		if by == "gpu" {
			table.Use = slices.Clone(table.Use)
			slices.SortStableFunc(table.Use, func(a, b trend.Use) int { return placeOf(s, a.Name) - placeOf(s, b.Name) })
		} else if more := len(table.Use) - maxUseRows; more > 0 {
			table.Use, table.More = table.Use[:maxUseRows], more
		}

		all = append(all, table)
	}
	return all
}

// placeOf is where a device stands in the report, by its name in the history: "GPU 5 (UUID)".
func placeOf(s *status.Report, name string) int {
	i := slices.IndexFunc(s.Devices, func(d status.Device) bool { return strings.HasSuffix(name, "("+string(d.UUID)+")") })
	if i < 0 {
		return len(s.Devices)
	}
	return i
}

// finding is one of doctor's, or of what somebody does to the others, with the time since when it is known.
type finding struct {
	check.Finding
	// When this process has seen it first.
	Since time.Time
	// When it began; zero where nobody knows.
	Began time.Time
	// Anchor of the device; "" of doctor's.
	Row string
	// Of a process that may be ended here; 0 none.
	PID   int
	Owner string // of that process
}

// Findings are those that ask for something, the gravest first. What somebody does to the others is of the report, as the first line is.
func (v sectionView) Findings() (all []finding) {
	rank := map[check.Severity]int{check.Error: 0, check.Warning: 1, check.Info: 2}
	var ids []string
	here := glance.Findings(&v.Report)
	if a, ok := v.Answer.(interface{ Grave() []check.Finding }); ok {
		for _, f := range a.Grave() {
			if len(here) > 0 && f.Code == "memory-holders" && f.Severity == check.Info {
				// The same processes, as a list.
				continue
			}
			ids, all = append(ids, f.Code), append(all, finding{Finding: f, Began: v.troubleBegan(&f)})
		}
	}

	for i := range here {
		ids, all = append(ids, here[i].ID()), append(all, v.ofReport(&here[i]))
	}

	for i, since := range v.site.live.firstSeen(ids, v.site.live.pages.clockFunc()()) {
		all[i].Since = since
	}

	slices.SortStableFunc(all, func(a, b finding) int { return rank[a.Severity] - rank[b.Severity] })

	return all
}

// Command is what can be typed of what is to be done; "" where that is advice.
func (f finding) Command() string {
	first, _, _ := strings.Cut(f.Do, ", or: ")
	program, _, _ := strings.Cut(first, " ")
	if !slices.Contains([]string{"gpuard", "sudo", "nvidia-smi"}, program) || strings.Contains(first, "; ") {
		return ""
	}

	return first
}

// ofReport is a finding of the report.
func (v sectionView) ofReport(f *glance.Finding) finding {
	out := finding{Finding: check.Finding{Severity: check.Warning, Seen: f.Seen, Do: f.Do}, Row: rowID(&v.Report.Devices[f.Place])}
	if f.Grave {
		out.Severity = check.Error
	}

	if v.mayEnd(f.User) {
		out.PID, out.Owner = f.PID, f.User
	}

	switch {
	case f.Since != nil:
		out.Began = *f.Since
	case f.Key == glance.Over:
		out.Began = timeline.MarkedSince(v.site.lastSeen().Minutes, v.Report.Devices[f.Place].UUID, "breach")
	}

	return out
}

// troubleBegan is when the trouble of a finding began, for a device that does not answer: the minutes know that.
func (c *pageData) troubleBegan(f *check.Finding) time.Time {
	if f.Code != "gpu-answers" {
		return time.Time{}
	}
	for i := range c.Report.Devices {
		d := &c.Report.Devices[i]
		if strings.HasPrefix(f.Seen, fmt.Sprintf("GPU %d: ", d.Index)) {
			return c.laid.silent[d.UUID]
		}
	}
	return time.Time{}
}

// firstSeen is when each finding was seen first, by what names it; one that is gone is forgotten.
func (l *pageUpdater) firstSeen(ids []string, now time.Time) (out []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]time.Time{}
	for _, id := range ids {
		first, known := l.found[id]
		if !known {
			first = now
		}
		found[id] = first
		out = append(out, first)
	}

	l.found = found

	return out
}
