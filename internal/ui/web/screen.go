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

// sight is what a page was asked to show. Pages of the same sight get the same sections.
type sight struct {
	language string
	days     int      // of the bands and the history: one of periods
	gpu      gpu.UUID // whose details are shown; "" none
}

// periods are the days that can be chosen.
func periods() []int { return []int{1, 7, 30} }

// columns are those of a band.
const columns = 288

// sightOf reads what a request wishes. What is not there to be chosen is not chosen.
func (s *Site) sightOf(r *http.Request) sight {
	asked := r.URL.Query()
	v := sight{language: languageOf(r), days: 1}
	for _, d := range s.seen().Report.Devices {
		if d.UUID != "" && string(d.UUID) == asked.Get("gpu") {
			v.gpu = d.UUID
		}
	}
	if days, err := strconv.Atoi(asked.Get("days")); err == nil && slices.Contains(periods(), days) {
		v.days = days
	}
	return v
}

// address is the page with another choice.
func (v sight) address(days int, id gpu.UUID) string {
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
	*scene
	head
	lab
	jobs
}

// scene is what the sections are made of.
type scene struct {
	sight
	*band.Painter
	site    *Site
	Host    string
	Report  status.Report // without what only its reader may know
	Trouble string
	Answer  glance.Answer
	laid    *layout
	whole   bool // the whole page is made, and not what changes of it
	answers map[string]answered
}

// answered is what a source said, and when.
type answered struct {
	answer any
	at     time.Time
	err    error
}

// look collects what a sight shows.
func (s *Site) look(ctx context.Context, v sight) *screen {
	seen := s.seen()
	c := &scene{sight: v, site: s, Host: s.Host, Report: public(seen.Report), Trouble: seen.Trouble, answers: map[string]answered{}}
	for _, source := range s.Sources {
		answer, at, err := s.live.answer(ctx, source, pageWaits)
		if source.Public != nil && err == nil { // a page is asked for without the token
			answer = source.Public(answer)
		}
		c.answers[source.Name] = answered{answer, at, err}
	}
	c.Answer = glance.Of(&c.Report)
	c.laid = s.live.layoutOf(c, &seen)
	c.Painter = &band.Painter{Picture: c.laid.picture, Ranks: c.laid.ranks, Say: words(v.language), Zone: time.Local, Now: c.Report.Now}
	all := &screen{c, head{c}, lab{scene: c}, jobs{c}}
	for i := range c.Report.Devices {
		all.Rows = append(all.Rows, all.row(i))
	}
	return all
}

// head is the first line of the page, and what the tab shows of it.
type head struct{ *scene }

// lab is the part with the bands.
type lab struct {
	*scene
	Rows []gpuRow
}

// jobs are what runs and what waits.
type jobs struct{ *scene }

// Sick are the states in the bands, for the legend.
func (c *lab) Sick() (all []string) {
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
func (c *lab) HasMarks() bool {
	return slices.ContainsFunc(c.Bands, func(b timeline.Band) bool { return len(b.Marks) > 0 })
}

// Models is what all devices are, such as "8 × A100-SXM4-80GB"; of different ones each row says its own.
func (c *scene) Models() string {
	if len(c.Report.Devices) == 0 {
		return ""
	}
	name := c.Report.Devices[0].Name
	for i := range c.Report.Devices {
		if c.Report.Devices[i].Name != name {
			return ""
		}
	}
	return fmt.Sprintf("%d × %s", len(c.Report.Devices), gpu.Model(name))
}

// Group are parts of the first line that belong together.
type Group struct{ Parts []Link }

// Link is a part of the first line, and where it leads.
type Link struct{ Text, Href, Class, Key string }

// Comma stands between parts of the first line.
func (c *scene) Comma() string {
	if c.language == "zh" {
		return "，"
	}
	return ", "
}

// Self is the screen itself, for templates that are given more.
func (c *screen) Self() *screen { return c }

// Groups are those of the first line.
func (c head) Groups() []Group {
	a := &c.Answer
	free := Link{c.Say(a.Free.Text), "#gpus", "plain", "free"}
	if a.Free.Count > 0 {
		free.Class, free.Href = "good", c.anchor(a.Free.Places)
	}
	waiting := []Link{{c.Say(c.waiting()), "#queue", "plain", "waiting"}}
	if a.Next != nil {
		waiting = append(waiting, Link{c.Say(a.Next.Text), c.anchor(a.Next.Places), "plain", "next"})
	}
	var ills []Link
	for _, t := range a.Troubles {
		class := "plain"
		if t.Grave {
			class = "bad"
		}
		href := c.anchor(t.Places)
		if t.Key == glance.Unreadable {
			href = "#findings"
		}
		ills = append(ills, Link{c.Say(t.Text) + c.which(&t), href, class, string(t.Key)})
	}
	return []Group{{[]Link{free}}, {waiting}, {ills}}
}

// mostNamed is how many devices the first line names for one trouble.
const mostNamed = 3

// which names the devices of a trouble, where they are few: " (GPU 0, 3)". No line breaks before a number.
func (c head) which(t *glance.Part) string {
	if len(t.Places) == 0 || len(t.Places) > mostNamed {
		return ""
	}
	var numbers []string
	for _, place := range t.Places {
		numbers = append(numbers, strconv.Itoa(c.Report.Devices[place].Index))
	}
	return " (GPU\u00a0" + strings.Join(numbers, ",\u00a0") + ")"
}

// waiting is how many wait: those of the own queue beside the others, as the list of what waits counts them.
func (c head) waiting() string {
	line := jobs(c).line()
	others, own := len(line.Others), ownWaiting(&line)
	switch {
	case own == 0:
		return c.Answer.Waiting.Text
	case others == 0 && own == 1:
		return "1 of yours waits"
	case others == 0:
		return fmt.Sprintf("%d of yours wait", own)
	}
	return fmt.Sprintf("%s and %d of yours wait", prose.Count(others, "other"), own)
}

// anchor is where the first of some devices is.
func (c head) anchor(places []int) string {
	if len(places) == 0 {
		return "#gpus"
	}
	d := &c.Report.Devices[places[0]]
	return "#" + rowID(d)
}

// rowID names the row of a device on the page.
func rowID(d *status.Device) string {
	return fmt.Sprintf("%s-%d", cmp.Or(string(d.Vendor), "gpu"), d.Index)
}

// Title is that of the tab.
func (c head) Title() string { return c.Say(c.Answer.Title()) + " · " + c.Host }

// Icon is the address of the tab's picture.
func (c head) Icon() string {
	mood := "full"
	switch {
	case len(c.Answer.Troubles) > 0 && c.Answer.Troubles[0].Grave:
		mood = "bad"
	case c.Answer.Free.Count > 0:
		mood = "free"
	}
	return fmt.Sprintf("/icon/%d-%s.svg", min(c.Answer.Free.Count, 99), mood)
}

// icon draws the picture of a tab: how many are free, in green, grey, or red where something is broken.
func icon(w http.ResponseWriter, r *http.Request) {
	count, mood, _ := strings.Cut(strings.TrimSuffix(r.PathValue("name"), ".svg"), "-")
	n, err := strconv.Atoi(count)
	colour := map[string]string{"free": "#1b6e3c", "full": "#5b6168", "bad": "#b3261e"}[mood]
	if err != nil || n < 0 || n > 99 || colour == "" {
		refuse(w, http.StatusNotFound, "cannot find this icon: /icon/2-free.svg, and full or bad")
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	size := 46
	if n > 9 {
		size = 38
	}
	_, _ = fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" rx="14" fill="%s"/><text x="32" y="33" dominant-baseline="central" text-anchor="middle" font-family="sans-serif" font-weight="700" font-size="%d" fill="#fff">%d</text></svg>`, colour, size, n)
}

// can reports whether an action may succeed for the user who serves.
func (s *Site) can(name string) bool {
	i := slices.IndexFunc(s.Actions, func(a observe.Action) bool { return a.Name == name })
	return i >= 0 && (s.Actions[i].Can == nil || s.Actions[i].Can())
}

// owner is the user whose leases and jobs are own ones.
func (s *Site) owner() string {
	if s.Owner != "" {
		return s.Owner
	}
	return s.Observer.Host.Names(uint32(os.Geteuid())) //nolint:gosec // a uid
}
