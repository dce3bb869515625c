package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"
)

// TestBars: the picture is an SVG or a PNG, with a bar for each name, as long as it should be, the first one on top.
func TestBars(t *testing.T) {
	for _, scale := range []float64{1e-6, 1, 1e5} {
		dark := scale == 1
		b := Bars{Title: "Hours <by> user", Parts: []string{"used", "idle", "not measured"}, Sizes: make([][]float64, 3), Unit: "h", Dark: dark}
		for i := range 7 {
			b.Names = append(b.Names, fmt.Sprintf("name %d <&>", i))
			b.Sizes[0] = append(b.Sizes[0], float64(7-i)*scale)
			b.Sizes[1] = append(b.Sizes[1], scale)
			b.Sizes[2] = append(b.Sizes[2], 0)
		}
		svg, err := b.SVG()
		if err != nil {
			t.Fatal(err)
		}
		texts, paths := read(t, svg)
		for _, want := range append([]string{b.Title, "used", "idle", "not measured", "0 h"}, b.Names...) {
			if !strings.Contains(texts, want+"\n") {
				t.Errorf("%q is not in the picture: %q", want, texts)
			}
		}
		bars := paths["fill:rgb(67,160,91)"]
		if len(bars) != 1+len(b.Names) { // and one in the legend
			t.Fatalf("%d bars for %d names", len(bars)-1, len(b.Names))
		}
		top, long := map[float64]float64{}, 0.0
		for _, bar := range bars[1:] {
			top[bar[1]] = bar[2] - bar[0]
			long = max(long, bar[2]-bar[0])
		}
		first := 1e9
		for y := range top {
			first = min(first, y)
		}
		if top[first] != long || long < BarsWidth/2 { // 7 of 8
			t.Errorf("the longest is not on top, or short: %v", top)
		}
		picture, err := b.PNG()
		if err != nil {
			t.Fatal(err)
		}
		image, err := png.Decode(bytes.NewReader(picture))
		if err != nil || image.Bounds().Dx() != BarsWidth || image.Bounds().Dy() != b.Height() {
			t.Errorf("%v, %v", image.Bounds(), err)
		}
	}
	if _, err := (Bars{Title: "nothing", Parts: []string{"used"}, Sizes: [][]float64{{}}}).SVG(); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// read returns the texts of a picture, and by style its rectangles: left, top, right, bottom.
func read(t *testing.T, svg []byte) (texts string, paths map[string][][4]float64) {
	t.Helper()
	paths = map[string][][4]float64{}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, paths
		}
		if err != nil {
			t.Fatalf("it is no SVG: %v", err)
		}
		switch e := token.(type) {
		case xml.CharData:
			texts += strings.TrimRight(string(e), "\u00a0") + "\n"
		case xml.StartElement:
			var path, style string
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "d":
					path = strings.ReplaceAll(a.Value, "\n", " ")
				case "style":
					style = a.Value[strings.LastIndex(a.Value, "fill:"):]
				}
			}
			var x1, y1, x2, y2, x3, y3 float64
			if n, _ := fmt.Sscanf(path, "M %f %f L %f %f L %f %f", &x1, &y1, &x2, &y2, &x3, &y3); n == 6 {
				paths[style] = append(paths[style], [4]float64{x1, y1, x3, y3})
			}
		}
	}
}
