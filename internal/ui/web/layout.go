package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/timeline"
	"gpuard/internal/core/trend"
)

// layout is what the bands and the history of one period show. It stays the same until a minute is over or a lease begins or
// ends, so that a page that is kept current costs little.
type layout struct {
	key     string
	picture timeline.Picture
	// The place of each user by GPU-hours in a month, so that a colour stays.
	ranks  map[string]int
	users  []trend.Use
	tables []useTable
	// The user who serves may take devices out of use.
	drains bool
	// The times since when devices are lost or do not answer, where that is known.
	silent map[gpu.UUID]time.Time
	bands  map[string][]template.HTML // by language
}

// layoutOf is that of a screen.
func (p *pageUpdater) layoutOf(c *pageData, seen *observe.Snapshot) *layout {
	said := c.answers["history"]
	history, _ := said.answer.(trend.UseReport)
	key := layoutKey(c, seen, said.at)
	p.mu.Lock()
	have := p.laid[c.days]
	p.mu.Unlock()
	if have != nil && have.key == key {
		return have
	}

	made := newLayout(c, seen, trend.MergeEnded(history.Leases, seen.Over))
	made.key = key
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.laid == nil {
		p.laid = map[int]*layout{}
	}

	p.laid[c.days] = made

	return made
}

// layoutKey changes with what a layout shows.
func layoutKey(c *pageData, seen *observe.Snapshot, history time.Time) string {
	var w strings.Builder
	fmt.Fprintln(&w, c.rightEnd(), history.UnixNano(), len(seen.Minutes), lastMinuteEnd(seen.Minutes), len(seen.Over))

	for i := range seen.Uses {
		fmt.Fprintln(&w, seen.Uses[i].Lease, seen.Uses[i].Since.UnixNano())
	}

	for i := range c.Report.Devices {
		fmt.Fprintln(&w, c.Report.Devices[i].UUID)
	}

	return w.String()
}

// rightEnd is the end of the minute of the report: the right end of the bands.
func (c *pageData) rightEnd() time.Time {
	return cmp.Or(c.Report.Now, c.Report.Taken).Truncate(time.Minute).Add(time.Minute)
}

func newLayout(c *pageData, seen *observe.Snapshot, past []trend.EndedLease) *layout {
	to := c.rightEnd()
	made := &layout{ranks: map[string]int{}, bands: map[string][]template.HTML{}, drains: c.site.canDo("drain")}
	made.picture = timeline.NewPicture(timeline.View{Report: &c.Report, Leases: past, Open: seen.Uses, Minutes: seen.Minutes, To: to, Span: time.Duration(c.days) * 24 * time.Hour, Columns: bandColumns})
	made.silent = map[gpu.UUID]time.Time{}

	for i := range c.Report.Devices {
		id := c.Report.Devices[i].UUID
		made.silent[id] = timeline.StateSince(seen.Minutes, id, "unhealthy")
	}

	all := slices.Concat(past, seen.Uses)
	for i, u := range trend.SumUse(timeline.LeasesWithin(all, to.Add(-30*24*time.Hour), to), "user", time.Local) {
		made.ranks[u.Name] = i
	}

	used := timeline.LeasesWithin(all, made.picture.From, made.picture.To)
	made.users = slices.DeleteFunc(trend.SumUse(used, "user", time.Local), func(u trend.Use) bool { return u.Granted <= 0 })
	made.tables = tablesOf(used, &c.Report)

	return made
}

// legendUser is a user in the legend.
type legendUser struct {
	trend.Use
	// The part of all GPU-hours granted in the period.
	Part  float64
	Shape template.HTMLAttr
}

// Holders are the users of the period, who had most first.
func (c *pageData) Holders() (all []legendUser) {
	sum := 0.0
	for _, u := range c.laid.users {
		sum += u.Granted
	}
	for _, u := range c.laid.users {
		all = append(all, legendUser{u, u.Granted / sum, c.Shape(u.Name)})
	}

	return all
}

// Tables are the use in the period by user, command and GPU.
func (c *pageData) Tables() []useTable { return c.laid.tables }

// drawBands are the bands, in the order of the devices.
func (c *bandSection) drawBands() []template.HTML {
	l := &c.site.live
	l.mu.Lock()
	have := c.laid.bands[c.language]
	l.mu.Unlock()
	if have != nil {
		return have
	}

	for i := range c.Rows {
		r := &c.Rows[i]
		have = append(have, c.Painter.Band(r.Strip, r.Title+", "+c.Say(periodName(c.days))))
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	c.laid.bands[c.language] = have

	return have
}
