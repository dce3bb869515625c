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

// pagePart is what is sent of the page when it changes.
type pagePart struct {
	// The name of the element with data-part.
	Name string        `json:"part"`
	Body template.HTML `json:"html"`
}

// pageTemplates are the templates in each language; they are parsed when the first page is asked for.
type pageTemplates struct {
	once  sync.Once
	by    map[string]*template.Template
	wrong error
	now   func() time.Time // nil: the clock
}

func (p *pageTemplates) templatesIn(language string) (*template.Template, error) {
	p.once.Do(func() {
		p.by = map[string]*template.Template{}
		for _, language := range []string{"en", "zh"} {
			t, err := template.New("").Funcs(templateFuncs(translatorOf(language), p.clockFunc())).ParseFS(files, "files/*.html")
			if err != nil {
				p.wrong = fmt.Errorf("cannot read the page: %w", err)
				return
			}
			p.by[language] = t
		}
	})
	return p.by[language], p.wrong
}

// clockFunc is what the templates know the time by.
func (p *pageTemplates) clockFunc() func() time.Time {
	if p.now != nil {
		return p.now
	}
	return time.Now
}

func templateFuncs(say func(string) string, now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"t":       say,
		"model":   gpu.ModelName,
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
		"hours": formatHours,
		"bytes": func(v *gpu.Bytes) int64 { return int64(*v) },
		"sum":   func(a, b int) int { return a + b },
		"ratio": func(part, whole float64) float64 { return part / max(whole, 1e-9) },
		"count": prose.CountNoun,
		"join":  strings.Join,
		"int":   func(v *int) int { return *v },
		"value": func(v *bool) bool { return *v },
		"stamp": func(t *time.Time) string { return t.Format(time.RFC3339) },
		"clock": func(at *time.Time) string { return say(prose.NearTime(*at, now())) },
		"first": func(text string) string { name, _, _ := strings.Cut(text, " ("); return name },
		"since": func(t any) string { return say("since " + prose.NearTime(toTime(t), now())) },
		"at":    func(at time.Time) string { return say("at " + prose.NearTime(at, now())) },
		"seen":  func(at time.Time) string { return say("first seen at " + prose.NearTime(at, now())) },
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

// formatHours is a number of hours with as many digits as say something.
func formatHours(v float64) string {
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

// toTime is a time that a template has.
func toTime(at any) time.Time {
	if t, ok := at.(*time.Time); ok {
		return *t
	}
	t, _ := at.(time.Time)
	return t
}

// renderSections renders all that changes, for one sight.
func (s *Site) renderSections(ctx context.Context, v pageView) ([]pagePart, error) {
	t, err := s.live.pages.templatesIn(v.language)
	if err != nil {
		return nil, err
	}

	c := s.collectScreen(ctx, v)
	parts := []pagePart{{"head", renderTemplate(t, "head", c)}, {"devices", renderTemplate(t, "devices", c)}, {"legend", renderTemplate(t, "legend", c)}, {"detail", c.renderDetail(t)}}
	for i := range c.Rows {
		parts = append(parts, pagePart{c.Rows[i].Part, c.drawBands()[i]})
	}

	parts = append(parts, pagePart{"running", renderTemplate(t, "running", c)})
	for _, source := range s.Sources {
		parts = append(parts, pagePart{source.Name, c.renderSection(t, source.Name)})
	}

	return parts, nil
}

// renderDetail are those of the device that was chosen.
func (s *screen) renderDetail(t *template.Template) template.HTML {
	if v := s.chosenDetail(); v != nil {
		return renderTemplate(t, "detail", v)
	}
	return ""
}

// Band is the picture of a row, where the whole page is made; later it is a part of its own.
func (c *bandSection) Band(r gpuRow) template.HTML {
	if !c.whole {
		return ""
	}
	return c.drawBands()[r.Place]
}

// periodName is what a period is called.
func periodName(days int) string {
	if days == 1 {
		return "the last 24 hours"
	}
	return fmt.Sprintf("the last %d days", days)
}

// renderSection is that of a source.
func (s *screen) renderSection(t *template.Template, name string) template.HTML {
	said := s.answers[name]
	if said.err != nil {
		wrong := renderTemplate(t, "wrong", struct{ Wrong string }{said.err.Error()})
		if name == "findings" {
			// Those of the report are known all the same.
			wrong += renderTemplate(t, name, sectionView{nil, s})
		}
		return wrong
	}
	if t.Lookup(name) == nil {
		return ""
	}

	return renderTemplate(t, name, sectionView{said.answer, s})
}

// sectionView is what the section of a source shows.
type sectionView struct {
	Answer any
	*screen
}

func renderTemplate(t *template.Template, name string, data any) template.HTML {
	var text bytes.Buffer
	if err := t.ExecuteTemplate(&text, name, data); err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error())) //nolint:gosec // it is escaped
	}
	return template.HTML(text.String()) //nolint:gosec // the template has escaped what it was given
}

// servePage is the whole page as it is now; /events keeps it current.
func (s *Site) servePage(w http.ResponseWriter, r *http.Request) {
	v := s.sightOf(r)
	t, err := s.live.pages.templatesIn(v.language)
	if err != nil {
		refuseRequest(w, http.StatusInternalServerError, err.Error())
		return
	}

	c := s.collectScreen(r.Context(), v)
	c.whole = true
	sections := map[string]template.HTML{"running": renderTemplate(t, "running", c), "detail": c.renderDetail(t)}
	for _, source := range s.Sources {
		sections[source.Name] = c.renderSection(t, source.Name)
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")

	// Who asked may be gone.
	_ = t.ExecuteTemplate(w, "page", wholePage{c, sections, s.Version, s.Token != ""})
}

// wholePage is the page with all of its sections.
type wholePage struct {
	*screen
	Sections map[string]template.HTML
	Version  string
	Actions  bool
}
