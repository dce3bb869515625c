package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/status"
)

// newCrowdedModel is busy with so many devices and requests.
func newCrowdedModel(width, height, devices, requests int) model {
	m := newBusyModel(width, height, &[]string{})
	s := m.seen.Report
	for i := len(s.Devices); i < devices; i++ {
		d := s.Devices[0]
		d.Index, d.Leases = i, nil
		s.Devices = append(s.Devices, d)
	}
	for i := range requests {
		s.Waiting = append(s.Waiting, status.Waiting{ID: fmt.Sprint("w", i), User: "ann", Command: "wait", Count: 1, Place: i + 2})
	}
	m.seen.Report = s
	return m
}

// TestNoRoom: what has no room is counted, and the chosen row is there.
func TestNoRoom(t *testing.T) {
	for _, test := range []struct {
		height, devices, requests int
		says                      []string
	}{
		{10, 2, 0, []string{"zoe", "bob", "eval.py", "? keys"}},
		{10, 2, 2, []string{"more", "zoe"}},
		{10, 8, 0, []string{"more GPUs", "more", "zoe"}},
		{24, 8, 20, []string{"and 19 more", "zoe", "bob"}},
		{24, 2, 0, []string{"zoe", "bob", "eval.py"}},
		{6, 8, 5, []string{"more GPUs", "more", "zoe"}},
	} {
		m := newCrowdedModel(80, test.height, test.devices, test.requests)
		text := ansi.Strip(m.View().Content)
		for _, want := range test.says {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: no %q in\n%s", test, want, text)
			}
		}
		if n := strings.Count(text, "\n") + 1; n != test.height {
			t.Errorf("%+v: %d lines", test, n)
		}
		for range len(m.allRows()) {
			m = pressKeys(m, "down")
			if row := m.allRows()[m.chosenPlace(m.allRows())]; !strings.Contains(m.View().Content, "\x1b[7m") || !strings.Contains(ansi.Strip(m.View().Content), row.user) {
				t.Errorf("%+v: the chosen row of %s is not there", test, row.user)
			}
		}
	}
}

// TestAnswer: a long answer is there as a whole, with the keys below, and goes after a while.
func TestAnswer(t *testing.T) {
	const long = "cannot evict 4242: it belongs to bob, and only its owner or root can end it; ask bob, or as root: sudo gpuard evict --force 4242"
	for _, width := range []int{80, 50} {
		m := newBusyModel(width, 24, &[]string{})
		next, _ := m.Update(outcome(long))
		m = next.(model)
		text := strings.ReplaceAll(ansi.Strip(m.View().Content), "\n", " ")
		for strings.Contains(text, "  ") {
			text = strings.ReplaceAll(text, "  ", " ")
		}
		if !strings.Contains(text, long) || !strings.Contains(text, "s sort:GPU") {
			t.Errorf("%d columns:\n%s", width, m.View().Content)
		}
		m.applyReading(observe.Snapshot{Report: m.seen.Report, At: m.seen.At.Add(time.Second)})
		if m.said == "" {
			t.Error("it has gone at once")
		}
		m.applyReading(observe.Snapshot{Report: m.seen.Report, At: m.seen.At.Add(answerDuration)})
		if m.said != "" {
			t.Error("it stays")
		}
	}
}

// TestHelp: ? and h show what the keys do, and the next key goes back and does nothing else.
func TestHelp(t *testing.T) {
	for _, key := range []string{"?", "h"} {
		var done []string
		m := pressKeys(newBusyModel(50, 20, &done), key)
		for _, want := range []string{"release the chosen lease", "end the chosen process", "out of use", "leave", "colour the bands"} {
			if !strings.Contains(ansi.Strip(m.View().Content), want) {
				t.Errorf("%s: no %q in\n%s", key, want, m.View().Content)
			}
		}
		if m = pressKeys(m, "r"); m.help || m.ask != nil {
			t.Error("the next key does something")
		}
	}
	for _, width := range []int{50, 80, 200} {
		m := newBusyModel(width, 20, nil)
		text := ansi.Strip((&frame{&m}).footText())
		for _, want := range []string{"s sort:GPU", "/ filter", "t tree", "?"} {
			if !strings.Contains(text, want) || ansi.StringWidth(text) > width {
				t.Errorf("%d columns: %q", width, text)
			}
		}
		if rest := []string{"x end", "o log", "d drain", "+- 10 min"}; width >= 80 {
			for _, want := range rest {
				if !strings.Contains(text, want) {
					t.Errorf("%d columns: %q", width, text)
				}
			}
		}
	}
}
