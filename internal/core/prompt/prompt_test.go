package prompt

import (
	"slices"
	"strings"
	"testing"
)

func two() Question {
	return Question{Count: 1, Choices: []Choice{
		{"0", "0", "NVIDIA A100-SXM4-80GB", "80 GiB", "free"},
		{"amd:1", "amd:1", "--help\x1b[2J", "?", "leased by ann (python)"},
	}}
}

func english(text string) string { return text }

func TestRead(t *testing.T) {
	pair := two()
	pair.Count = 2
	for _, c := range []struct {
		q    Question
		text string
		want Answer
		bad  string
	}{
		{two(), "", Answer{}, ""},
		{two(), " any\n", Answer{}, ""},
		{two(), "0", Answer{Devices: []string{"0"}}, ""},
		{two(), " AMD:1 ", Answer{Devices: []string{"amd:1"}}, ""},
		{two(), "C", Answer{None: true}, ""},
		{two(), "2", Answer{}, `cannot take "2": type 0 or amd:1, Enter, or c`},
		{two(), "yes\x1b", Answer{}, "cannot take"},
		{two(), "0 1", Answer{}, `cannot take "1"`},
		{two(), "0 amd:1", Answer{}, "cannot take 2: 1 wanted"},
		{pair, "amd:1,0", Answer{Devices: []string{"amd:1", "0"}}, ""},
		{pair, "0", Answer{}, "cannot take 1: 2 wanted"},
		{pair, "0 0", Answer{}, "cannot take 0 twice"},
		{pair, "", Answer{}, ""},
	} {
		got, err := c.q.ParseAnswer(c.text)
		if err != nil && (c.bad == "" || !strings.HasPrefix(err.Error(), c.bad)) || err == nil && c.bad != "" {
			t.Errorf("%q: %v, want %q", c.text, err, c.bad)
		}
		if !slices.Equal(got.Devices, c.want.Devices) || got.None != c.want.None {
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
		if err != nil && strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%q: the error moves the cursor", c.text)
		}
	}
}

func TestShown(t *testing.T) {
	q := two()
	if want := "Which GPU? [Enter: any free one, 0 amd:1, c: none] "; q.Line() != want {
		t.Errorf("got %q, want %q", q.Line(), want)
	}
	table := strings.Join(q.TableLines(0, english), "\n")
	for _, want := range []string{"GPU    MODEL", "0      NVIDIA A100-SXM4-80GB  80 GiB  free", "leased by ann (python)"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	for _, line := range q.TableLines(20, english) {
		if len(line) >= 20 {
			t.Errorf("%q is too wide", line)
		}
	}
	for _, row := range q.Rows(english) {
		for _, cell := range row {
			if strings.HasPrefix(cell, "-") || strings.ContainsRune(cell, 0x1b) {
				t.Errorf("%q could be an option, or move the cursor", cell)
			}
		}
		if _, err := q.ParseAnswer(row[0]); err != nil {
			t.Errorf("a window's row %q is no answer: %v", row[0], err)
		}
	}
}

// TestTableInAnotherLanguage: columns stand below each other where a character takes two cells, and no line is cut within one.
func TestTableInAnotherLanguage(t *testing.T) {
	say := func(text string) string {
		return map[string]string{"MODEL": "型号", "FREE": "空闲显存", "USE": "状态", "free": "空闲"}[text]
	}
	want := []string{"GPU    型号                   空闲显存  状态", "0      NVIDIA A100-SXM4-80GB  80 GiB    空闲"}
	if got := two().TableLines(0, say)[:2]; !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := two().TableLines(11, say)[0]; got != "GPU    型" {
		t.Errorf("got %q", got)
	}
}
