package chart

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/go-analyze/charts"

	"gpuard/internal/core/sim"
)

// Waits draws what jobs would have waited, as an SVG or PNG: a curve of each policy over the number of GPUs or, where there
// is one number, a bar of each policy.
func Waits(results []sim.Result, png bool) ([]byte, error) {
	var sizes, policies []string
	for i := range results {
		if n := strconv.Itoa(results[i].GPUs); !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
		if !slices.Contains(policies, results[i].Policy) {
			policies = append(policies, results[i].Policy)
		}
	}
	labels, series := sizes, make([][]float64, len(policies))
	for i := range results {
		hours := charts.GetNullValue()
		if w := results[i].WaitMean; w != nil {
			hours = *w / 3600
		}
		at := slices.Index(policies, results[i].Policy)
		series[at] = append(series[at], hours)
	}
	format := charts.ChartOutputSVG
	if png {
		format = charts.ChartOutputPNG
	}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: format, Width: 720, Height: 400})
	var err error
	if len(sizes) > 1 {
		opt := charts.NewLineChartOptionWithData(series)
		opt.Title.Text = "Mean wait in hours, by the number of GPUs"
		opt.XAxis.Labels, opt.Legend.SeriesNames = labels, policies
		opt.YAxis = []charts.YAxisOption{{Min: charts.Ptr(0.0)}}
		opt.Legend.Offset = charts.OffsetRight
		opt.Padding = charts.NewBoxEqual(16)
		err = p.LineChart(opt)
	} else {
		row := []float64{}
		for _, s := range series {
			row = append(row, s...)
		}
		opt := charts.NewBarChartOptionWithData([][]float64{row})
		opt.Title.Text = "Mean wait in hours on " + sizes[0] + " GPUs"
		opt.CategoryAxis.Labels = policies
		opt.Legend.Show = charts.Ptr(false)
		opt.Padding = charts.NewBoxEqual(16)
		err = p.BarChart(opt)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot draw the waits: %w", err)
	}
	return p.Bytes()
}
