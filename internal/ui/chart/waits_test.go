package chart

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"gpuard/internal/core/experiment"
	"gpuard/internal/core/sim"
	"gpuard/internal/core/trend"
	"gpuard/internal/ui/translate"
)

func english(text string) string { return text }

// TestWaits: a bar of each policy from zero, or a curve of each over the numbers of GPUs, with a gap where nothing is known.
func TestWaits(t *testing.T) {
	results := []sim.Result{{Policy: "own", GPUs: 4, WaitMean: new(7200.0)}, {Policy: "fifo", GPUs: 4, WaitMean: new(36000.0)}, {Policy: "own", GPUs: 8, WaitMean: new(60.0)}, {Policy: "fifo", GPUs: 8}}
	svg, err := DrawWaits(results, false, english)
	if err != nil {
		t.Fatal(err)
	}
	shown := read(t, svg)
	for _, want := range []string{"Mean wait, by the number of GPUs", "own", "fifo", "4", "8", "0 h", "10 h"} {
		if !slices.Contains(shown.texts, want) {
			t.Errorf("%s is not in the picture: %q", want, shown.texts)
		}
	}
	colours := paletteOf(false)
	if shown.lines[colours.series[0]] != 1 || shown.lines[colours.series[1]] != 0 || len(shown.rects[colours.series[1]]) != 2 {
		t.Errorf("%v %v", shown.lines, shown.rects)
	}
	svg, err = DrawWaits(results[:2], false, english)
	if err != nil {
		t.Fatal(err)
	}
	shown = read(t, svg)
	bars := shown.rects[colours.series[0]]
	if len(bars) != 2 || bars[0][0] != bars[1][0] || (bars[1][2]-bars[1][0]) < 4.9*(bars[0][2]-bars[0][0]) || (bars[1][2]-bars[1][0]) > 5.1*(bars[0][2]-bars[0][0]) || !slices.Contains(shown.texts, "Mean wait on 4 GPUs") || !slices.Contains(shown.texts, "2 h") {
		t.Errorf("%v %q", bars, shown.texts)
	}
	png, err := DrawWaits(results, true, english)
	if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Error(err)
	}
}

// TestCompared: a bar of each arm from zero, with its ratio behind it.
func TestCompared(t *testing.T) {
	arms := []experiment.Quantity{{Command: "A", Name: "seconds", Arm: experiment.Arm("shared"), Median: 12}, {Command: "A", Name: "seconds", Arm: experiment.Arm("alone"), Median: 6, Ratio: &experiment.Ratio{}}, {Command: "A", Name: "energy_joules", Median: 900}}
	svg, err := DrawComparison(arms, false, english)
	if err != nil {
		t.Fatal(err)
	}
	shown := read(t, svg)
	colours := paletteOf(false)
	if bars := shown.rects[colours.series[0]]; len(bars) != 2 || bars[0][0] != bars[1][0] || !slices.Contains(shown.texts, "12 s") {
		t.Errorf("%v %q", bars, shown.texts)
	}
}

// TestUsed: of very many names the last bar is for the others; days are the last ones; Chinese is for an SVG, whose reader has the font.
func TestUsed(t *testing.T) {
	table := trend.UseTable{By: "user"}
	for i := range 30 {
		table.Use = append(table.Use, trend.Use{Name: fmt.Sprint("user", i), Granted: 10, Used: 5, Idle: 3})
	}
	svg, err := DrawUse(table, false, translate.ReadLocale("zh_CN").Translate)
	if err != nil {
		t.Fatal(err)
	}
	shown := read(t, svg)
	for _, want := range []string{"租用小时 · 用户", "使用", "闲置", "未测量", "user18", "其他 (11)", "110 h"} {
		if !slices.Contains(shown.texts, want) {
			t.Errorf("%s is not in the picture: %q", want, shown.texts)
		}
	}
	if slices.Contains(shown.texts, "user19") || len(table.Use) != 30 || table.Use[29].Name != "user29" {
		t.Error("the others are there, too, or the table was changed")
	}
	table.By = "day"
	svg, _ = DrawUse(table, false, english)
	if shown := read(t, svg); slices.Contains(shown.texts, "user9") || !slices.Contains(shown.texts, "user29") {
		t.Errorf("%q", shown.texts)
	}
	if png, err := DrawUse(table, true, func(string) string { t.Error("the font of a PNG is Latin"); return "" }); err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Error(err)
	}
}
