package setupcmd

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/edit"
	"gpuard/internal/ui/console"
)

// nothingSet is an environment without variables.
type nothingSet struct{}

func (nothingSet) Lookup(string) (string, bool) { return "", false }

// TestSetupShown: after a setup a file with more than three lines is named with their number, --dry-run shows them all,
// and notes fit the terminal.
func TestSetupShown(t *testing.T) {
	t.Parallel()
	note := strings.TrimSpace(strings.Repeat("word ", 20))
	for _, c := range []struct {
		lines       int
		done, shown bool
	}{{3, true, true}, {4, true, false}, {4, false, true}, {500, false, true}} {
		var b strings.Builder
		r := setup.Report{Done: c.done, Notes: []string{note}}
		r.Files = append(r.Files, setup.File{Path: "/a", Action: edit.Create, Text: strings.Repeat("line\n", c.lines)})
		showSetup(&b, r, nothingSet{}, console.Term{Width: 40, TTY: true})
		if got := strings.Count(b.String(), "  + line\n"); (got == c.lines) != c.shown {
			t.Errorf("%+v: %d lines are shown", c, got)
		}
		if counted := strings.Contains(b.String(), fmt.Sprintf("/a (%d lines)\n", c.lines)); counted == c.shown {
			t.Errorf("%+v:\n%s", c, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > 41 {
				t.Errorf("%+v: wider than the terminal: %q", c, line)
			}
		}
		b.Reset()
		showSetup(&b, r, nothingSet{}, console.Term{Width: 40})
		if !strings.Contains(b.String(), "note: "+note+"\n") {
			t.Errorf("%+v: a program gets no whole note:\n%s", c, b.String())
		}
	}
}

// TestSetupManyFiles: more than three files with the same change are one line; another change is not hidden in it.
func TestSetupManyFiles(t *testing.T) {
	t.Parallel()
	shown := func(done bool, actions ...edit.Action) string {
		var b strings.Builder
		r := setup.Report{Done: done}
		for i, action := range actions {
			r.Files = append(r.Files, setup.File{Path: fmt.Sprintf("/env/etc/%d.d/file", i), Action: action})
		}
		showSetup(&b, r, nothingSet{}, console.Term{})
		return b.String()
	}
	if got := shown(true, edit.Create, edit.Create, edit.Create, edit.Create); got != "wrote 4 files below /env/etc\n" {
		t.Errorf("four files: %s", got)
	}
	if got := shown(false, edit.Create, edit.Create, edit.Create, edit.Create); strings.Count(got, "\n") != 4 {
		t.Errorf("four files of --dry-run: %s", got)
	}
	if got := shown(true, edit.Update, edit.Same, edit.Same, edit.Same); got != "changed /env/etc/0.d/file\n" {
		t.Errorf("one of four: %s", got)
	}
	if got := shown(true, edit.Delete, edit.Delete, edit.Left, edit.Delete); !strings.Contains(got, "left, because it was changed: /env/etc/2.d/file\n") {
		t.Errorf("one that was left: %s", got)
	}
}
