package chart

import (
	"os"
	"testing"
)

func TestX(t *testing.T) {
	b := Bars{Title: "Hours by user", Names: []string{"ann", "GPU 0 (GPU-fa4e0000-0000-4000-8000-000000000001)", "carl <x>&"}, Parts: []string{"used", "idle", "not measured"}, Sizes: [][]float64{{3, 1, 0}, {2, 0.5, 0.1}, {0, 1, 0}}, Unit: "h"}
	x, err := b.PNG()
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/wt/ct/x.png", x, 0o644)
	x, err = b.SVG()
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/wt/ct/x.svg", x, 0o644)
}
