package chart

import (
	"fmt"
	"slices"
	"strconv"

	"gpuard/internal/core/sim"
)

// DrawWaits draws what jobs would have waited, as an SVG or PNG: a curve of each policy over the number of GPUs or,
// where there is one number, a bar of each policy. say says a text in the language of the user.
func DrawWaits(results []sim.Result, png bool, say func(string) string) ([]byte, error) {
	say = translatorFor(png, say)
	var sizes []int
	var policies []string
	for i := range results {
		if !slices.Contains(sizes, results[i].GPUs) {
			sizes = append(sizes, results[i].GPUs)
		}
		if !slices.Contains(policies, results[i].Policy) {
			policies = append(policies, results[i].Policy)
		}
	}

	hours := func(policy string, size int) *float64 {
		for i := range results {
			if r := &results[i]; r.Policy == policy && r.GPUs == size && r.WaitMean != nil {
				return new(*r.WaitMean / 3600)
			}
		}
		return nil
	}

	if len(sizes) == 1 {
		b := Bars{Title: say(fmt.Sprintf("Mean wait on %d GPUs", sizes[0])), Sizes: [][]float64{{}}, Unit: "h"}
		for _, policy := range policies {
			if h := hours(policy, sizes[0]); h != nil {
				b.Names, b.Sizes[0] = append(b.Names, policy), append(b.Sizes[0], *h)
			}
		}
		return b.drawBars().encodePicture(png)
	}

	c := lineChart{title: say("Mean wait, by the number of GPUs"), unit: "h", names: policies}
	for _, size := range sizes {
		c.labels = append(c.labels, strconv.Itoa(size))
	}

	for _, policy := range policies {
		var values []*float64
		for _, size := range sizes {
			values = append(values, hours(policy, size))
		}
		c.values = append(c.values, values)
	}

	return c.drawCurves().encodePicture(png)
}

// lineChart are several over the same places, from zero.
type lineChart struct {
	title, unit string
	labels      []string // of the places
	names       []string // of the curves
	// The value of each place, for each curve; nil leaves a gap.
	values [][]*float64
}

func (l *lineChart) drawCurves() *drawing {
	const height = 360
	d := newDrawing(BarsWidth, height, false)
	d.addText(margin, 26, l.title, d.palette.text, 14).bold = true
	top := d.drawLegend(l.names, 50) + 22
	bottom := float64(height - 36)
	highest := 0.0
	for _, values := range l.values {
		for _, v := range values {
			if v != nil {
				highest = max(highest, *v)
			}
		}
	}

	most := axisTop(highest)
	left := margin + textWidth(lengthText(most/2, l.unit), 11) + 8
	at := func(i int, v float64) (x, y float64) {
		x = left + (float64(i)+0.5)*(BarsWidth-margin-left)/float64(len(l.labels))
		return x, bottom - (bottom-top)*v/most
	}

	for k := range 3 {
		v := most * float64(k) / 2
		_, y := at(0, v)
		d.addLine(left, y, BarsWidth-margin, y, d.palette.line, 1)
		d.addText(left-8, y+4, lengthText(v, l.unit), d.palette.soft, 11).atRight = true
	}

	for i, label := range l.labels {
		x, _ := at(i, 0)
		d.addText(x-textWidth(label, textSize)/2, bottom+18, label, d.palette.soft, textSize)
	}

	for k, values := range l.values {
		for i, v := range values {
			if v == nil {
				continue
			}
			x, y := at(i, *v)
			d.addRect(x-3, y-3, x+3, y+3, d.palette.seriesColour(k))
			if i > 0 && values[i-1] != nil {
				x0, y0 := at(i-1, *values[i-1])
				d.addLine(x0, y0, x, y, d.palette.seriesColour(k), 2)
			}
		}
	}

	return d
}
