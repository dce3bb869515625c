package chart

import (
	"fmt"

	"gpuard/internal/core/experiment"
)

// DrawComparison draws the median time of each command in each arm, as an SVG or PNG, with its ratio to the first arm.
// say says a text in the language of the user.
func DrawComparison(quantities []experiment.Quantity, png bool, say func(string) string) ([]byte, error) {
	say = translatorFor(png, say)
	b := Bars{Title: say("Median time in seconds"), Sizes: [][]float64{{}}, Unit: "s"}
	for i := range quantities {
		q := &quantities[i]
		if !q.IsTime() {
			continue
		}

		note := ""
		if q.Ratio != nil {
			note = q.Ratio.Words()
		}

		b.Names, b.Notes, b.Sizes[0] = append(b.Names, fmt.Sprintf("%s %s", q.Command, q.Arm)), append(b.Notes, note), append(b.Sizes[0], q.Median)
	}

	return b.drawBars().encodePicture(png)
}
