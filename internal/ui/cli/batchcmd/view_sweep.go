package batchcmd

import (
	"fmt"
	"strings"
	"time"

	"gpuard/internal/app/runner"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/planview"
	"gpuard/internal/ui/translate"
)

// sweepLine is the progress of a sweep in width cells, 0 for no limit: a bar if there is room, the numbers of finished,
// failed and running runs, the estimated time left, and the place of a waiting run.
func sweepLine(now runner.Progress, at time.Time, width int) string {
	c := now.Count
	done := fmt.Sprintf("%d/%d", c.CountDone(), c.All)
	parts := []string{}
	if c.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", c.Failed))
	}

	if now.Stopped {
		parts = append(parts, "ending what runs")
	}

	if c.Running > 0 {
		parts = append(parts, fmt.Sprintf("%d running", c.Running))
	}

	if left := remainingTime(now, at); left != "" && !now.Stopped {
		parts = append(parts, left)
	}

	if now.Stand != nil {
		parts = append(parts, planview.StandingLine(*now.Stand, at, translate.Language{}, 0))
	}

	text := strings.Join(append([]string{done}, parts...), ", ")
	if width <= 0 {
		return text
	}

	const bar = 20
	if room := width - bar - 3; room >= 30 {
		full := bar * c.CountDone() / max(c.All, 1)
		return "[" + strings.Repeat("#", full) + strings.Repeat("-", bar-full) + "] " + console.Cut(text, room, "...")
	}

	return console.Cut(text, width, "...")
}

// remainingTime estimates the time left from the runs done so far: "about 7m left (14:02)".
func remainingTime(now runner.Progress, at time.Time) string {
	done := now.Count.CountDone() - now.Before
	left := now.Count.All - now.Count.CountDone()
	if done <= 0 || left <= 0 {
		return ""
	}

	more := time.Duration(float64(at.Sub(now.Began)) / float64(done) * float64(left))
	if more > 10000*time.Hour {
		return ""
	}

	text := fmt.Sprintf("about %ds left", int(more.Seconds())+1)
	switch {
	case more >= time.Hour:
		text = fmt.Sprintf("about %dh%02dm left", int(more.Hours()), int(more.Minutes())%60)
	case more >= time.Minute:
		text = fmt.Sprintf("about %dm left", int(more.Minutes())+1)
	}

	if more > 5*time.Minute {
		text += " (" + prose.ClockTime(at.Add(more), at) + ")"
	}

	return text
}
