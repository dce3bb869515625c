package edit

import (
	"errors"
	"strings"
	"testing"
)

// persons are texts of users' files.
func persons() []string {
	return []string{
		"", "\n", "a", "a\n", "a\nb", "a\nb\n", "\n\n", "a\r\nb\r\n", "a\r\nb", " \n", "# >>> conda initialize >>>\n# <<< conda initialize <<<\n",
		"#>>> gpuard setup x >>>\n", "# about gpuard setup\n", "ünï\x00\xff\n",
	}
}

// twice runs a setup twice, and then removes it.
func twice(t *testing.T, c Change, text string, lines string) string {
	t.Helper()
	s, err := PlanWrite(c, Found{Exists: true, Content: text})
	if err != nil || s.Action != Insert || !strings.Contains(s.After, c.Content+c.Indent+"# <<< gpuard setup shell <<<\n") {
		t.Fatalf("%q: %v, %+v", text, err, s)
	}
	again, err := PlanWrite(c, Found{Exists: true, Content: s.After})
	if err != nil || again.Action != Same || again.After != s.After {
		t.Fatalf("%q again: %v, %+v", text, err, again)
	}
	other := c
	other.Content = lines
	update, err := PlanWrite(other, Found{Exists: true, Content: s.After})
	if err != nil || update.Action != Update || !strings.Contains(update.After, lines) {
		t.Fatalf("%q with other lines: %v, %+v", text, err, update)
	}
	gone, err := PlanRemoval(c, Found{Exists: true, Content: update.After}, false)
	if err != nil || gone.Action != Cut {
		t.Fatalf("%q away: %v, %+v", text, err, gone)
	}
	return gone.After
}

// TestBlocks: inserting, changing and removing a block at any line restores every byte of any text.
func TestBlocks(t *testing.T) {
	for _, text := range persons() {
		for line := range 5 {
			c := Change{Path: "/f", Block: "shell", Content: "one\ntwo\n", Line: line, Indent: "  "}
			if got := twice(t, c, text, "three\n"); got != text {
				t.Errorf("%q at line %d became %q", text, line, got)
			}
		}
	}
}

func FuzzBlocks(f *testing.F) {
	for _, text := range persons() {
		f.Add(text, "x\n", 1)
	}
	f.Fuzz(func(t *testing.T, text, lines string, line int) {
		lines = strings.ReplaceAll(lines, "gpuard setup", "") + "\n"
		c := Change{Path: "/f", Block: "shell", Content: "one\n", Line: line}
		if b, err := c.findBlock(text); err != nil || b != nil || lines == "one\n" {
			return
		}
		if got := twice(t, c, text, lines); got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// TestPersonContinues: text that a user writes around a block stays, also when the block is removed; text inside it
// stays with it.
func TestPersonContinues(t *testing.T) {
	c := Change{Path: "/f", Block: "shell", Content: "one\n"}
	for before, want := range map[string]string{"a": "a\nz\n", "a\n": "a\nz\n", "": "z\n"} {
		s, _ := PlanWrite(c, Found{Exists: true, Content: before})
		gone, err := PlanRemoval(c, Found{Exists: true, Content: s.After + "z\n"}, true)
		if err != nil || gone.Action != Cut || gone.After != want {
			t.Errorf("%q: %v, %+v", before, err, gone)
		}
		edited := strings.Replace(s.After, "one\n", "one\nmine\n", 1)
		var conflict *Conflict
		other := c
		other.Content = "two\n"
		if _, err := PlanWrite(other, Found{Exists: true, Content: edited}); !errors.As(err, &conflict) {
			t.Errorf("an edited block is written over: %v", err)
		}
		if gone, err := PlanRemoval(c, Found{Exists: true, Content: edited}, true); err != nil || gone.Action != Left || gone.After != edited {
			t.Errorf("an edited block is taken away: %v, %+v", err, gone)
		}
	}
}

// TestBrokenMarks: a block whose marks do not match is not changed.
func TestBrokenMarks(t *testing.T) {
	c := Change{Path: "/f", Block: "shell", Content: "one\n"}
	s, _ := PlanWrite(c, Found{})
	lines := strings.SplitAfter(s.After, "\n")
	for name, text := range map[string]string{"no end": lines[0] + lines[1], "no beginning": lines[1] + lines[2], "twice": s.After + s.After,
		"two beginnings": lines[0] + s.After, "cut mark": strings.Replace(s.After, " >>>\n", "\n", 1)} {
		var conflict *Conflict
		if _, err := PlanWrite(c, Found{Exists: true, Content: text}); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := PlanRemoval(c, Found{Exists: true, Content: text}, true); !errors.As(err, &conflict) {
			t.Errorf("%s: taken away: %v", name, err)
		}
	}
}

// TestFiles: gpuard's own file is created where there is none, changed while it is as gpuard wrote it, and otherwise
// left.
func TestFiles(t *testing.T) {
	c := Change{Path: "/f", Content: "new\n"}
	old := []string{TextSum("old\n")}
	for name, x := range map[string]struct {
		now    Found
		want   Action
		remove Action
	}{
		"not there":        {Found{}, Create, Gone},
		"as wished":        {Found{Exists: true, Content: "new\n", Known: []string{TextSum("new\n")}}, Same, Delete},
		"older":            {Found{Exists: true, Content: "old\n", Known: old}, Update, Delete},
		"killed between":   {Found{Exists: true, Content: "old\n", Known: append(old, TextSum("new\n"))}, Update, Delete},
		"another's":        {Found{Exists: true, Content: "mine\n"}, "", Left},
		"changed":          {Found{Exists: true, Content: "mine\n", Known: old}, "", Left},
		"another's, alike": {Found{Exists: true, Content: "new\n"}, Same, Left},
	} {
		s, err := PlanWrite(c, x.now)
		if x.want != s.Action && x.want != "" || (x.want == "") != (err != nil) {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
		s, err = PlanRemoval(c, x.now, true)
		if err != nil || s.Action != x.remove {
			t.Errorf("%s, removed: %v, %+v", name, err, s)
		}
	}
}
