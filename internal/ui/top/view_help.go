package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/prose"
)

// helpLines say what each key does, and how the bands are read.
func (f *frame) helpLines() (lines []string) {
	for _, k := range [][2]string{
		{"↑ ↓ PgUp PgDn Home End", "choose a row"},
		{"s S", "sort by GPU, user, load, memory, CPU or age"},
		{"R", "turn the order round"},
		{"/", "show only rows with a text; Esc shows all"},
		{"u", "show one user: you, then the others, then all"},
		{"t", "show the processes of each job as a tree"},
		{"+ -", "show a shorter or a longer time in the bands"},
		{"c", "colour the bands by load or by user"},
		{"T", "change the theme: dark, light, mono"},
		{"o Enter", "open the log of your job"},
		{"x", "end your own job, or cancel one that waits"},
		{"r", "release the chosen lease, whose command has ended"},
		{"e", "end the chosen process without a lease"},
		{"d", "take the GPU out of use, or back"},
		{"? h", "these keys; any key goes back"},
		{"q Ctrl-C", "leave"},
	} {
		lines = append(lines, padRight(k[0], 22)+" "+f.say(k[1]))
	}
	lines = append(lines, "", f.say("In a band the height is the load, the letter or the name whose it was:"))
	for _, g := range [][2]string{{barGlyphs, "0 to 100 % load"}, {unmeasuredGlyph, "leased, and the load was not measured"}, {freeGlyph, "free"}} {
		lines = append(lines, padRight(g[0], 22)+" "+f.say(g[1]))
	}

	return lines
}

// logLines are the last lines of a log.
func (f *frame) logLines(room int) []string {
	p := f.log
	title := boldText(p.title)
	if p.up > 0 {
		title += f.theme.dimText("  " + f.say(fmt.Sprintf("%d lines below", p.up)))
	}

	lines := []string{title}
	if len(p.lines) == 0 {
		return append(lines, f.theme.dimText(f.say("it has written nothing yet")))
	}

	end := len(p.lines) - p.up
	var shown []string

	for i := end - 1; i >= 0 && len(shown) < room-1; i-- {
		parts := strings.Split(ansi.Hardwrap(prose.Clean(p.lines[i]), f.width, true), "\n")
		shown = append(parts, shown...)
	}

	return append(lines, shown[max(0, len(shown)-(room-1)):]...)
}
