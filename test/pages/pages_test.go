package pages_test

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/test/pages"
)

const examplePage = "# One `thing`\n\nText with [a link](a.md#b) and `[no](link.md)`,\ngoing [on and\non](../c).\n\n" +
	"    indented code\n\n    [more](of.it)\n\n## Two: all, of_it!\n- an item\n  of two lines\n- another\n\n    not code\n\n" +
	"| a | b |\n| --- | --- |\n```sh\n# no heading\n    deep\n```\n## Two: all, of_it!\n[ref]: https://example.org/x\n### 中文 标题\n"

func TestRead(t *testing.T) {
	var got []string
	for _, b := range pages.Read(examplePage) {
		got = append(got, fmt.Sprintf("%d %s%d %s %q", b.Line, b.Kind, b.Level, b.Info, b.Text))
	}
	want := []string{
		`1 heading1  "One ` + "`thing`" + `"`,
		`3 paragraph0  "Text with [a link](a.md#b) and ` + "`[no](link.md)`" + `,\ngoing [on and\non](../c)."`,
		`7 code0 indented "indented code\n\n[more](of.it)\n"`,
		`11 heading2  "Two: all, of_it!"`,
		`12 item0  "an item\nof two lines"`,
		`14 item0  "another\nnot code"`,
		`18 row0  "| a | b |"`,
		`19 row0  "| --- | --- |"`,
		`21 code0 sh "# no heading\n    deep\n"`,
		`24 heading2  "Two: all, of_it!"`,
		`25 paragraph0  "[ref]: https://example.org/x"`,
		`26 heading3  "中文 标题"`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestLinks(t *testing.T) {
	got := fmt.Sprint(pages.Links(pages.Read(examplePage)))
	if want := "[{3 a.md#b} {5 ../c} {25 https://example.org/x}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for to, relative := range map[string]bool{"a.md": true, "#b": true, "../a": true, "https://a": false, "mailto:a@b": false, "//a": false} {
		if (pages.Link{To: to}).IsRelative() != relative {
			t.Errorf("%s: relative is not %t", to, relative)
		}
	}
}

func TestAnchors(t *testing.T) {
	got := pages.Anchors(pages.Read(examplePage))
	for _, want := range []string{"one-thing", "two-all-of_it", "two-all-of_it-1", "中文-标题"} {
		if !got[want] {
			t.Errorf("no %s among %v", want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d anchors: %v", len(got), got)
	}
}
