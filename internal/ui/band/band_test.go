package band

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/timeline"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/translate"
	"gpuard/test/golden"
)

// painted is a painter of a day that ends at noon.
func painted(span time.Duration, language string) *Painter {
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	return &Painter{timeline.Picture{From: noon.Add(-span), To: noon, Step: span / 24}, map[string]int{"ann": 0, "bob": 1, "zoe": 9}, translate.ReadLocale(language).Translate, time.UTC, time.Time{}}
}

// picture compares a picture with testdata/NAME.svg.
func picture(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".svg")
	if *golden.Update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := golden.FirstDifference(string(want), got+"\n"); d != "" {
		t.Errorf("%s: %s", path, d)
	}
	decoder := xml.NewDecoder(strings.NewReader(got))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestBand: leases with their load, shares above each other, outages, marks, and what others chose as text.
func TestBand(t *testing.T) {
	p := painted(24*time.Hour, "en")
	hour := func(h int) time.Time { return p.From.Add(time.Duration(h) * time.Hour) }
	b := &timeline.Band{UUID: "GPU-1", Load: make([]*float64, 24), Memory: make([]*float64, 24), States: make([]string, 24)}
	for i := range 24 {
		if i != 3 && i != 4 {
			b.Load[i], b.Memory[i] = new(float64(i%5)/4), new(0.5)
		}
	}
	b.Load[20], b.States[19], b.States[20], b.States[21], b.States[22] = new(0.5), "busy", "busy", "draining", "unhealthy"
	b.Spans = []timeline.Span{
		{User: "ann", Command: `a"<b>`, Jobs: 1, Since: hour(-2), Until: hour(2), Lanes: 1, Load: new(0.4), Peak: 10 * gpu.GiB},
		{User: "bob", Command: "train", Jobs: 1, Since: hour(3), Until: hour(8).Add(30 * time.Minute), Lanes: 1, Load: new(0.25), Failed: true},
		{User: "zoe", Command: "eval", Jobs: 12, Since: hour(9), Until: hour(10), Lanes: 1},
		{User: "ann", Command: "web", Jobs: 1, Since: hour(11), Until: hour(18), Lane: 0, Lanes: 2, Share: 8 * gpu.GiB},
		{User: "bob", Command: "web", Jobs: 1, Since: hour(12), Until: hour(17), Lane: 1, Lanes: 2, Open: true},
	}
	b.Marks = []trend.Mark{{At: hour(20).Add(15 * time.Minute), What: "xid", Text: "XID 79: GPU has fallen off the bus"}}
	picture(t, "band", spread(string(p.Band(b, "GPU 1, the last 24 hours"))))
	picture(t, "axis", spread(string(p.Axis())))
	week := painted(7*24*time.Hour, "zh")
	picture(t, "axis-week", spread(string(week.Axis())))
	empty := &timeline.Band{Load: make([]*float64, 24), Memory: make([]*float64, 24), States: make([]string, 24)}
	picture(t, "band-empty", spread(string(p.Band(empty, "GPU 2"))))
}

// spread puts each element on a line, so that a difference can be read.
func spread(svg string) string {
	return strings.ReplaceAll(strings.ReplaceAll(svg, "><", ">\n<"), "&#34;", "&quot;")
}

// TestSpanStays: what lies partly or wholly outside of the picture does not leave it.
func TestSpanStays(t *testing.T) {
	p := painted(24*time.Hour, "en")
	for _, at := range []int{-30, -24, -10, -1, 0} {
		for _, hours := range []int{0, 1, 8, 40} {
			from := p.To.Add(time.Duration(at) * time.Hour)
			left, width := number(t, p.xPosition(from)), number(t, p.widthBetween(from, from.Add(time.Duration(hours)*time.Hour)))
			if left < 0 || left > 100 || left+width > 100.2 || width <= 0 {
				t.Errorf("%d for %d h: %v + %v", at, hours, left, width)
			}
		}
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestColours: the colours of users can be told apart by those who see no red, no green or no blue, in the light and in
// the dark, and from the ground (Machado, Oliveira and Fernandes 2009, "A Physiologically-based Model for Simulation of
// Color Vision Deficiency", with severity 1; difference of CIELAB 1976).
func TestColours(t *testing.T) {
	text, err := os.ReadFile("../web/files/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, _ := strings.Cut(string(text), "prefers-color-scheme: dark")
	for theme, css := range map[string]string{"light": light, "dark": dark} {
		var colours [][3]float64
		for i := range Colours {
			colours = append(colours, colourOf(t, css, fmt.Sprintf("u%d", i)))
		}
		ground := colourOf(t, css, "back")
		for view, matrix := range sightings() {
			for i := range colours {
				for j := range i {
					if d := distance(lab(seenBy(matrix, colours[i])), lab(seenBy(matrix, colours[j]))); d < 20 {
						t.Errorf("%s, %s: colours %d and %d differ by %.1f", theme, view, j, i, d)
					}
				}
			}
		}
		for i, c := range colours {
			high, low := luminance(c), luminance(ground)
			if ratio := (max(high, low) + 0.05) / (min(high, low) + 0.05); ratio < 2.6 {
				t.Errorf("%s: colour %d has a contrast of %.1f", theme, i, ratio)
			}
		}
	}
}

// TestMemoryLine: the line of the memory, or the case around it, stands out from whatever it crosses: fills, frames that shine through, and
// the ground, in the light and in the dark (WCAG 2.2, 1.4.11: 3 to 1).
func TestMemoryLine(t *testing.T) {
	text, err := os.ReadFile("../web/files/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, _ := strings.Cut(string(text), "prefers-color-scheme: dark")
	if !regexp.MustCompile(`\.memory, \.k-memory \{[^}]*opacity: 1;`).Match(text) || !strings.Contains(string(text), ".case { fill: none; stroke: var(--back)") {
		t.Error("the line is not drawn in full with a case in the colour of the ground")
	}
	contrast := func(a, b [3]float64) float64 {
		high, low := luminance(a), luminance(b)
		return (max(high, low) + 0.05) / (min(high, low) + 0.05)
	}
	for theme, css := range map[string]string{"light": light, "dark": dark} {
		line, ground := colourOf(t, css, "memory"), colourOf(t, css, "back")
		if c := contrast(line, ground); c < 7 {
			t.Errorf("%s: the line has a contrast of %.1f to its case", theme, c)
		}
		names := []string{"back", "raised", "ux", "bad", "soft"}
		for i := range Colours {
			names = append(names, fmt.Sprintf("u%d", i))
		}
		for _, name := range names {
			fill := colourOf(t, css, name)
			for _, part := range []float64{0.3, 1} {
				var under [3]float64
				for i := range under {
					under[i] = part*fill[i] + (1-part)*ground[i]
				}
				if c := max(contrast(line, under), contrast(ground, under)); c < 3 {
					t.Errorf("%s: the line on %.0f %% of %s has a contrast of %.1f", theme, 100*part, name, c)
				}
			}
		}
	}
}

func colourOf(t *testing.T, css, name string) (c [3]float64) {
	t.Helper()
	m := regexp.MustCompile(`--` + name + `: #([0-9a-f]{3,6});`).FindStringSubmatch(css)
	if m == nil {
		t.Fatalf("no colour %s", name)
	}
	hex := m[1]
	if len(hex) == 3 {
		hex = strings.Repeat(hex[:1], 2) + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:], 2)
	}
	for i := range c {
		v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if c[i] = float64(v) / 255; c[i] <= 0.04045 {
			c[i] /= 12.92
		} else {
			c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
		}
	}
	return c
}

func sightings() map[string][3][3]float64 {
	return map[string][3][3]float64{
		"all":       {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanope": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deutan":    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritanope": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	}
}

func seenBy(m [3][3]float64, c [3]float64) (out [3]float64) {
	for i := range out {
		for j := range c {
			out[i] += m[i][j] * c[j]
		}
		out[i] = min(1, max(0, out[i]))
	}
	return out
}

func luminance(c [3]float64) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

func lab(c [3]float64) [3]float64 {
	f := func(v float64) float64 {
		if v > 0.008856 {
			return math.Cbrt(v)
		}
		return 7.787*v + 16.0/116
	}
	x, y, z := f((0.4124*c[0]+0.3576*c[1]+0.1805*c[2])/0.9505), f(luminance(c)), f((0.0193*c[0]+0.1192*c[1]+0.9505*c[2])/1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}
