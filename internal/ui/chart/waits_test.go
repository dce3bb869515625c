package chart

import (
	"bytes"
	"testing"

	"gpuard/internal/core/sim"
)

func TestWaits(t *testing.T) {
	results := []sim.Result{{Policy: "own", GPUs: 4, WaitMean: new(7200.0)}, {Policy: "fifo", GPUs: 4, WaitMean: new(36000.0)}, {Policy: "own", GPUs: 8, WaitMean: new(60.0)}, {Policy: "fifo", GPUs: 8}}
	svg, err := Waits(results, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "Mean wait in hours, by the number of GPUs", "own", "fifo"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%s is not in the picture", want)
		}
	}
	if svg, err = Waits(results[:2], false); err != nil || !bytes.Contains(svg, []byte("Mean wait in hours on 4 GPUs")) || !bytes.Contains(svg, []byte("fifo")) {
		t.Error(err)
	}
	png, err := Waits(results, true)
	if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Error(err)
	}
}
