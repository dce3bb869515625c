package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/check"
)

// TestWaitingRows: own jobs come first, an array and jobs of one name are one row, a reason stands once, and what is next is marked.
func TestWaitingRows(t *testing.T) {
	c := crowdedMachine(t).makeSite(t, "").collectScreen(t.Context(), pageView{language: "en", days: 1})
	list := c.Waiting()
	var got []string
	for _, g := range list.Groups {
		var rows []string
		for _, r := range g.Rows {
			text := r.Label
			if r.Own {
				text += " own"
			}
			if r.First {
				text += " next"
			}
			if r.State != "" {
				text += " " + r.State
			}
			rows = append(rows, text)
		}
		got = append(got, fmt.Sprintf("%d: %s", g.Jobs, strings.Join(rows[:min(len(rows), 2)], ", ")))
	}
	want := []string{"48: 9–48 sweep-lr[] own, 49–56 bert-large own", "12: 57–68 report own after 49–60", "12: train.py next, eval"}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("%q", got)
	}
	if list.Own != 88 || list.Others != 12 || list.Folded() != 3 || list.More != 28 {
		t.Errorf("%d own, %d others, %d folded, %d more", list.Own, list.Others, list.Folded(), list.More)
	}
}

// TestActionsOffered: an action is offered where it can succeed: a run to its owner, a lease that is left over to root, too, nothing
// without a token, and a drain only to those who may.
func TestActionsOffered(t *testing.T) {
	for _, test := range []struct {
		owner, token string
		drain        bool
		want         string
	}{
		{"alice", "", true, ""},
		{"alice", secretToken, true, "cancel 8, drain"},
		{"alice", secretToken, false, "cancel 8"},
		{"mallory", secretToken, true, "drain"},
		{"bob", secretToken, true, "cancel k001, drain"},
		{"erin", secretToken, true, "drain, release k003"},
		{"root", secretToken, true, "drain, release k003"},
	} {
		s := workdayMachine(t)
		s.leases[3].Ended = true // erin's
		site := s.makeSite(t, test.token)
		site.Owner = test.owner
		site.Actions = []observe.Action{{Name: "drain", Can: func() bool { return test.drain }}}
		page := getPage(t, site, "/?gpu="+string(s.machine.Devices[6].UUID))
		var got []string
		for _, name := range []string{"cancel 8", "cancel k001", "drain", "release k001", "release k003"} {
			action, word, _ := strings.Cut(name, " ")
			if strings.Contains(page, `data-action="`+action+`" data-words="`+word) {
				got = append(got, name)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%+v: %q", test, got)
		}
		if !strings.Contains(page, `data-copy="gpuard cancel 8"`) || !strings.Contains(page, `data-copy="gpuard drain 6"`) {
			t.Errorf("%+v: no command to copy", test)
		}
	}
}

const secretToken = "0123456789abcdef0123"

// TestFindingsSince: the grave ones come first, each with the time since when it was seen; one that went away and came back is new.
func TestFindingsSince(t *testing.T) {
	var l pageUpdater
	at := inventedNow
	see := func(codes ...string) (out []string) {
		at = at.Add(time.Hour)
		var list []check.Finding
		for _, code := range codes {
			list = append(list, check.Finding{Code: code})
		}
		for _, since := range l.firstSeen(list, at) {
			out = append(out, fmt.Sprint(at.Sub(since).Hours()))
		}
		return out
	}
	see("a", "b")
	see("b")
	if got := strings.Join(see("a", "b"), " "); got != "0 2" {
		t.Error(got)
	}
	d := check.Diagnosis{Findings: []check.Finding{{Code: "i", Severity: check.Info}, {Code: "o", Severity: "ok"}, {Code: "e", Severity: check.Error}, {Code: "w", Severity: check.Warning}}}
	var order []string
	for _, f := range d.Grave() {
		order = append(order, f.Code)
	}
	if strings.Join(order, "") != "ewi" {
		t.Error(order)
	}
}

// TestHours: as many digits as say something.
func TestHours(t *testing.T) {
	for v, want := range map[float64]string{0: "–", 0.001: "< 1 min", 0.4: "24 min", 1.04: "1.0 h", 9.94: "9.9 h", 9.97: "10 h", 312.4: "312 h"} {
		if got := formatHours(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
