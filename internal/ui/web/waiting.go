package web

import (
	"cmp"
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
)

// lineSource is an answer that has what the page shows of a queue.
type lineSource interface{ Line() userqueue.Line }

// queueLine is the queue; empty where it cannot be read.
func (c *pageData) queueLine() userqueue.Line {
	if a, ok := c.answers["queue"].answer.(lineSource); ok {
		return a.Line()
	}
	return userqueue.Line{Others: c.Report.Waiting}
}

// waitGroup are jobs that follow each other in the line and wait for the same reason.
type waitGroup struct {
	Why, Remedy string
	Rows        []*waitRow
	// Stands above it; "" nothing.
	Head string
}

// Short and Rest are the reason in one sentence, which says whose it is, and what it says of each device.
func (w *waitGroup) Short() string {
	short, _, _ := strings.Cut(w.Why, "; ")
	return strings.Replace(short, "that it can use", "that "+w.waiterText()+" can use", 1)
}

// Rest is what the reason says of each device; "" nothing.
func (w *waitGroup) Rest() string { _, rest, _ := strings.Cut(w.Why, "; "); return rest }

// waiterText is who waits for the reason.
func (w *waitGroup) waiterText() string {
	if len(w.Rows) == 1 && w.Rows[0].Jobs == 1 {
		return w.Rows[0].Label
	}
	return "they"
}

// waitRow is a job that waits, or an array of them.
type waitRow struct {
	// The place in the line of the machine, of the first of several; 0: none.
	Place int
	// It is not in the line yet.
	Late bool
	Own  bool
	// It gets devices next.
	First bool
	// The first line speaks of it.
	Told bool
	// "train.py", "sweep[1–29]".
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
	after       []int
	names       []string
	why, remedy string
}

// Numbers are those of the queue: "job 8", "40 jobs: 9–48"; "" of a request that is in no queue.
func (w *waitRow) Numbers() string {
	switch len(w.numbers) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("job %d", w.numbers[0])
	}
	return fmt.Sprintf("%d jobs: %s", len(w.numbers), numberList(w.numbers))
}

// waitList is what waits, in the order of the line.
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

// maxWaitingRows is how many rows are shown at once, beside one's own, which are always shown; a few more are not worth folding.
const (
	maxWaitingRows = 12
	fewRows        = 3
)

// Waiting are the requests in the order of the line, and below them the own jobs that are not in it yet.
func (j jobSection) Waiting() waitList {
	line := j.queueLine()
	list := waitList{Paused: line.Paused, Problem: line.Problem, More: line.More, Own: ownWaiting(&line), Others: len(line.Others)}
	own := j.ownRows(&line)
	starts := glance.ForecastStarts(&j.Report)
	var rows []*waitRow
	place := 0
	for i := range j.Report.Waiting {
		w := &j.Report.Waiting[i]
		row := ownRowOf(&line, own, w)
		if row == nil {
			row = j.otherRow(w)
		}

		row.Told = row.Told || j.Answer.Mine != nil && j.Answer.Mine.Ticket == w.ID
		if glance.IsInLine(w) {
			place++
			row.Place = cmp.Or(row.Place, place)
		}

		if !slices.Contains(rows, row) {
			j.fillStart(row, w, starts[i])
			rows = append(rows, row)
		}
	}

	for _, row := range own {
		if !slices.Contains(rows, row) {
			row.Late = true
			rows = append(rows, row)
		}
	}

	list.foldRows(rows)

	return list
}

// fillStart says of a row in the line whether it is next, and when it may start.
func (j jobSection) fillStart(row *waitRow, w *status.Waiting, start time.Time) {
	row.First = j.Answer.Next != nil && j.Answer.Next.Ticket == w.ID
	if j.Answer.Mine != nil && j.Answer.Mine.Ticket == w.ID && row.State == "" {
		// As the first line says it.
		start = cmp.Or(j.Answer.Mine.At, start)
	}

	switch {
	case start.IsZero():
		return
	case row.Jobs > 1 && start.After(j.reportTime().Add(time.Minute)):
		row.Start = j.Say("from about " + prose.NearTime(start, j.reportTime()))
		return
	}

	row.Start = j.startText(start)
}

// ownRows are the jobs of the own queue that wait, an array or jobs of one name in one row.
func (j jobSection) ownRows(line *userqueue.Line) (rows []*waitRow) {
	for i := range line.Jobs {
		e := &line.Jobs[i]
		if !isWaiting(e) {
			continue
		}

		row := j.ownRow(e)
		if n := len(rows); n > 0 && rows[n-1].mergeIfSame(row) {
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// ownRowOf is the row of the own queue that a request in the line is of; nil where there is none. A request that is listed beside the queue is
// none of it.
func ownRowOf(line *userqueue.Line, own []*waitRow, w *status.Waiting) *waitRow {
	if slices.ContainsFunc(line.Others, func(o status.Waiting) bool { return o.ID == w.ID }) {
		return nil
	}
	for _, row := range own {
		if row.User == w.User && row.State == "" && slices.Contains(row.names, w.Command) {
			return row
		}
	}
	return nil
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

// foldRows shows the first rows and the own ones, and keeps the others for who opens them.
func (w *waitList) foldRows(rows []*waitRow) {
	var shown, folded []*waitRow
	for i, row := range rows {
		if row.Own || len(shown) < maxWaitingRows || len(rows)-i <= fewRows {
			shown = append(shown, row)
			continue
		}
		folded = append(folded, row)
	}

	if len(folded) <= fewRows {
		shown, folded = rows, nil
	}

	w.Groups, w.Rest = groupRows(shown), groupRows(folded)
}

// groupRows puts rows of the same reason together that follow each other.
func groupRows(rows []*waitRow) (groups []*waitGroup) {
	for i, row := range rows {
		last := len(groups) - 1
		isLate := i > 0 && row.Late && !rows[i-1].Late
		if last < 0 || isLate || groups[last].Why != row.why || groups[last].Remedy != row.remedy {
			groups, last = append(groups, &waitGroup{Why: row.why, Remedy: row.remedy}), last+1
		}
		if isLate {
			groups[last].Head = "not in the line yet"
		}

		groups[last].Rows = append(groups[last].Rows, row)
	}
	return groups
}

// Sum says how many wait, and whose they are: "100 wait: 12 of others, 88 yours"; "" where there is no own queue.
func (w waitList) Sum() string {
	if w.Own == 0 || w.Others == 0 {
		return ""
	}
	return fmt.Sprintf("%d wait: %d of others, %d yours", w.Own+w.Others, w.Others, w.Own)
}

// Folded is how many requests of others are folded away.
func (w waitList) Folded() (n int) {
	for _, g := range w.Rest {
		for _, row := range g.Rows {
			n += row.Jobs
		}
	}
	return n
}

func (j jobSection) ownRow(e *userqueue.Entry) *waitRow {
	row := &waitRow{Own: true, User: j.site.ownerName(), Jobs: 1, Asks: e.Asks, Since: e.Submitted, numbers: []int{e.Number}, names: []string{e.Name}, Words: []string{strconv.Itoa(e.Number)}, why: e.Why, remedy: e.Remedy}
	switch {
	case e.Cancelling:
		row.State = "ending"
	case e.State == userqueue.After:
		row.after = e.Awaits
		row.updateAfter()
	case e.State != userqueue.Waiting:
		row.State = string(e.State)
	case e.HeldBack != "":
		row.State = e.HeldBack
	case e.Expected != nil:
		row.Start = j.startText(*e.Expected)
	case e.Endless != "":
		row.Start = j.Say("no end known")
	}
	row.updateLabel()

	return row
}

func (j jobSection) otherRow(w *status.Waiting) *waitRow {
	row := &waitRow{Own: w.User == j.site.ownerName(), User: w.User, Label: w.Command, Jobs: 1, Asks: prose.CountNoun(w.Count, "GPU"), why: w.Why}
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
		row.Start = j.Say("no end known")
	}

	return row
}

// startText is when a request may start.
func (c *pageData) startText(at time.Time) string {
	if !at.After(c.reportTime().Add(time.Minute)) {
		return c.Say("now")
	}
	return c.Say("about " + prose.NearTime(at, c.reportTime()))
}

func numberList(numbers []int) string {
	return strings.ReplaceAll(prose.Ranges(numbers, ", "), "-", "–")
}

// arrayTask is a job of an array: its name and its number.
var arrayTask = regexp.MustCompile(`^(.*)\[(\d+)\]$`)

// arrayOf is what the jobs of an array have in common, or jobs of the same name.
func arrayOf(name string) string {
	if m := arrayTask.FindStringSubmatch(name); m != nil {
		return m[1] + "["
	}
	return name
}

// mergeIfSame reports whether a job is one more of the same array or name, and adds it.
func (w *waitRow) mergeIfSame(o *waitRow) bool {
	if arrayOf(w.names[0]) != arrayOf(o.names[0]) || w.Asks != o.Asks || w.why != o.why || w.remedy != o.remedy || (w.after == nil) != (o.after == nil) || w.after == nil && w.State != o.State {
		return false
	}

	w.Jobs++
	w.names = append(w.names, o.names...)
	w.numbers, w.Words = append(w.numbers, o.numbers...), append(w.Words, o.Words...)
	if w.after != nil {
		w.after = append(w.after, o.after...)
		w.updateAfter()
	}

	w.updateLabel()

	return true
}

// updateAfter says for what a row waits that comes after other jobs.
func (w *waitRow) updateAfter() {
	awaited := slices.Clone(w.after)
	slices.Sort(awaited)
	awaited = slices.Compact(awaited)
	switch {
	case len(awaited) == 1:
		w.State = fmt.Sprintf("after the end of job %d", awaited[0])
	case w.Jobs > 1 && len(w.after) == w.Jobs:
		w.State = fmt.Sprintf("each after the end of one of jobs %s", numberList(awaited))
	default:
		w.State = fmt.Sprintf("after the end of jobs %s", numberList(awaited))
	}
}

// updateLabel names a row by its job, or its jobs: "sweep[1–29]".
func (w *waitRow) updateLabel() {
	w.Label = w.names[0]
	if w.Jobs == 1 {
		return
	}

	var tasks []int

	for _, name := range w.names {
		if m := arrayTask.FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[2])
			tasks = append(tasks, n)
		}
	}

	if len(tasks) > 0 {
		slices.Sort(tasks)
		w.Label = arrayOf(w.names[0]) + numberList(slices.Compact(tasks)) + "]"
	}
}

// Ask is the question before jobs are cancelled.
func (w *waitRow) Ask(c *screen) string {
	if w.Jobs > 1 {
		return c.Say(fmt.Sprintf("Cancel %d jobs of %s?", w.Jobs, w.Label))
	}
	return c.Say(fmt.Sprintf("Cancel job %s %s?", numberList(w.numbers), w.Label))
}

// Cancels reports whether the page can cancel it.
func (w *waitRow) Cancels(c *screen) bool { return len(w.Words) > 0 && c.mayEnd(w.User) }
