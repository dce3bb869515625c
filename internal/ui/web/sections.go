package web

import (
	"html/template"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/status"
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
