package chart

import (
	"fmt"
	"slices"

	"gpuard/internal/core/trend"
)

// maxBars is how many bars a picture of use has, because a list of commands may be long.
const maxBars = 20

// DrawUse draws hours granted, used and idle, as an SVG or PNG: of very many the largest, and one for the others; of
// days the last. say says a text in the language of the user.
func DrawUse(table trend.UseTable, png bool, say func(string) string) ([]byte, error) {
	say = translatorFor(png, say)
	use := slices.Clone(table.Use)
	switch more := len(use) - maxBars; {
	case more > 0 && table.By == "day":
		use = use[more:]
	case more > 0:
		rest := trend.Use{Name: fmt.Sprintf("%s (%d)", say("others"), more+1)}
		for _, u := range use[maxBars-1:] {
			rest.Granted, rest.Used, rest.Idle = rest.Granted+u.Granted, rest.Used+u.Used, rest.Idle+u.Idle
		}
		use = append(use[:maxBars-1], rest)
	}

	b := Bars{Title: say("Hours granted") + " · " + say(table.By), Parts: []string{say("used"), say("idle"), say("not measured")}, Sizes: make([][]float64, 3), Unit: "h"}
	for _, u := range use {
		b.Names = append(b.Names, u.Name)
		b.Sizes[0] = append(b.Sizes[0], u.Used)
		b.Sizes[1] = append(b.Sizes[1], u.Idle)
		b.Sizes[2] = append(b.Sizes[2], max(0, u.Granted-u.Used-u.Idle))
	}

	return b.drawBars().encodePicture(png)
}
