package web

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/check"
)

// findRow is the row of a device on the page.
func findRow(page string, device string) string {
	_, row, _ := strings.Cut(page, `<div class="gpu" id="nvidia-`+device+`"`)
	row, _, _ = strings.Cut(row, `<div class="gpu"`)
	return row
}

// TestFreeRow: a free device says since when, never for how long, and whether a newcomer can have it or for whom it is kept; so does the first line.
func TestFreeRow(t *testing.T) {
	for _, test := range []struct {
		name     string
		machine  func(testing.TB) *inventedMachine
		device   string
		keep     bool
		row      []string
		line     string
		language string
	}{
		{"idle", idleMachine, "4", false, []string{"free since 23:02 yesterday</span></p></div>"}, `>8 of 8 free</a></span>`, "en"},
		{"awaited", troubledMachine, "5", false, []string{"free since 22:12 yesterday</span>", "a new job of 1 GPU can take it</span>"}, `>a new job of 1 GPU can start</a>`, "en"},
		{"kept", troubledMachine, "5", true, []string{"free since 22:12 yesterday</span>", "kept for pretrain of frank until about 15:37</span>"}, `>kept for pretrain of frank</a>`, "en"},
		{"in Chinese", troubledMachine, "5", true, []string{"自 昨天 22:12 起空闲</span>", "留给 frank 的 pretrain，预计到 15:37</span>"}, `>留给 frank 的 pretrain</a>`, "zh"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.machine(t)
			site := s.makeSite(t, "")
			seen := site.watch()
			if test.keep {
				seen.Report.Waiting[0].Kept = append(seen.Report.Waiting[0].Kept, s.machine.Devices[5].UUID)
				seen.Report.Waiting[0].KeptUntil = new(inventedNow.Add(385 * time.Minute))
			}
			site.watch = func() observe.Snapshot { return seen }
			page := getPageIn(t, site, "/", test.language)
			row := findRow(page, test.device)
			for _, want := range test.row {
				if !strings.Contains(row, want) {
					t.Errorf("no %q in %s", want, row[strings.Index(row, `<div class="now"`):])
				}
			}
			if !strings.Contains(page, test.line) {
				t.Errorf("no %q in %s", test.line, cutFragment(page, `class="glance"`))
			}
		})
	}
}

// TestPastTrouble: a mark whose trouble is over says so in its row and among the findings, and one that lasts does not: what the first line calls
// well and a mark in a band do not contradict.
func TestPastTrouble(t *testing.T) {
	for language, want := range map[string]string{"en": "slowed down because of heat, over", "zh": "因过热降频，已结束"} {
		page := getPageIn(t, workdayMachine(t).makeSite(t, ""), "/", language)
		if row := findRow(page, "1"); !strings.Contains(row, want+" (") {
			t.Errorf("no %q in the row", want)
		}
		_, list, _ := strings.Cut(page, `<ul class="findings">`)
		if list, _, _ = strings.Cut(list, "</ul>"); strings.Count(list, `<a href="#nvidia-1">GPU 1</a>: `+want) != 1 {
			t.Errorf("no %q in %s", want, list)
		}
		if page := getPageIn(t, workdayMachine(t).makeSite(t, ""), "/?days=7", language); strings.Contains(page, want) {
			t.Error("a week of leases has marks")
		}
	}
	page := getPage(t, troubledMachine(t).makeSite(t, ""), "/")
	if strings.Contains(page, ", over") {
		t.Error("what lasts is called over")
	}
}

// TestSteps: what can be copied is a whole command, and nothing besides.
func TestSteps(t *testing.T) {
	for do, want := range map[string]string{
		"": "",
		"sudo systemctl enable --now nvidia-persistenced, or: sudo nvidia-smi -pm 1": "$ sudo systemctl enable --now nvidia-persistenced; $ sudo nvidia-smi -pm 1; ",
		"gpuard evict 7":                                       "$ gpuard evict 7; ",
		"sudo nvidia-smi -i 0 -pl WATTS":                       "sudo nvidia-smi -i 0 -pl WATTS; ",
		"on the host: sudo nvidia-smi -pm 1, or: gpuard check": "on the host: sudo nvidia-smi -pm 1, or: gpuard check; ",
		"nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i 0":        "$ nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i 0; ",
	} {
		got := ""
		for _, s := range (finding{Finding: check.Finding{Do: do}}).Steps() {
			if s.Typed {
				got += "$ "
			}
			got += s.Text + "; "
		}
		if got != want {
			t.Errorf("%q: %q, want %q", do, got, want)
		}
	}
}

// TestFindingsWords: no fault begins with a sentence that all is well, no code stands by itself, all devices are called so, and no fault stands twice.
func TestFindingsWords(t *testing.T) {
	list := func(s *inventedMachine, language string) string {
		_, list, _ := strings.Cut(getPageIn(t, s.makeSite(t, ""), "/", language), `<section id="findings"`)
		list, _, _ = strings.Cut(list, "</section>")
		return list
	}
	trouble := list(troubledMachine(t), "en")
	if strings.Index(trouble, "GPU programs will run here") < strings.LastIndex(trouble, "</li>") || strings.Contains(trouble, "<code>xid-errors") || !strings.Contains(trouble, "gpuard doctor --why xid-errors") {
		t.Error(trouble)
	}
	if strings.Contains(trouble, "0 °C left") || strings.Contains(trouble, "4 Mar") {
		t.Error(trouble)
	}
	if day := list(workdayMachine(t), "en"); !strings.Contains(day, "persistence mode is off on every GPU") || strings.Count(day, `data-copy="sudo`) != 2 {
		t.Error(day)
	}
	if day := list(workdayMachine(t), "zh"); !strings.Contains(day, "所有 GPU") || strings.Contains(day, "or:") {
		t.Error(day)
	}
}

// TestDay: the page says what day it is, and services have the time of the lease that they run in.
func TestDay(t *testing.T) {
	for language, want := range map[string]string{"en": `<p class="today">Wed 4 Mar</p>`, "zh": `<p class="today">周三 3月4日</p>`} {
		if page := getPageIn(t, workdayMachine(t).makeSite(t, ""), "/", language); !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if page := getPage(t, workdayMachine(t).makeSite(t, ""), "/"); !strings.Contains(page, `running <span class="soft">since 04:02</span> <span class="good">healthy`) {
		t.Error(cutFragment(page, `<section id="services"`))
	}
}
