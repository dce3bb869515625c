// Package chart draws bars of what devices were used for, as SVG or PNG. It must not decide what is drawn.
//
//	svg, err := chart.Bars{Title: "Hours granted", Names: users, Parts: parts, Sizes: sizes, Unit: "h"}.SVG()
package chart

import (
	"math"
	"slices"
)

// axisTop is the top of an axis for a highest value: the next of 1, 2, 4, 5, 6, 8 and 10 times a power of ten, so that
// its half is a plain number too.
func axisTop(highest float64) float64 {
	if highest <= 0 {
		return 1
	}

	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	steps := []float64{1, 2, 4, 5, 6, 8, 10}
	i := slices.IndexFunc(steps, func(s float64) bool { return s*unit >= highest })

	return steps[max(i, 0)] * unit
}
