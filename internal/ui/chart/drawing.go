package chart

import (
	"fmt"
	"strings"

	"github.com/go-analyze/charts"

	"gpuard/internal/core/prose"
)

// drawing is a picture of few kinds of shapes, so that it looks the same as an SVG and as a PNG. An SVG names fonts
// that a browser has, in any script; a PNG has the font of the library, which is Latin.
type drawing struct {
	width, height int
	palette       palette
	shapes        []shape
}

// shape is a rectangle, a line, or a text at its left end, or at its right one.
type shape struct {
	kind           shapeKind
	x1, y1, x2, y2 float64
	colour         string
	text           string
	size           float64
	atRight, bold  bool
}

type shapeKind int

const (
	rectangle shapeKind = iota
	stroke
	words
)

// palette are the colours of the page: background, text, its softer form, lines, and what is compared.
type palette struct {
	back, text, soft, line string
	series                 []string
}

func paletteOf(dark bool) palette {
	if dark {
		return palette{"#16181b", "#e6e9ed", "#a3abb5", "#33383f", []string{"#5ddba0", "#e0b226", "#8b939d", "#909ce7", "#db5499", "#b8de78", "#e8c4eb", "#6fc3df"}}
	}
	return palette{"#ffffff", "#1b1f24", "#59616b", "#dfe3e8", []string{"#25a86b", "#c1991c", "#6d747d", "#4457d6", "#e06ca7", "#53741c", "#94359a", "#1b7f9e"}}
}

// seriesColour is that of the series with this number.
func (p *palette) seriesColour(i int) string { return p.series[i%len(p.series)] }

func newDrawing(width, height int, dark bool) *drawing {
	d := &drawing{width: width, height: height, palette: paletteOf(dark)}
	d.addRect(0, 0, float64(width), float64(height), d.palette.back)
	return d
}

func (d *drawing) addRect(x1, y1, x2, y2 float64, colour string) {
	d.shapes = append(d.shapes, shape{kind: rectangle, x1: x1, y1: y1, x2: x2, y2: y2, colour: colour})
}

func (d *drawing) addLine(x1, y1, x2, y2 float64, colour string, width float64) {
	d.shapes = append(d.shapes, shape{kind: stroke, x1: x1, y1: y1, x2: x2, y2: y2, colour: colour, size: width})
}

func (d *drawing) addText(x, y float64, text, colour string, size float64) *shape {
	d.shapes = append(d.shapes, shape{kind: words, x1: x, y1: y, colour: colour, text: text, size: size})
	return &d.shapes[len(d.shapes)-1]
}

// textWidth is the room that a text needs at most, in the fonts that people have.
func textWidth(text string, size float64) float64 { return float64(prose.Cells(text)) * 0.62 * size }

// drawLegend writes what the colours mean, in as many lines as that needs, and returns where it ends.
func (d *drawing) drawLegend(names []string, y float64) float64 {
	const size, swatch, gap = 12, 10, 18
	x := float64(margin)
	for i, name := range names {
		w := swatch + 6 + textWidth(name, size)
		if x > margin && x+w > float64(d.width-margin) {
			x, y = margin, y+18
		}

		d.addRect(x, y-swatch+1, x+swatch, y+1, d.palette.seriesColour(i))
		d.addText(x+swatch+6, y, name, d.palette.text, size)
		x += w + gap
	}

	return y
}

const margin = 16

// fontFamilies are those of the page.
const fontFamilies = `system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif`

// renderSVG is the picture as text.
func (d *drawing) renderSVG() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="%s">`+"\n", d.width, d.height, d.width, d.height, fontFamilies)

	for i := range d.shapes {
		s := &d.shapes[i]
		switch s.kind {
		case rectangle:
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, s.x1, s.y1, s.x2-s.x1, s.y2-s.y1, s.colour)
		case stroke:
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`, s.x1, s.y1, s.x2, s.y2, s.colour, s.size)
		case words:
			more := ""
			if s.atRight {
				more += ` text-anchor="end"`
			}
			if s.bold {
				more += ` font-weight="600"`
			}
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" font-size="%.0f" fill="%s"%s>%s</text>`, s.x1, s.y1, s.size, s.colour, more, escapeText(s.text))
		}
		b.WriteByte('\n')
	}

	b.WriteString("</svg>\n")

	return []byte(b.String())
}

func escapeText(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(prose.Clean(text))
}

// renderPNG is the picture in pixels.
func (d *drawing) renderPNG() ([]byte, error) {
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputPNG, Width: d.width, Height: d.height})
	for i := range d.shapes {
		s := &d.shapes[i]
		colour := charts.ParseColor(s.colour)
		switch s.kind {
		case rectangle:
			p.FilledRect(roundToInt(s.x1), roundToInt(s.y1), roundToInt(s.x2), roundToInt(s.y2), colour, colour, 0)
		case stroke:
			p.LineStroke([]charts.Point{{X: roundToInt(s.x1), Y: roundToInt(s.y1)}, {X: roundToInt(s.x2), Y: roundToInt(s.y2)}}, colour, s.size)
		case words:
			// It counts in points.
			style := charts.FontStyle{FontSize: s.size * 0.75, FontColor: colour}
			x := roundToInt(s.x1)
			if s.atRight {
				x -= p.MeasureText(s.text, 0, style).Width()
			}
			p.Text(s.text, x, roundToInt(s.y1), 0, style)
		}
	}
	return p.Bytes()
}

// translatorFor says texts in the language of the user, or in English for a PNG, whose font is Latin.
func translatorFor(png bool, say func(string) string) func(string) string {
	if png {
		return func(text string) string { return text }
	}
	return say
}

func roundToInt(x float64) int { return int(x + 0.5) }

// encodePicture is the picture in one of both forms.
func (d *drawing) encodePicture(png bool) ([]byte, error) {
	if png {
		return d.renderPNG()
	}
	return d.renderSVG(), nil
}
