package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/chart"
)

// curve is one picture per device.
type curve struct {
	Name, Title, Unit string
	top, scale        float64
	of                func(trend.Mean) *float64
	minutes           []trend.Minute
}

func curves() []curve {
	return []curve{
		{Name: "load", Title: "Load", Unit: "%", top: 100, scale: 100, of: func(m trend.Mean) *float64 { return m.Load }},
		{Name: "memory", Title: "Memory", Unit: "GiB", scale: 1.0 / (1 << 30), of: func(m trend.Mean) *float64 { return m.Memory }},
		{Name: "temperature", Title: "Temperature", Unit: "°C", scale: 1, of: func(m trend.Mean) *float64 { return m.Temperature }},
		{Name: "power", Title: "Power", Unit: "W", scale: 1, of: func(m trend.Mean) *float64 { return m.Power }},
	}
}

// shownMinutes is how many points a curve has: a day in steps of five minutes.
const (
	step   = 5
	points = 24 * 60 / step
)

// values are the means over steps of five minutes up to the last minute.
func (c curve) values(id gpu.UUID, width time.Duration) (values []*float64, begin time.Time) {
	last := ended(c.minutes)
	grid := trend.Grid(c.minutes, width, last, points*step, func(m trend.Minute) *float64 { return c.of(m.Devices[id]) })
	for part := range slices.Chunk(grid, step) {
		var sum float64
		n := 0
		for _, v := range part {
			if v != nil {
				sum += *v * c.scale
				n++
			}
		}
		if n == 0 {
			values = append(values, nil)
			continue
		}
		values = append(values, new(sum/float64(n)))
	}
	return values, last.Add(-time.Duration(points*step-1) * width)
}

// Summary says in words what the picture shows.
func (c curve) Summary(id gpu.UUID) string {
	var low, high, sum float64
	n := 0
	for _, m := range c.minutes {
		if v := c.of(m.Devices[id]); v != nil {
			x := *v * c.scale
			if n == 0 || x < low {
				low = x
			}
			high = max(high, x)
			sum += x
			n++
		}
	}
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f – %.0f %s, ⌀ %.0f %s", low, high, c.Unit, sum/float64(n), c.Unit)
}

func (s *Site) chart(w http.ResponseWriter, r *http.Request) {
	name, kind, _ := strings.Cut(r.PathValue("name"), ".")
	all := curves()
	i := slices.IndexFunc(all, func(c curve) bool { return c.Name == name })
	seen := s.Observer.Now()
	d := device(&seen.Report, gpu.UUID(r.PathValue("device")))
	if i < 0 || d == nil || kind != "svg" && kind != "png" {
		refuse(w, http.StatusNotFound, "cannot find this picture: /chart/UUID/load.svg, and memory, temperature or power, as svg or png")
		return
	}
	c := all[i]
	c.minutes = seen.Minutes
	say := wordsOf(r)
	values, begin := c.values(d.UUID, seen.Width)
	lines := chart.Lines{Title: say(c.Title), Values: values, Unit: c.Unit, Top: c.top, Dark: r.URL.Query().Get("dark") != ""}
	for i := range values {
		lines.Labels = append(lines.Labels, begin.Add(time.Duration(i*step)*seen.Width).Local().Format("15:04"))
	}
	draw := lines.SVG
	if kind == "png" {
		draw = lines.PNG
	}
	send(w, kind, draw)
}

// send answers with a picture.
func send(w http.ResponseWriter, kind string, draw func() ([]byte, error)) {
	content := map[string]string{"svg": "image/svg+xml", "png": "image/png"}[kind]
	text, err := draw()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'") // the picture's own
	w.Header().Set("Content-Type", content)
	_, _ = w.Write(text)
}
