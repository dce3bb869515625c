package web

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
)

// part is what is sent of the page when it changes.
type part struct {
	Name string        `json:"part"` // of the element with data-part
	Body template.HTML `json:"html"`
}

// pages are the templates in each language; they are parsed when the first page is asked for.
type pages struct {
	once  sync.Once
	by    map[string]*template.Template
	wrong error
	now   func() time.Time // nil: the clock
}

func (p *pages) in(language string) (*template.Template, error) {
	p.once.Do(func() {
		p.by = map[string]*template.Template{}
		for _, language := range []string{"en", "zh"} {
			t, err := template.New("").Funcs(functions(words(language), p.clock())).ParseFS(files, "files/*.html")
			if err != nil {
				p.wrong = fmt.Errorf("cannot read the page: %w", err)
				return
			}
			p.by[language] = t
		}
	})
	return p.by[language], p.wrong
}

// clock is what the templates know the time by.
func (p *pages) clock() func() time.Time {
	if p.now != nil {
		return p.now
	}
	return time.Now
}

func functions(say func(string) string, now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"t":       say,
		"model":   gpu.Model,
		"percent": func(v *float64) string { return fmt.Sprintf("%.0f %%", 100**v) },
		"watts":   func(v *float64) string { return fmt.Sprintf("%.0f W", *v) },
		"leases": func(list []status.Lease) (all []*status.Lease) {
			for i := range list {
				all = append(all, &list[i])
			}
			return all
		},
		"part":  func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) },
		"wide":  func(part, whole float64) string { return fmt.Sprintf("%.1f", 100*part/max(whole, 1e-9)) },
		"hours": hours,
		"bytes": func(v *gpu.Bytes) int64 { return int64(*v) },
		"sum":   func(a, b int) int { return a + b },
		"ratio": func(part, whole float64) float64 { return part / max(whole, 1e-9) },
		"count": prose.Count,
		"join":  strings.Join,
		"int":   func(v *int) int { return *v },
		"value": func(v *bool) bool { return *v },
		"stamp": func(t *time.Time) string { return t.Format(time.RFC3339) },
		"clock": func(at *time.Time) string { return prose.ClockTime(*at, now()) },
		"first": func(text string) string { name, _, _ := strings.Cut(text, " ("); return name },
		"since": func(t any) string { return say("since " + prose.ClockTime(moment(t), now())) },
		"seen":  func(at time.Time) string { return say("seen since " + prose.ClockTime(at, now())) },
		"state": func(word string) string { return say(shownState(word)) },
		"dict": func(pairs ...any) map[string]any {
			out := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				out[pairs[i].(string)] = pairs[i+1]
			}
			return out
		},
	}
}

// shownState is the word for the state of a device: one that is out of use is drained, as in the first line and in the bands.
func shownState(word string) string {
	if word == string(status.Draining) {
		return "drained"
	}
	return word
}

// hours is a number of hours with as many digits as say something.
func hours(v float64) string {
	switch {
	case v <= 0:
		return "–"
	case v < 1.0/60:
		return "< 1 min"
	case v < 1:
		return fmt.Sprintf("%.0f min", 60*v)
	case v < 9.95:
		return fmt.Sprintf("%.1f h", v)
	}
	return fmt.Sprintf("%.0f h", v)
}

// moment is a time that a template has.
func moment(at any) time.Time {
	if t, ok := at.(*time.Time); ok {
		return *t
	}
	t, _ := at.(time.Time)
	return t
}

// sections renders all that changes, for one sight.
func (s *Site) sections(ctx context.Context, v sight) ([]part, error) {
	t, err := s.live.pages.in(v.language)
	if err != nil {
		return nil, err
	}
	c := s.look(ctx, v)
	parts := []part{{"head", fill(t, "head", c)}, {"devices", fill(t, "devices", c)}, {"legend", fill(t, "legend", c)}, {"detail", c.details(t)}}
	for i := range c.Rows {
		parts = append(parts, part{c.Rows[i].Part, c.drawn()[i]})
	}
	parts = append(parts, part{"running", fill(t, "running", c)})
	for _, source := range s.Sources {
		parts = append(parts, part{source.Name, c.section(t, source.Name)})
	}
	return parts, nil
}

// details are those of the device that was chosen.
func (c *screen) details(t *template.Template) template.HTML {
	if v := c.detail(); v != nil {
		return fill(t, "detail", v)
	}
	return ""
}

// Band is the picture of a row, where the whole page is made; later it is a part of its own.
func (c *lab) Band(r gpuRow) template.HTML {
	if !c.whole {
		return ""
	}
	return c.drawn()[r.Place]
}

// periodName is what a period is called.
func periodName(days int) string {
	if days == 1 {
		return "the last 24 hours"
	}
	return fmt.Sprintf("the last %d days", days)
}

// section is that of a source.
func (c *screen) section(t *template.Template, name string) template.HTML {
	said := c.answers[name]
	if said.err != nil {
		return fill(t, "wrong", struct{ Wrong string }{said.err.Error()})
	}
	if t.Lookup(name) == nil {
		return ""
	}
	return fill(t, name, view{said.answer, c})
}

// view is what the section of a source shows.
type view struct {
	Answer any
	*screen
}

func fill(t *template.Template, name string, data any) template.HTML {
	var text bytes.Buffer
	if err := t.ExecuteTemplate(&text, name, data); err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error())) //nolint:gosec // it is escaped
	}
	return template.HTML(text.String()) //nolint:gosec // the template has escaped what it was given
}

// page is the whole page as it is now; /events keeps it current.
func (s *Site) page(w http.ResponseWriter, r *http.Request) {
	v := s.sightOf(r)
	t, err := s.live.pages.in(v.language)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	c := s.look(r.Context(), v)
	c.whole = true
	sections := map[string]template.HTML{"running": fill(t, "running", c), "detail": c.details(t)}
	for _, source := range s.Sources {
		sections[source.Name] = c.section(t, source.Name)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = t.ExecuteTemplate(w, "page", wholePage{c, sections, s.Version, s.Token != ""}) // who asked may be gone
}

// wholePage is the page with all of its sections.
type wholePage struct {
	*screen
	Sections map[string]template.HTML
	Version  string
	Actions  bool
}
