package web

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/check"
	"gpuard/internal/core/glance"
)

// TestWaitingRows: the rows have the order of the line, each with its place; an array and jobs of one name are one row, own ones are marked where
// they stand, what is next is marked, and the counts add up to those of the first line.
func TestWaitingRows(t *testing.T) {
	c := crowdedMachine(t).makeSite(t, "").collectScreen(t.Context(), pageView{language: "en", days: 1})
	list := c.Waiting()
	var got []string
	jobs := 0
	for _, g := range list.Groups {
		got = append(got, g.Head)
		for _, r := range g.Rows {
			text := fmt.Sprintf("%d %s, %s", r.Place, r.Label, r.Numbers())
			if r.Own {
				text += " own"
			}
			if r.First {
				text += " next"
			}
			if r.Told {
				text += " told"
			}
			got, jobs = append(got, text+" "+r.State+r.Start), jobs+r.Jobs
		}
	}
	want := []string{
		"", "1 train.py,  next about 10:12", "2 eval,  about 11:28", "3 sweep-lr[0–39], 40 jobs: 9–48 own told from about 12:12", "4 sdxl,  about 12:44", "5 pretrain,  about 13:28", "6 train.py,  about 13:28",
		"7 eval,  about 14:12", "8 sdxl,  about 14:38", "9 pretrain,  about 15:28", "10 train.py,  about 15:28", "11 eval,  about 16:12", "12 sdxl,  about 16:12", "13 pretrain,  about 17:28",
		"not in the line yet", "0 bert-large, 8 jobs: 49–56 own about 00:32 tomorrow", "", "0 report, 12 jobs: 57–68 own each after the end of one of jobs 49–56",
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("%q", got)
	}
	if jobs+list.Folded()+list.More != 100 || list.Sum() != "100 wait: 12 of others, 88 yours" {
		t.Errorf("%d jobs, %d folded, %d more: %s", jobs, list.Folded(), list.More, list.Sum())
	}
}

// TestMine: a page with a token says when its user gets something, and where that is written; without one it speaks of the next request.
func TestMine(t *testing.T) {
	for _, test := range []struct{ token, user, want string }{
		{secretToken, "alice", `<a href="#yours" class="mine" data-is="mine">your sweep-lr[0] is 3rd and gets 1 GPU at about 12:12</a>`},
		{secretToken, "bob", `<a href="#yours" class="mine" data-is="mine">your train.py gets GPU 0 at about 10:12 (end of bert-large)</a>`},
		{secretToken, "zoe", `<a href="#nvidia-0" class="plain" data-is="next">the next gets GPU 0 at about 10:12 (end of bert-large)</a>`},
		{"", "alice", `<a href="#nvidia-0" class="plain" data-is="next">the next gets GPU 0 at about 10:12 (end of bert-large)</a>`},
	} {
		site := crowdedMachine(t).makeSite(t, test.token)
		site.Owner = test.user
		if page := getPage(t, site, "/"); !strings.Contains(page, test.want) {
			t.Errorf("%+v: %s", test, cutFragment(page, `class="glance"`))
		} else if n := strings.Count(page, `id="yours"`); test.user != "zoe" && n != 1 {
			t.Errorf("%+v: %d rows are that of the first line", test, n)
		}
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
		for _, since := range l.firstSeen(codes, at) {
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

// TestFindingsOfTheReport: an intruder, a breach and use without a lease stand among the findings, each as often as the first line counts it,
// with since and what to do, also where doctor cannot be asked; the process can be ended by its owner and by root.
func TestFindingsOfTheReport(t *testing.T) {
	for _, test := range []struct {
		owner  string
		broken bool
		ends   string
	}{{"alice", false, ""}, {"erin", false, "31338"}, {"root", true, "31337 31338"}} {
		s := troubledMachine(t)
		site := s.makeSite(t, secretToken)
		site.Owner = test.owner
		if test.broken {
			for i := range site.Sources {
				if site.Sources[i].Name == "findings" {
					site.Sources[i].Read = func(context.Context) (any, error) { return nil, errors.New("it hangs") }
				}
			}
		}
		page := getPage(t, site, "/")
		_, list, _ := strings.Cut(page, `<ul class="findings">`)
		list, _, _ = strings.Cut(list, "</ul>")
		last := -1
		for _, want := range []string{
			`error</span> <a href="#nvidia-1">GPU 1, leased by dave: process 31337 of mallory has no lease (python, 3 GiB)</a> <span class="soft">since 08:12`,
			`gpuard evict 31337`,
			`error</span> <a href="#nvidia-7">GPU 7: asr-server of carol uses 19 GiB, and its share is 16 GiB</a> <span class="soft">since 08:37`,
			`ask carol to make it smaller, or to start it with a larger --share`,
			`warning</span> <a href="#nvidia-3">GPU 3: in use without a lease by PID 31338 of erin (jupyter-lab, 22 GiB)</a> <span class="soft">since 06:12`,
			`gpuard evict 31338`,
		} {
			at := strings.Index(list, want)
			if at < last || at < 0 {
				t.Errorf("%s: %q at %d, after %d, in\n%s", test.owner, want, at, last, list)
			}
			last = at
		}
		var ends []string
		for _, m := range regexp.MustCompile(`data-action="evict" data-words="(\d+)"`).FindAllStringSubmatch(list, -1) {
			ends = append(ends, m[1])
		}
		if got := strings.Join(ends, " "); got != test.ends {
			t.Errorf("%s can end %q", test.owner, got)
		}
		c := site.collectScreen(t.Context(), pageView{language: "en", days: 1})
		counts := map[glance.Key]int{}
		for _, f := range glance.Findings(&c.Report) {
			counts[f.Key]++
		}
		for _, part := range c.Answer.Troubles {
			if n, told := counts[part.Key]; told && n != part.Count {
				t.Errorf("%s: %d findings, and the line says %d", part.Key, n, part.Count)
			}
		}
		if len(counts) != 3 {
			t.Error(counts)
		}
	}
}

// TestChineseWhole: what a Chinese page says is Chinese but for names, units, and what is typed: no sentence is left in English, or in half.
func TestChineseWhole(t *testing.T) {
	english := regexp.MustCompile(`[a-z]{2,} [a-z]{2,} [a-z]{2,}`)
	typed := regexp.MustCompile(`(?:sudo|gpuard|nvidia-smi)[a-zA-Z0-9 :,.|'_-]*`)
	for name, make := range inventedMachines() {
		s := make(t)
		site := s.makeSite(t, secretToken)
		for i := range s.machine.Devices {
			page := getPageIn(t, site, "/?gpu="+string(s.machine.Devices[i].UUID), "zh-CN")
			for _, text := range regexp.MustCompile(`>([^<>]+)<|(?:aria-label|title|data-ask)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
				said := typed.ReplaceAllString(html.UnescapeString(text[1]+text[2]), "")
				if english.MatchString(said) {
					t.Errorf("%s: %q", name, said)
				}
			}
		}
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
