package chart

import (
	"fmt"

	"gpuard/internal/core/compare"
)

// Compared draws the median time of each command in each arm, as an SVG or PNG, with its ratio to the first arm.
func Compared(quantities []compare.Quantity, png bool) ([]byte, error) {
	b := Bars{Title: "Median time in seconds", Parts: []string{"seconds"}, Sizes: [][]float64{{}}, Unit: "s"}
	for i := range quantities {
		q := &quantities[i]
		if !q.Time() {
			continue
		}
		name := fmt.Sprintf("%s %s", q.Command, q.Arm)
		if q.Ratio != nil {
			name += ": " + q.Ratio.Words()
		}
		b.Names, b.Sizes[0] = append(b.Names, name), append(b.Sizes[0], q.Median)
	}
	if png {
		return b.PNG()
	}
	return b.SVG()
}
