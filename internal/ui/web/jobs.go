package web

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/band"
)

// runRow is a job that runs, on all of its devices.
type runRow struct {
	status.Lease
	// Of the queue; 0 none.
	Number  int
	Own     bool
	Devices []*status.Device
	// Mean of its devices.
	Load *float64
	For  string
	Till string
}

// Running are the leases, one's own first, then in the order of their devices.
func (c jobSection) Running() (rows []*runRow) {
	at := map[string]*runRow{}
	owner := c.site.ownerName()
	c.Report.EachDevice(func(d *status.Device) {
		for _, l := range d.Leases {
			if l.Parent != "" {
				continue
			}

			row := at[l.ID]
			if row == nil {
				row = &runRow{Lease: l, Own: l.User == owner}
				row.Memory = nil
				at[l.ID] = row
				rows = append(rows, row)
			}

			row.Devices = append(row.Devices, d)
			if l.Memory != nil {
				sum := *l.Memory
				if row.Memory != nil {
					sum += *row.Memory
				}
				row.Memory = &sum
			}

			row.Unhealthy = ""
		}
	})

	numbers := c.jobNumbers()
	for _, row := range rows {
		row.Number = numbers[row.PID]
		row.Load = meanLoad(row.Devices)
		row.Till = c.tillText(&row.Lease)
		if row.Since != nil {
			row.For = band.DurationText(c.reportTime().Sub(*row.Since))
		}
	}

	slices.SortStableFunc(rows, func(a, b *runRow) int {
		return map[bool]int{true: 0, false: 1}[a.Own] - map[bool]int{true: 0, false: 1}[b.Own]
	})

	return rows
}

// tillText is when a lease is over.
func (c *pageData) tillText(l *status.Lease) string {
	at, estimated, known := l.EndsAt(c.reportTime())
	switch {
	case !known:
		return "–"
	case estimated:
		return "about " + prose.ClockTime(at, c.reportTime())
	}
	return prose.ClockTime(at, c.reportTime())
}

// jobNumbers are those of the own jobs that run, by the process of their lease.
func (c *pageData) jobNumbers() map[int]int {
	out := map[int]int{}
	for _, e := range c.queueLine().Jobs {
		if e.State == userqueue.Running && e.PID > 0 {
			out[e.PID] = e.Number
		}
	}
	return out
}

func meanLoad(devices []*status.Device) *float64 {
	sum, n := 0.0, 0
	for _, d := range devices {
		if d.Utilization != nil {
			sum, n = sum+*d.Utilization, n+1
		}
	}
	if n == 0 {
		return nil
	}

	return new(sum / float64(n))
}

// Names are the devices of a row: "0, 1".
func (r *runRow) Names() string {
	names := []string{}
	for _, d := range r.Devices {
		name := strconv.Itoa(d.Index)
		if d.Profile != "" {
			name = d.Profile
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Ends reports whether an action of the page can end it: a run is its owner's to end, and a lease that is left over root's too.
func (r *runRow) Ends(c *screen) bool {
	return c.mayEnd(r.User) && (r.Ended || r.User == c.site.ownerName())
}

// Ask is the question before it is ended.
func (r *runRow) Ask(c *screen) string {
	name := r.ID
	if r.Number > 0 {
		name = strconv.Itoa(r.Number)
	}
	if r.Ended {
		return c.Say(fmt.Sprintf("Release %s, %s of %s, whose command has ended?", r.ID, r.Command, r.User))
	}

	return c.Say(fmt.Sprintf("End job %s, %s of %s, running for %s?", name, r.Command, r.User, r.For))
}

// Act is the action that ends it.
func (r *runRow) Act() string {
	if r.Ended {
		return "release"
	}
	return "cancel"
}

// Word is what the action is done to.
func (r *runRow) Word() string {
	if r.Number > 0 && !r.Ended {
		return strconv.Itoa(r.Number)
	}
	return r.ID
}

// mayEnd reports whether the user who serves can end what belongs to somebody.
func (c *pageData) mayEnd(user string) bool {
	owner := c.site.ownerName()
	return c.site.Token != "" && (user == owner || owner == "root")
}

// lineSource is an answer that has what the page shows of a queue.
type lineSource interface{ Line() userqueue.Line }

// queueLine is the queue; empty where it cannot be read.
func (c *pageData) queueLine() userqueue.Line {
	if a, ok := c.answers["queue"].answer.(lineSource); ok {
		return a.Line()
	}
	return userqueue.Line{Others: c.Report.Waiting}
}

// waitGroup are jobs that wait for the same reason.
type waitGroup struct {
	Why, Remedy string
	Rows        []*waitRow
	Jobs        int
}

// Short and Rest are the reason in one sentence, and what it says of each device.
func (g *waitGroup) Short() string { short, _, _ := strings.Cut(g.Why, "; "); return short }

// Rest is what the reason says of each device; "" nothing.
func (g *waitGroup) Rest() string { _, rest, _ := strings.Cut(g.Why, "; "); return rest }

// waitRow is a job that waits, or an array of them.
type waitRow struct {
	Own bool
	// It gets devices next.
	First bool
	// "8 train.py", "12–40 sweep[1–29]".
	Label, User string
	Jobs        int
	Asks        string
	// Held, or after others; "" it waits for devices.
	State   string
	Since   time.Time
	Start   string // "about 14:20"
	Words   []string
	numbers []int
	// Jobs that have to end before.
	after []int
	name  string
}

// waitList is what waits: one's own jobs first.
type waitList struct {
	Groups []*waitGroup
	// That are folded away.
	Rest []*waitGroup
	// Jobs of the queue of the user who serves.
	Own     int
	Others  int // other requests
	Paused  bool
	Problem string
	More    int
}

// maxWaitingRows is how many rows are shown at once.
const maxWaitingRows = 12

// Waiting groups what waits.
func (c jobSection) Waiting() waitList {
	line := c.queueLine()
	list := waitList{Paused: line.Paused, Problem: line.Problem, More: line.More, Own: ownWaiting(&line), Others: len(line.Others)}
	var groups []*waitGroup
	put := func(why, remedy string, row *waitRow) {
		last := len(groups) - 1
		if last < 0 || groups[last].Why != why || groups[last].Remedy != remedy {
			groups, last = append(groups, &waitGroup{Why: why, Remedy: remedy}), last+1
		}

		g := groups[last]
		g.Jobs += row.Jobs
		if n := len(g.Rows); n > 0 && g.Rows[n-1].mergeIfSame(row) {
			return
		}

		g.Rows = append(g.Rows, row)
	}

	next := ""
	if c.Answer.Next != nil {
		next = c.Answer.Next.Ticket
	}

	ticket := c.ownTicket(&line)
	for i := range line.Jobs {
		e := &line.Jobs[i]
		if !isWaiting(e) {
			continue
		}

		row := c.ownRow(e)
		if ticket != nil && row.State == "" && row.name == ticket.Command {
			row.First = ticket.ID == next
			if at := c.Answer.Mine.At; !at.IsZero() {
				row.Start = c.startText(at)
			}
			ticket = nil
		}

		put(e.Why, e.Remedy, row)
	}

	starts := glance.ForecastStarts(&c.Report)
	for i := range line.Others {
		w := &line.Others[i]
		row := c.otherRow(w)
		row.First = w.ID == next
		if k := slices.IndexFunc(c.Report.Waiting, func(o status.Waiting) bool { return o.ID == w.ID }); k >= 0 && !starts[k].IsZero() {
			row.Start = c.startText(starts[k])
		}

		put(w.Why, "", row)
	}

	list.foldGroups(groups)

	return list
}

// ownTicket is the first request of the own queue in the line, of which the first line speaks; nil where there is none. A request that is
// listed beside the queue is none of it.
func (c jobSection) ownTicket(line *userqueue.Line) *status.Waiting {
	mine := c.Answer.Mine
	if mine == nil || slices.ContainsFunc(line.Others, func(o status.Waiting) bool { return o.ID == mine.Ticket }) {
		return nil
	}
	i := slices.IndexFunc(c.Report.Waiting, func(w status.Waiting) bool { return w.ID == mine.Ticket })

	return &c.Report.Waiting[i]
}

// isWaiting reports whether a job of the queue has not begun.
func isWaiting(e *userqueue.Entry) bool { return e.State != userqueue.Running && !e.State.Over() }

// ownWaiting is how many jobs of the queue of the user who serves wait.
func ownWaiting(line *userqueue.Line) int {
	n := line.More
	for i := range line.Jobs {
		if isWaiting(&line.Jobs[i]) {
			n++
		}
	}
	return n
}

// foldGroups shows the first rows, and keeps the others for who opens them.
func (l *waitList) foldGroups(groups []*waitGroup) {
	shown := 0
	for _, g := range groups {
		switch left := maxWaitingRows - shown; {
		case left <= 0:
			l.Rest = append(l.Rest, g)
		case len(g.Rows) <= left:
			l.Groups = append(l.Groups, g)
		default:
			head, tail := *g, *g
			head.Rows, tail.Rows = g.Rows[:left], g.Rows[left:]
			l.Groups, l.Rest = append(l.Groups, &head), append(l.Rest, &tail)
		}
		shown += len(g.Rows)
	}
}

// Folded is how many jobs are folded away.
func (l waitList) Folded() (n int) {
	for _, g := range l.Rest {
		for _, row := range g.Rows {
			n += row.Jobs
		}
	}
	return n
}

func (c jobSection) ownRow(e *userqueue.Entry) *waitRow {
	row := &waitRow{Own: true, User: c.site.ownerName(), Jobs: 1, Asks: e.Asks, Since: e.Submitted, numbers: []int{e.Number}, name: e.Name, Words: []string{strconv.Itoa(e.Number)}}
	switch {
	case e.Cancelling:
		row.State = "ending"
	case e.State == userqueue.After:
		row.State, row.after = "after "+numberList(e.Awaits), e.Awaits
	case e.State != userqueue.Waiting:
		row.State = string(e.State)
	case e.HeldBack != "":
		row.State = e.HeldBack
	case e.Expected != nil:
		row.Start = c.startText(*e.Expected)
	case e.Endless != "":
		row.Start = c.Say("no end known")
	}
	row.updateLabel()

	return row
}

func (c jobSection) otherRow(w *status.Waiting) *waitRow {
	row := &waitRow{Own: w.User == c.site.ownerName(), User: w.User, Label: w.Command, Jobs: 1, Asks: prose.CountNoun(w.Count, "GPU")}
	switch {
	case w.Share > 0:
		row.Asks += ", share " + w.Share.String()
	case w.Memory > 0:
		row.Asks += ", " + w.Memory.String()
	}

	if w.Since != nil {
		row.Since = *w.Since
	}

	if w.Stopped {
		row.State = "stopped"
	}

	if w.Endless != "" && w.Expected == nil {
		row.Start = c.Say("no end known")
	}

	return row
}

// startText is when a request may start.
func (c *pageData) startText(at time.Time) string {
	if !at.After(c.reportTime().Add(time.Minute)) {
		return c.Say("now")
	}
	return c.Say("about " + prose.ClockTime(at, c.reportTime()))
}

func numberList(numbers []int) string {
	return strings.ReplaceAll(prose.Ranges(numbers, ", "), "-", "–")
}

// arrayTask is a job of an array: its name and its number.
var arrayTask = regexp.MustCompile(`^(.*)\[(\d+)\]$`)

// arrayOf is what the jobs of an array are called together, or jobs of the same name.
func arrayOf(name string) string {
	if m := arrayTask.FindStringSubmatch(name); m != nil {
		return m[1] + "[]"
	}
	return name
}

// mergeIfSame reports whether a job is one more of the same array or name, and adds it.
func (r *waitRow) mergeIfSame(o *waitRow) bool {
	if r.name == "" || !r.Own || !o.Own || arrayOf(r.name) != arrayOf(o.name) || r.Asks != o.Asks || len(r.after)+len(o.after) == 0 && r.State != o.State || (r.after == nil) != (o.after == nil) {
		return false
	}

	if r.after != nil {
		r.after = append(r.after, o.after...)
		r.State = "after " + numberList(r.after)
	}

	r.Jobs++
	r.numbers, r.Words = append(r.numbers, o.numbers...), append(r.Words, o.Words...)
	r.updateLabel()

	return true
}

// updateLabel names a row by its numbers and its job.
func (r *waitRow) updateLabel() {
	r.Label = numberList(r.numbers) + " " + r.name
	if r.Jobs > 1 {
		r.Label = numberList(r.numbers) + " " + arrayOf(r.name)
	}
}

// Ask is the question before jobs are cancelled.
func (r *waitRow) Ask(c *screen) string {
	if r.Jobs > 1 {
		return c.Say(fmt.Sprintf("Cancel %d jobs of %s?", r.Jobs, r.Label))
	}
	return c.Say(fmt.Sprintf("Cancel job %s?", r.Label))
}

// Cancels reports whether the page can cancel it.
func (r *waitRow) Cancels(c *screen) bool { return len(r.Words) > 0 && c.mayEnd(r.User) }
