package web

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// part is one section of the page.
type part struct {
	Name, Title string
	Body        template.HTML
}

// deviceView is what one card shows.
type deviceView struct {
	Device  *status.Device
	Actions bool
	Minute  int64 // changes with each picture; 0: there is none yet
	Curves  []curve
}

// devicesView is what the first section shows.
type devicesView struct {
	Report  status.Report
	Trouble string
	Actions bool
	Minute  int64
	Curves  []curve
}

// view is what another section shows.
type view struct {
	Answer  any
	Actions bool
}

// pages are the templates in each language; they are parsed when the first page is asked for.
type pages struct {
	once  sync.Once
	by    map[string]*template.Template
	wrong error
}

func (p *pages) in(language string) (*template.Template, error) {
	p.once.Do(func() {
		p.by = map[string]*template.Template{}
		for _, language := range []string{"en", "zh"} {
			t, err := template.New("").Funcs(functions(words(language))).ParseFS(files, "files/page.html")
			if err != nil {
				p.wrong = fmt.Errorf("cannot read the page: %w", err)
				return
			}
			p.by[language] = t
		}
	})
	return p.by[language], p.wrong
}

func functions(say func(string) string) template.FuncMap {
	return template.FuncMap{
		"t":       say,
		"model":   gpu.Model,
		"percent": func(v *float64) string { return fmt.Sprintf("%.0f %%", 100**v) },
		"number":  func(v *float64) string { return strconv.FormatFloat(*v, 'g', 4, 64) },
		"watts":   func(v *float64) string { return fmt.Sprintf("%.0f W", *v) },
		"bytes":   func(v *gpu.Bytes) int64 { return int64(*v) },
		"value":   func(v *bool) bool { return *v },
		"stamp":   func(t *time.Time) string { return t.Format(time.RFC3339) },
		"clock":   clock,
		"name":    func(d status.Device) string { return string(d.UUID) },
		"useOf":   func(t trend.UseTable) useView { return useOf(t, say) },
		"card": func(d status.Device, of devicesView) deviceView {
			return deviceView{&d, of.Actions, of.Minute, of.Curves}
		},
	}
}

// clock is a time of today, or the day with it.
func clock(at any) string {
	var t time.Time
	switch v := at.(type) {
	case time.Time:
		t = v
	case *time.Time:
		t = *v
	}
	t = t.Local()
	if time.Since(t).Abs() < 12*time.Hour {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// devices is the first section.
func (s *Site) devices(t *template.Template, seen observe.Seen) template.HTML {
	v := devicesView{Report: public(seen.Report), Trouble: seen.Trouble, Actions: s.Token != "", Curves: curves()}
	if len(seen.Minutes) > 0 {
		v.Minute = ended(seen.Minutes).UnixMilli()
	}
	for i := range v.Curves {
		v.Curves[i].minutes = seen.Minutes
	}
	return fill(t, "devices", v)
}

// section is one of the others.
func (s *Site) section(t *template.Template, source observe.Source, answer any, err error) template.HTML {
	if err != nil {
		return fill(t, "wrong", struct{ Wrong string }{err.Error()})
	}
	if source.Public != nil { // a page is asked for without the token
		answer = source.Public(answer)
	}
	return fill(t, source.Name, view{answer, s.Token != ""})
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
	language := languageOf(r)
	t, err := s.live.pages.in(language)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	parts := []part{{"devices", "Devices", s.devices(t, s.Observer.Now())}}
	for _, source := range s.Sources {
		answer, _, err := s.live.answer(r.Context(), source, pageWaits)
		parts = append(parts, part{source.Name, source.Title, s.section(t, source, answer, err)})
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = t.ExecuteTemplate(w, "page", struct { // who asked may be gone
		Lang, Host, Version string
		Actions             bool
		Parts               []part
	}{language, s.Host, s.Version, s.Token != "", parts})
}
