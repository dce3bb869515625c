package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/glance"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/core/timeline"
	"gpuard/internal/ui/band"
)

// pageView is what a page was asked to show. Pages of the same sight get the same sections.
type pageView struct {
	language string
	// The days of the bands and the history: one of periods.
	days int
	// Whose details are shown; "" none.
	gpu gpu.UUID
}

// selectableDays are the days that can be chosen.
func selectableDays() []int { return []int{1, 7, 30} }

// bandColumns are those of a band.
const bandColumns = 288

// sightOf reads what a request wishes. What is not there to be chosen is not chosen.
func (s *Site) sightOf(r *http.Request) pageView {
	asked := r.URL.Query()
	v := pageView{language: languageOf(r), days: 1}
	for _, d := range s.lastSeen().Report.Devices {
		if d.UUID != "" && string(d.UUID) == asked.Get("gpu") {
			v.gpu = d.UUID
		}
	}

	if days, err := strconv.Atoi(asked.Get("days")); err == nil && slices.Contains(selectableDays(), days) {
		v.days = days
	}

	return v
}

// pageAddress is the page with another choice.
func (p pageView) pageAddress(days int, id gpu.UUID) string {
	asked := url.Values{}
	if days != 1 {
		asked.Set("days", strconv.Itoa(days))
	}

	if id != "" {
		asked.Set("gpu", string(id))
	}

	if len(asked) == 0 {
		return "/"
	}

	return "/?" + asked.Encode()
}

// screen is all that the sections of one sight show. Templates find the methods of its parts on it.
type screen struct {
	*pageData
	pageHead
	bandSection
	jobSection
}

// pageData is what the sections are made of.
type pageData struct {
	pageView
	*band.Painter
	site *Site
	Host string
	// The report without what only its reader may know.
	Report  status.Report
	Trouble string
	Answer  glance.Answer
	// What is free is for whom.
	Claims []glance.Claim
	laid   *layout
	// The whole page is made, and not what changes of it.
	whole   bool
	answers map[string]sourceAnswer
}

// sourceAnswer is what a source said, and when.
type sourceAnswer struct {
	answer any
	at     time.Time
	err    error
}

// collectScreen collects what a sight shows.
func (s *Site) collectScreen(ctx context.Context, v pageView) *screen {
	seen := s.lastSeen()
	c := &pageData{pageView: v, site: s, Host: s.Host, Report: publicReport(seen.Report), Trouble: seen.Trouble, answers: map[string]sourceAnswer{}}
	for _, source := range s.Sources {
		answer, at, err := s.live.answerOf(ctx, source, maxPageWait)
		if source.Public != nil && err == nil {
			// A page is asked for without the token.
			answer = source.Public(answer)
		}
		c.answers[source.Name] = sourceAnswer{answer, at, err}
	}

	c.Answer = glance.Summarize(&c.Report, s.ownerName())
	c.Claims = glance.FreeClaims(&c.Report)
	c.laid = s.live.layoutOf(c, &seen)
	c.Painter = &band.Painter{Picture: c.laid.picture, Ranks: c.laid.ranks, Say: translatorOf(v.language), Zone: time.Local, Now: c.Report.Now}
	all := &screen{c, pageHead{c}, bandSection{pageData: c}, jobSection{c}}
	for i := range c.Report.Devices {
		all.Rows = append(all.Rows, all.deviceRow(i))
	}

	return all
}

// pageHead is the first line of the page, and what the tab shows of it.
type pageHead struct{ *pageData }

// bandSection is the part with the bands.
type bandSection struct {
	*pageData
	Rows []gpuRow
}

// jobSection are what runs and what waits.
type jobSection struct{ *pageData }

// Sick are the states in the bands, for the legend.
func (c *bandSection) Sick() (all []string) {
	for i := range c.Bands {
		for _, state := range c.Bands[i].States {
			if state != "" && !slices.Contains(all, state) {
				all = append(all, state)
			}
		}
	}
	slices.Sort(all)
	return all
}

// HasMarks reports whether a band has marks.
func (c *bandSection) HasMarks() bool {
	return slices.ContainsFunc(c.Bands, func(b timeline.Band) bool { return len(b.Marks) > 0 })
}

// Models is what all devices are, such as "8 × A100-SXM4-80GB"; of different ones each row says its own.
func (c *pageData) Models() string {
	if len(c.Report.Devices) == 0 {
		return ""
	}
	name := c.Report.Devices[0].Name
	for i := range c.Report.Devices {
		if c.Report.Devices[i].Name != name {
			return ""
		}
	}

	return fmt.Sprintf("%d × %s", len(c.Report.Devices), gpu.ModelName(name))
}

// Group are parts of the first line that belong together.
type Group struct{ Parts []Link }

// Link is a part of the first line, and where it leads.
type Link struct{ Text, Href, Class, Key string }

// Comma stands between parts of the first line.
func (c *pageData) Comma() string {
	if c.language == "zh" {
		return "，"
	}
	return ", "
}

// Self is the screen itself, for templates that are given more.
func (s *screen) Self() *screen { return s }

// Groups are those of the first line.
func (p pageHead) Groups() []Group {
	a := &p.Answer
	free := Link{p.Say(a.Free.Text), "#gpus", "plain", "free"}
	if a.Free.Count > 0 {
		free.Class, free.Href = "good", p.anchorOf(a.Free.Places)
	}

	frees := []Link{free}
	if a.Room != nil {
		frees = append(frees, Link{p.Say(a.Room.Text), cmp.Or(p.anchorOf(a.Room.Places), free.Href), "plain", string(a.Room.Key)})
	}

	waiting := []Link{{p.Say(p.waitingText()), "#queue", "plain", "waiting"}}
	if told := p.headRequest(); told != nil {
		waiting = append(waiting, p.start(told))
	}

	var ills []Link

	for _, t := range a.Troubles {
		class := "plain"
		if t.Grave {
			class = "bad"
		}

		href := p.anchorOf(t.Places)
		if t.Key == glance.Unreadable {
			href = "#findings"
		}

		ills = append(ills, Link{p.Say(t.Text) + p.troubleDevices(&t), href, class, string(t.Key)})
	}

	return []Group{{frees}, {waiting}, {ills}}
}

// headRequest is the request of which the line speaks: that of the user whose token the page asks for. Who has none may be anybody.
func (p pageHead) headRequest() *glance.Start {
	if p.site.Token == "" {
		return p.Answer.Next
	}
	return p.Answer.Told()
}

// start is the part about one request. It leads to the row of the reader, else to the device where that is known, else to what waits.
func (p pageHead) start(told *glance.Start) Link {
	l := Link{p.Say(told.Text), "#queue", "plain", string(glance.Next)}
	if len(told.Places) > 0 {
		l.Href = p.anchorOf(told.Places)
	}
	if told == p.Answer.Mine {
		l.Href, l.Class, l.Key = "#yours", "mine", string(glance.Mine)
	}

	return l
}

// maxNamedDevices is how many devices the first line names for one trouble.
const maxNamedDevices = 3

// troubleDevices names the devices of a trouble, where they are few: " (GPU 0, 3)". No line breaks before a number.
func (p pageHead) troubleDevices(t *glance.Part) string {
	if len(t.Places) == 0 || len(t.Places) > maxNamedDevices {
		return ""
	}
	var numbers []string

	for _, place := range t.Places {
		numbers = append(numbers, strconv.Itoa(p.Report.Devices[place].Index))
	}

	return " (GPU\u00a0" + strings.Join(numbers, ",\u00a0") + ")"
}

// waitingText is how many wait: those of the own queue beside the others, as the list of what waits counts them.
func (p pageHead) waitingText() string {
	line := jobSection(p).queueLine()
	others, own := len(line.Others), ownWaiting(&line)
	switch {
	case own == 0:
		return p.Answer.Waiting.Text
	case others == 0 && own == 1:
		return "1 of yours waits"
	case others == 0:
		return fmt.Sprintf("%d of yours wait", own)
	}

	return fmt.Sprintf("%s and %d of yours wait", prose.CountNoun(others, "other"), own)
}

// anchorOf is where the first of some devices is.
func (p pageHead) anchorOf(places []int) string {
	if len(places) == 0 {
		return "#gpus"
	}
	d := &p.Report.Devices[places[0]]
	return "#" + rowID(d)
}

// rowID names the row of a device on the page.
func rowID(d *status.Device) string {
	return fmt.Sprintf("%s-%d", cmp.Or(string(d.Vendor), "gpu"), d.Index)
}

// Title is that of the tab.
func (p pageHead) Title() string { return p.Say(p.Answer.Title()) + " · " + p.Host }

// Today is the day of the report: "Wed 4 Mar".
func (p pageHead) Today() string {
	at := p.reportTime()
	return p.Say(at.Format("Mon")) + " " + p.Say(at.Format("2 Jan"))
}

// Icon is the address of the tab's picture.
func (p pageHead) Icon() string {
	mood := "full"
	switch {
	case len(p.Answer.Troubles) > 0 && p.Answer.Troubles[0].Grave:
		mood = "bad"
	case p.Answer.Free.Count > 0:
		mood = "free"
	}
	return fmt.Sprintf("/icon/%d-%s.svg", min(p.Answer.Free.Count, 99), mood)
}

// serveIcon draws the picture of a tab: how many are free, in green, grey, or red where something is broken.
func serveIcon(w http.ResponseWriter, r *http.Request) {
	count, mood, _ := strings.Cut(strings.TrimSuffix(r.PathValue("name"), ".svg"), "-")
	n, err := strconv.Atoi(count)
	colour := map[string]string{"free": "#1b6e3c", "full": "#5b6168", "bad": "#b3261e"}[mood]
	if err != nil || n < 0 || n > 99 || colour == "" {
		refuseRequest(w, http.StatusNotFound, "cannot find this icon: /icon/2-free.svg, and full or bad")
		return
	}

	w.Header().Set("Content-Type", "image/svg+xml")
	size := 46
	if n > 9 {
		size = 38
	}

	_, _ = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="14" fill="%s"/><text x="32" y="33" dominant-baseline="central" text-anchor="middle" font-family="sans-serif" font-weight="700" font-size="%d" fill="#fff">%d</text></svg>`, colour, size, n)
}

// canDo reports whether an action may succeed for the user who serves.
func (s *Site) canDo(name string) bool {
	i := slices.IndexFunc(s.Actions, func(a observe.Action) bool { return a.Name == name })
	return i >= 0 && (s.Actions[i].Can == nil || s.Actions[i].Can())
}

// ownerName is the user whose leases and jobs are own ones.
func (s *Site) ownerName() string {
	if s.Owner != "" {
		return s.Owner
	}
	return s.Observer.Host.Names(uint32(os.Geteuid())) //nolint:gosec // a uid
}
