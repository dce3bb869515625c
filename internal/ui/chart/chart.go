// Package chart draws what devices did over time, as SVG or PNG. It must not decide what is drawn.
//
//	svg, err := chart.Lines{Title: "Load", Values: values, Labels: labels, Unit: "%"}.SVG()
package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/go-analyze/charts"
)

// Lines is one curve over time.
type Lines struct {
	Title  string
	Values []*float64 // nil leaves a gap
	Labels []string   // below the curve, one for each value; as many are written as there is room for
	Unit   string     // behind each number of the axis
	Top    float64    // of the axis; 0: above the highest value
	Dark   bool
	Width  int // pixels; 0: 480
	Height int // pixels; 0: 130
}

// SVG is the picture as text.
func (l Lines) SVG() ([]byte, error) { return l.draw(charts.ChartOutputSVG) }

// PNG is the picture in pixels.
func (l Lines) PNG() ([]byte, error) { return l.draw(charts.ChartOutputPNG) }

func (l Lines) draw(format string) ([]byte, error) {
	top, values := l.scale()
	opt := charts.NewLineChartOptionWithData([][]float64{values})
	opt.Theme = charts.GetTheme(charts.ThemeLight)
	if l.Dark {
		opt.Theme = charts.GetTheme(charts.ThemeDark)
	}
	opt.Title.Text = l.Title
	opt.Title.FontStyle.FontSize = 11
	opt.XAxis.Labels, opt.XAxis.LabelCount, opt.XAxis.BoundaryGap = l.Labels, 5, charts.Ptr(false)
	opt.XAxis.LabelFontStyle.FontSize = 9
	opt.YAxis = []charts.YAxisOption{{Min: charts.Ptr(0.0), Max: charts.Ptr(top), LabelCount: 3}}
	opt.YAxis[0].LabelFontStyle.FontSize = 9
	opt.Symbol = charts.Symbol{Shape: "none"}
	opt.LineStrokeWidth = 1.5
	opt.FillArea, opt.FillOpacity = charts.Ptr(true), 60
	opt.Legend.Show = charts.Ptr(false)
	opt.Padding = charts.NewBoxEqual(8)
	opt.ValueFormatter = func(v float64) string { return fmt.Sprintf("%.4g %s", v, l.Unit) }
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: format, Width: cmp.Or(l.Width, 480), Height: cmp.Or(l.Height, 130)})
	err := p.LineChart(opt)
	if err != nil {
		return nil, fmt.Errorf("cannot draw %s: %w", l.Title, err)
	}
	return p.Bytes()
}

// scale is the top of the axis, and the values as the library wants them.
func (l Lines) scale() (top float64, values []float64) {
	for _, v := range l.Values {
		if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
			values = append(values, charts.GetNullValue())
			continue
		}
		top = max(top, *v)
		values = append(values, *v)
	}
	if l.Top > 0 {
		return l.Top, values
	}
	return plain(top), values
}

// plain is the top of an axis for a highest value: the next of 1, 2, 4, 5, 6, 8 and 10 times a power of ten, so that its
// half is a plain number too.
func plain(highest float64) float64 {
	if highest <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	steps := []float64{1, 2, 4, 5, 6, 8, 10}
	i := slices.IndexFunc(steps, func(s float64) bool { return s*unit >= highest })
	return steps[max(i, 0)] * unit
}
