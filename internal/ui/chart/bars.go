package chart

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-analyze/charts"
)

// Bars is one bar for each name, of up to three parts.
type Bars struct {
	Title string
	Names []string    // from the top
	Parts []string    // what the parts of a bar are
	Sizes [][]float64 // for each part that of each name
	Unit  string      // behind each number of the axis
	Dark  bool
}

// BarsWidth is that of a picture of bars, in pixels.
const BarsWidth = 720

// SVG is the picture as text.
func (b Bars) SVG() ([]byte, error) { return b.draw(charts.ChartOutputSVG) }

// PNG is the picture in pixels.
func (b Bars) PNG() ([]byte, error) { return b.draw(charts.ChartOutputPNG) }

// Height is that of the picture, in pixels.
func (b Bars) Height() int { return 80 + 24*max(len(b.Names), 1) }

func (b Bars) draw(format string) ([]byte, error) {
	sizes := make([][]float64, len(b.Sizes))
	for i := range b.Sizes { // the library begins at the bottom
		sizes[i] = slices.Clone(b.Sizes[i])
		slices.Reverse(sizes[i])
	}
	names := roomy(b.Names)
	slices.Reverse(names)
	opt := charts.NewBarChartOptionWithData(sizes)
	opt.Horizontal, opt.StackSeries = true, charts.Ptr(true)
	opt.Theme = charts.GetTheme(charts.ThemeLight)
	if b.Dark {
		opt.Theme = charts.GetTheme(charts.ThemeDark)
	}
	opt.Theme = opt.Theme.WithSeriesColors([]charts.Color{charts.ColorRGB(67, 160, 91), charts.ColorRGB(230, 160, 50), charts.ColorRGB(140, 146, 153)})
	opt.Title.Text = b.Title
	opt.Title.FontStyle.FontSize = 11
	opt.Legend.SeriesNames = roomy(b.Parts)
	opt.Legend.FontStyle.FontSize = 9
	opt.Legend.Offset = charts.OffsetRight
	opt.CategoryAxis.Labels = names
	opt.CategoryAxis.LabelFontStyle.FontSize = 9
	opt.ValueAxis[0].LabelFontStyle.FontSize = 9
	opt.ValueAxis[0].Min, opt.ValueAxis[0].Max, opt.ValueAxis[0].LabelCount = charts.Ptr(0.0), charts.Ptr(plain(b.longest())), 3
	opt.Padding = charts.NewBoxEqual(8)
	opt.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.4g %s", v, b.Unit) }
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: format, Width: BarsWidth, Height: b.Height()})
	if err := p.BarChart(opt); err != nil {
		return nil, fmt.Errorf("cannot draw %s: %w", b.Title, err)
	}
	return p.Bytes()
}

// longest is the length of the longest bar.
func (b Bars) longest() (most float64) {
	for i := range b.Names {
		sum := 0.0
		for _, part := range b.Sizes {
			sum += part[i]
		}
		most = max(most, sum)
	}
	return most
}

// roomy leaves room behind texts: the library measures them in its own font, and a browser that does not have that draws
// wider ones.
func roomy(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, text+strings.Repeat("\u00a0", 2+utf8.RuneCountInString(text)/5))
	}
	return out
}
