package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestBars: the picture is an SVG or a PNG, with a bar for each name from zero, as long as it should be, the first one on top; nothing is
// outside of it.
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
		shown := read(t, svg)
		for _, want := range append([]string{b.Title, "used", "idle", "not measured", "0 h", lengthText(8*scale, "h")}, b.Names...) {
			if !slices.Contains(shown.texts, want) {
				t.Errorf("%q is not in the picture: %q", want, shown.texts)
			}
		}
		colours := paletteOf(dark)
		bars := shown.rects[colours.series[0]][1:] // the first is in the legend
		if len(bars) != len(b.Names) {
			t.Fatalf("%d bars for %d names", len(bars), len(b.Names))
		}
		unit := bars[6][2] - bars[6][0]
		for i, bar := range bars {
			if bar[0] != bars[0][0] || i > 0 && bar[1] <= bars[i-1][1] {
				t.Errorf("bar %d begins elsewhere, or is not below the one before: %v", i, bar)
			}
			if length := bar[2] - bar[0]; length < float64(7-i)*unit-0.5 || length > float64(7-i)*unit+0.5 {
				t.Errorf("bar %d is %.1f long, the last one %.1f", i, length, unit)
			}
		}
		if bars[0][2]-bars[0][0] < BarsWidth/2 { // 7 of 8
			t.Errorf("the longest is short: %v", bars[0])
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

// TestLegendFits: nothing is cut or written over something else, whatever the language and however long the names are.
func TestLegendFits(t *testing.T) {
	long := strings.Repeat("训练任务", 20)
	for _, parts := range [][]string{{"used", "idle", "not measured"}, {"使用", "闲置", "未测量"}, {long, long, long}} {
		b := Bars{Title: "租用小时：用户", Parts: parts, Sizes: [][]float64{{1, 2}, {3, 0}, {0, 1}}, Unit: "h", Names: []string{long, "zoe"}, Notes: []string{"1.08 times as long", ""}}
		svg, _ := b.SVG()
		shown := read(t, svg)
		for i, text := range shown.texts {
			w, x := textWidth(text, textSize), shown.at[i][0]
			if shown.atRight[i] {
				x -= w
			}
			if parts[0] != long && (x < 0 || x+w > BarsWidth+1) {
				t.Errorf("%q is cut off: from %.0f to %.0f", text, x, x+w)
			}
		}
		for i, text := range shown.texts {
			for k := range i {
				if shown.at[i][1] == shown.at[k][1] && shown.at[i][0] < shown.at[k][0]+textWidth(shown.texts[k], textSize) && shown.at[k][0] <= shown.at[i][0] && !shown.atRight[k] && !shown.atRight[i] {
					t.Errorf("%q is written over %q", text, shown.texts[k])
				}
			}
		}
	}
}

// picture is what an SVG shows.
type picture struct {
	texts   []string
	at      [][2]float64
	atRight []bool
	rects   map[string][][4]float64 // by colour: left, top, right, bottom
	lines   map[string]int
}

func read(t *testing.T, svg []byte) *picture {
	t.Helper()
	p := &picture{rects: map[string][][4]float64{}, lines: map[string]int{}}
	d := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("it is no SVG: %v\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.CharData:
			if inText {
				p.texts = append(p.texts, string(e))
			}
		case xml.EndElement:
			inText = false
		case xml.StartElement:
			a := map[string]string{}
			for _, one := range e.Attr {
				a[one.Name.Local] = one.Value
			}
			n := func(name string) float64 {
				f, _ := strconv.ParseFloat(a[name], 64)
				return f
			}
			switch e.Name.Local {
			case "rect":
				p.rects[a["fill"]] = append(p.rects[a["fill"]], [4]float64{n("x"), n("y"), n("x") + n("width"), n("y") + n("height")})
			case "line":
				p.lines[a["stroke"]]++
			case "text":
				inText = true
				p.at = append(p.at, [2]float64{n("x"), n("y")})
				p.atRight = append(p.atRight, a["text-anchor"] == "end")
			}
		}
	}
}
