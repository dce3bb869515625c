package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/chart"
)

// A picture of use has so many bars at most, and cuts names, because a list of commands may be long.
const (
	mostBars = 20
	mostName = 24
)

// bars are those of a picture: of very many the largest, and one for the others; of days the last.
func bars(table trend.UseTable, say func(string) string) chart.Bars {
	use := slices.Clone(table.Use)
	switch more := len(use) - mostBars; {
	case more > 0 && table.By == "day":
		use = use[more:]
	case more > 0:
		rest := trend.Use{Name: fmt.Sprintf("%s (%d)", say("others"), more+1)}
		for _, u := range use[mostBars-1:] {
			rest.Granted, rest.Used, rest.Idle = rest.Granted+u.Granted, rest.Used+u.Used, rest.Idle+u.Idle
		}
		use = append(use[:mostBars-1], rest)
	}
	b := chart.Bars{Title: say("Hours granted") + ": " + say(table.By), Parts: []string{say("used"), say("idle"), say("not measured")}, Sizes: make([][]float64, 3), Unit: "h"}
	for _, u := range use {
		name := []rune(u.Name)
		if len(name) > mostName {
			name = append(name[:mostName-1], '…')
		}
		b.Names = append(b.Names, string(name))
		b.Sizes[0] = append(b.Sizes[0], u.Used)
		b.Sizes[1] = append(b.Sizes[1], u.Idle)
		b.Sizes[2] = append(b.Sizes[2], max(0, u.Granted-u.Used-u.Idle))
	}
	return b
}

// useView is a picture of use on the page.
type useView struct {
	trend.UseTable
	Width, Height int
	Title         string
	At            string // changes with the picture
	Summary       string // what it shows, in words
}

func useOf(t trend.UseTable, say func(string) string) useView {
	b := bars(t, say)
	v := useView{t, chart.BarsWidth, b.Height(), b.Title, "", ""}
	sum := 0.0
	var parts []string
	for i, u := range t.Use {
		sum += u.Granted + 2*u.Used + 3*u.Idle + float64(u.Jobs)
		if i < 5 {
			parts = append(parts, fmt.Sprintf("%s %.1f", u.Name, u.Granted))
		}
	}
	v.At, v.Summary = fmt.Sprintf("%.6f", sum), strings.Join(parts, ", ")
	return v
}

// uses is the picture of use by one property: /chart/use/user.svg.
func (s *Site) uses(w http.ResponseWriter, r *http.Request) {
	by, kind, _ := strings.Cut(r.PathValue("name"), ".")
	table, found := s.useTable(r.Context(), by)
	if !found || kind != "svg" && kind != "png" {
		refuse(w, http.StatusNotFound, "cannot find this picture: /chart/use/user.svg, and gpu or command, as svg or png, once a lease has ended")
		return
	}
	b := bars(table, wordsOf(r))
	b.Dark = r.URL.Query().Get("dark") != ""
	draw := b.SVG
	if kind == "png" {
		draw = b.PNG
	}
	send(w, kind, draw)
}

// useTable is one of those that the page shows.
func (s *Site) useTable(ctx context.Context, by string) (trend.UseTable, bool) {
	at := slices.IndexFunc(s.Sources, func(source observe.Source) bool { return source.Name == "history" })
	if at < 0 {
		return trend.UseTable{}, false
	}
	answer, _, _ := s.live.answer(ctx, s.Sources[at], pageWaits)
	report, _ := answer.(trend.UseReport)
	i := slices.IndexFunc(report.Tables, func(t trend.UseTable) bool { return t.By == by })
	if i < 0 {
		return trend.UseTable{}, false
	}
	return report.Tables[i], true
}
