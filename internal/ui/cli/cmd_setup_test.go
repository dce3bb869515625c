package cli

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/edit"
)

// nothingSet is an environment without variables.
type nothingSet struct{}

func (nothingSet) Lookup(string) (string, bool) { return "", false }

// TestSetupShown: a short written file is shown, --dry-run shows longer ones, and notes fit the terminal.
func TestSetupShown(t *testing.T) {
	t.Parallel()
	note := strings.TrimSpace(strings.Repeat("word ", 20))
	for _, c := range []struct {
		lines       int
		done, shown bool
	}{{30, true, true}, {31, true, false}, {60, false, true}, {61, false, false}} {
		var b strings.Builder
		r := setup.Report{Done: c.done, Notes: []string{note}}
		r.Files = append(r.Files, setup.File{Path: "/a", Action: edit.Create, Text: strings.Repeat("line\n", c.lines)})
		showSetup(&b, r, nothingSet{}, Term{Width: 40, TTY: true})
		if got := strings.Count(b.String(), "  + line\n"); (got == c.lines) != c.shown {
			t.Errorf("%+v: %d lines are shown", c, got)
		}
		if counted := strings.Contains(b.String(), fmt.Sprintf("  + %d lines\n", c.lines)); counted == c.shown {
			t.Errorf("%+v:\n%s", c, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > 41 {
				t.Errorf("%+v: wider than the terminal: %q", c, line)
			}
		}
		b.Reset()
		showSetup(&b, r, nothingSet{}, Term{Width: 40})
		if !strings.Contains(b.String(), "note: "+note+"\n") {
			t.Errorf("%+v: a program gets no whole note:\n%s", c, b.String())
		}
	}
}
