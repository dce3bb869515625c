package chart

import (
	"fmt"

	"gpuard/internal/core/prose"
)

// Bars is one bar for each name, from zero, of one or several parts.
type Bars struct {
	Title string
	Names []string // from the top
	// The notes behind the length of each bar; nil: none.
	Notes []string
	// What the parts of a bar are; one needs no legend.
	Parts []string
	// The size of each name, for each part.
	Sizes [][]float64
	Unit  string // behind each number
	Dark  bool
}

// BarsWidth is that of a picture of bars, in pixels.
const BarsWidth = 720

// SVG is the picture as text.
func (b Bars) SVG() ([]byte, error) { return b.drawBars().renderSVG(), nil }

// PNG is the picture in pixels.
func (b Bars) PNG() ([]byte, error) { return b.drawBars().renderPNG() }

// Height is that of the picture, in pixels.
func (b Bars) Height() int { return b.drawBars().height }

const (
	rowHeight = 24
	barHeight = 14
	textSize  = 12
)

func (b Bars) drawBars() *drawing {
	d := newDrawing(BarsWidth, 0, b.Dark)
	d.addText(margin, 26, b.Title, d.palette.text, 14).bold = true
	y := 26.0
	if len(b.Parts) > 1 {
		y = d.drawLegend(b.Parts, 50)
	}

	top := y + 18
	bottom := top + float64(rowHeight*max(1, len(b.Names)))
	names := 0.0
	for _, name := range b.Names {
		names = max(names, min(textWidth(name, textSize), BarsWidth*0.4))
	}

	values := 0.0
	for i := range b.Names {
		values = max(values, textWidth(b.valueText(i), textSize))
	}

	left, right := margin+names+8, BarsWidth-margin-values-8
	most := axisTop(b.longestBar())
	for k := range 3 {
		x := left + (right-left)*float64(k)/2
		d.addLine(x, top, x, bottom, d.palette.line, 1)
		d.addText(x-2, bottom+16, lengthText(most*float64(k)/2, b.Unit), d.palette.soft, 11)
	}

	for i, name := range b.Names {
		row := top + float64(rowHeight*i)
		d.addText(left-8, row+16, cutTo(name, BarsWidth*0.4), d.palette.text, textSize).atRight = true
		x := left
		for k := range b.Sizes {
			length := (right - left) * b.Sizes[k][i] / most
			if length > 0 {
				d.addRect(x, row+5, x+length, row+5+barHeight, d.palette.seriesColour(k))
			}
			x += length
		}

		d.addText(x+6, row+16, b.valueText(i), d.palette.soft, textSize)
	}

	d.height = int(bottom) + 28
	d.shapes[0].y2 = float64(d.height)

	return d
}

// valueText is what stands behind a bar.
func (b Bars) valueText(i int) string {
	text := lengthText(b.lengthOf(i), b.Unit)
	if i < len(b.Notes) && b.Notes[i] != "" {
		text += "  " + b.Notes[i]
	}
	return text
}

func (b Bars) lengthOf(i int) (sum float64) {
	for _, part := range b.Sizes {
		sum += part[i]
	}
	return sum
}

// longestBar is the length of the longest bar.
func (b Bars) longestBar() (most float64) {
	for i := range b.Names {
		most = max(most, b.lengthOf(i))
	}
	return most
}

// lengthText is a number with as many digits as tell something.
func lengthText(v float64, unit string) string {
	text := fmt.Sprintf("%.3g", v)
	if v >= 1000 {
		text = fmt.Sprintf("%.0f", v)
	}
	return text + " " + unit
}

// cutTo makes a text at most so wide.
func cutTo(text string, width float64) string {
	return prose.CutToWidth(text, int(width/(0.62*textSize)), "…")
}
