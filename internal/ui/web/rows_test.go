package web

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/observe"
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
